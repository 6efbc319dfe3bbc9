"""The loop of every elementwise operation over blocks that stay in the first-level cache.

A kernel is made for an operation and a mode; formats and policies are numbers it
is given, and the type of the constants says how wide the lanes are in which exact results are held.
"""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple

import numpy as np
from numba import njit

from fpsim.kernels.compiling import INLINE, compiled
from fpsim.kernels.elementwise.native import native_summary
from fpsim.kernels.elementwise.special import CONVERT, FMA, SQRT
from fpsim.kernels.elementwise.step import FLAGS_EACH, no_events, summary, vector_step
from fpsim.kernels.lanes.memory import copy_item, copy_items, load, pointer, room, store
from fpsim.kernels.lanes.vectors import VECTOR_WIDTH, width_of
from fpsim.kernels.random.words import GROUP_HALF, fill_words
from fpsim.kernels.rounding.direction import raised, set_modes
from fpsim.kernels.rounding.rule import spread

__all__ = ["BLOCK", "ROOM", "LoopVariant", "fill_block", "kernel"]

#: Elements per block: three operands, a result and the random words fit the first-level cache.
BLOCK = 1024

#: Random words of a block that may begin inside a group of counters.
ROOM = BLOCK + GROUP_HALF

WORDS_NONE, WORDS_HALF, WORDS_WHOLE, WORDS_GIVEN = range(4)


class LoopVariant(NamedTuple):
    """What is compiled in: constants to the compiler, never tested in the loop."""

    operation: int
    mode: int
    flags: int
    flush: bool  # subnormals are flushed
    one_zero: bool  # the format has no -0
    words: int
    residual: int
    status: int = -1  # where the processor itself rounds: bits of its status register


@njit(**INLINE)
def _block_of(array, room, in_room, copied, b, rest, m):
    """Where m elements of a block that begins at b stand: in the array or in room for a block.

    in_room: its elements are there; copied: they are copied there, array[b + rest] being repeated.
    """
    if in_room:
        return room, 0
    if copied:
        copy_items(room, array, b, b + rest, m)
        return room, 0
    return array, b


@njit(**INLINE)
def _place(array, b, n):
    """Where the block at b of n elements begins in an operand, which may repeat itself."""
    size = array.shape[0]
    return b if size >= n else b % (size - BLOCK)


@njit(**INLINE)
def fill_block(words, first, b, n, m, seed, operation, wide):
    """The words of m elements from b on, and where those of the first one stand.

    Groups are made whole: where a block ends inside of one, the next begins with it. Elements from
    the n-th on repeat the one before them, and its rounding: other words could raise other flags.
    """
    at = (first + b) % GROUP_HALF
    size = (at + m + GROUP_HALF - 1) // GROUP_HALF * GROUP_HALF
    ready = 0
    if at > 0 and b > 0:
        for i in range(0, GROUP_HALF, VECTOR_WIDTH):
            store(words, i, load(words, BLOCK + i))
        ready = GROUP_HALF
    fill_words(words, ready, first + b - at + ready, size - ready, seed, operation, wide)
    for i in range(n - b, m):
        copy_item(words, at + i, words, at + n - b - 1)
    return at


@njit(**INLINE)
def _copy_back(out, room_out, element_flags, block_flags, b, n, by_element):
    """Results of the last block, and their flags, from the copies to the arrays."""
    for i in range(n - b):
        copy_item(out, b + i, room_out, i)
        if by_element:
            copy_item(element_flags, b + i, block_flags, i)


@cache
def kernel(variant: LoopVariant) -> Any:
    """flags = loop(x, y, z, out, element_flags, words, constants, first, …): the compiled loop.

    x, y, z, out are contiguous and of one length; y and z may have length 1, unused ones repeat x.
    An operand that repeats itself may be shorter: one period and BLOCK elements more. `first` is
    where out[0] stands in the operation; streaming: out is large, and begins at 64 bytes.
    """
    # Only numbers are captured, so that the disk cache recognises the loop in another process.
    OP, MODE, FLAGS, FLUSH, ONE_ZERO, WORDS, RESIDUAL, STATUS = variant
    HAS_Y = OP not in (CONVERT, SQRT)
    GIVEN, MADE_HERE = WORDS == WORDS_GIVEN, WORDS in (WORDS_HALF, WORDS_WHOLE)
    EACH, BY_PROCESSOR = FLAGS == FLAGS_EACH, STATUS >= 0

    @compiled
    def loop(x, y, z, out, element_flags, words, constants, first, seed, operation, streaming):
        n = out.shape[0]
        rule = spread(constants)
        lanes = 512 // width_of(rule.drop)
        events = nothing = no_events(OP, rule)
        if BY_PROCESSOR:
            set_modes(STATUS)
        one_y = HAS_Y and y.shape[0] == 1 and n > 1
        one_z = OP == FMA and z.shape[0] == 1 and n > 1
        # Scalars are spread over a block; a last block that does not fill its lanes is worked on
        # in copies that do.
        all_x, all_y, all_z = pointer(x), pointer(y), pointer(z)
        all_out, all_flags, all_words = pointer(out), pointer(element_flags), pointer(words)
        room_x, room_y, room_z = room(x, BLOCK), room(y, BLOCK), room(z, BLOCK)
        room_out, block_flags = room(out, BLOCK), room(element_flags, BLOCK)
        room_words = room(words, ROOM)
        if one_y:
            copy_items(room_y, all_y, 0, 0, BLOCK)
        if one_z:
            copy_items(room_z, all_z, 0, 0, BLOCK)
        for b in range(0, n, BLOCK):
            m = n - b if n - b < BLOCK else BLOCK
            filled, rest, m = m % 16 != 0, n - 1 - b, (m + 15) // 16 * 16
            px, xi = _block_of(all_x, room_x, False, filled, _place(x, b, n), rest, m)
            py, yi = _block_of(all_y, room_y, one_y, filled and HAS_Y, _place(y, b, n), rest, m)
            pz, zi = _block_of(all_z, room_z, one_z, filled and OP == FMA, _place(z, b, n), rest, m)
            pw, wi = _block_of(all_words, room_words, False, filled and GIVEN, b, rest, m)
            po, oi = _block_of(all_out, room_out, filled, False, b, rest, m)
            pf, fi = _block_of(all_flags, block_flags, filled, False, b, rest, m)
            if MADE_HERE:
                wide, pw = WORDS == WORDS_WHOLE, room_words
                wi = fill_block(room_words, first, b, n, m, seed, operation, wide)
            past = streaming and not filled
            choices = MODE, FLAGS, FLUSH, ONE_ZERO, GIVEN, RESIDUAL, BY_PROCESSOR, past
            for i in range(0, m, lanes):
                events = vector_step(
                    OP, choices, px, xi + i, py, yi + i, pz, zi + i, po, oi + i, pf, fi + i, pw,
                    wi + i, rule, events,
                )
            if filled:
                _copy_back(all_out, room_out, all_flags, block_flags, b, n, EACH)
        if BY_PROCESSOR:
            return raised() | np.int64(native_summary(events, rule))
        return np.int64(summary((events[0], events[1], events[2] ^ nothing[2], events[3])))

    return loop
