"""Codes of elements: a factor for each block, one rounding, saturation, the code, flags.

The product of a number and its block's factor is rounded to binary32 by the processor. Magnitudes
that are normal in the element's format lose the same digits, smaller ones are counted in quanta;
both give the code at once, and the largest finite code is the least upper bound of all. To nearest
even, or stochastically with at most as many random digits as a normal number loses: other modes
take the way over values (`fpsim.elementwise.blocks.elements`).

Source    docs/semantics.md §1 and §3.
"""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple

import numpy as np
from numba import njit

from fpsim.kernels.blocks.lanes import store_nibbles
from fpsim.kernels.compiling import INLINE, compiled
from fpsim.kernels.lanes.arithmetic import to_whole, trunc
from fpsim.kernels.lanes.formula import formula, when
from fpsim.kernels.lanes.memory import load, load_word, pointer, room, splat_item, store_low
from fpsim.kernels.lanes.vectors import any_lane, as_bits, as_float, or_lanes, select, umin
from fpsim.kernels.random.words import GROUP_HALF, GROUP_WORD, fill_words

__all__ = [
    "CLIPPED", "FLAGS_EACH", "FLAGS_NONE", "FLAGS_STICKY", "FLUSHED", "ElementRule",
    "EncoderVariant", "encoder", "words_of_elements",
]

#: What happened to elements of a block.
CLIPPED, FLUSHED = 1, 2

#: Flags that are told: none, all together, those of each element and of each row of a block.
FLAGS_NONE, FLAGS_STICKY, FLAGS_EACH = range(3)

#: Where random words come from: none, half a word or a word of a counter, or given ones.
WORDS_NONE, WORDS_HALF, WORDS_WHOLE, WORDS_GIVEN = range(4)


class ElementRule(NamedTuple):
    """Constants of an element's format and rounding; magnitudes are bits of binary32."""

    drop: int  # digits that a normal number loses
    offset: int  # what a normal magnitude has more than its code, shifted
    normal: int  # smallest normal magnitude
    magic: int  # a number whose last place is the quantum
    per_quantum: int  # 1 / quantum
    per_digit: int  # 2**random / quantum
    largest: int  # code of the largest finite value
    tiny: int  # smaller magnitudes are tiny
    nan: int  # code of NaN, or of what stands for it
    nan_flags: int
    sign_shift: int  # from the sign of binary32 to that of a code
    random: int  # random digits


class EncoderVariant(NamedTuple):
    """What is compiled in."""

    stochastic: bool
    words: int
    flags: int
    nibbles: bool  # two codes in a byte
    integers: bool  # codes in two's complement


@formula
def _spread(k):
    return ElementRule(*(splat_item(k, i) for i in range(len(ElementRule._fields))))


def _nearest(a, k):
    """Codes without sign to nearest even, before saturation."""
    one = (a ^ a) + 1
    normal = (a + ((one << (k.drop - 1)) - 1) + ((a >> k.drop) & 1)) >> k.drop
    small = as_bits(as_float(a) + as_float(k.magic)) - k.magic
    return select(a < k.normal, small, normal - k.offset)


def _stochastic(a, word, k):
    """The same by random digits at the top of `word`: up where they carry."""
    drawn = word >> (32 - k.random)
    normal = (a + (drawn << (k.drop - k.random))) >> k.drop
    small = (to_whole(as_float(a) * as_float(k.per_digit)) + drawn) >> k.random
    return select(a < k.normal, small, normal - k.offset)


def _flags(t, a, body, k):
    """Flags of elements, and what their block is told."""
    none, size, is_small = a ^ a, t & 0x7FFFFFFF, a < k.normal
    counted = as_float(a) * as_float(k.per_quantum)
    of_normal = (a & ((none + 1 << k.drop) - 1)) != 0
    lost = (is_small & (trunc(counted) != counted)) | (~is_small & of_normal)
    over = body > k.largest
    flags = select(lost, select(a < k.tiny, none + 3, none + 1), none)
    flags = select(over, none + 5, flags)
    told = select((body == 0) & (size != 0), none + FLUSHED, none)
    told = select(over, none + CLIPPED, told)
    is_nan = a > 0x7F800000

    def of_nan(flags, told):
        loud = (size > 0x7F800000) & ((t & 0x00400000) == 0)
        flags = select(is_nan, k.nan_flags, flags)
        return select(loud, none + 16, flags), select(is_nan, none, told)

    return when(any_lane(is_nan), of_nan, flags, told)


@formula
def _step(what, x, i, factor, words, wi, codes, at, element_flags, k, raised_before, told):
    """One vector of elements."""
    stochastic, flags, nibbles, integers = what
    t = load(x, i)
    y = as_bits(as_float(t) * factor)
    a = y & 0x7FFFFFFF
    sign = y ^ a
    none = a ^ a
    body = _stochastic(a, load_word(words, wi, t), k) if stochastic else _nearest(a, k)
    code = umin(body, k.largest)
    negative = (none - code) & 0xFF if integers else code | (sign >> k.sign_shift)
    code = select(sign != 0, negative, code)
    code = select(a > 0x7F800000, k.nan, code)
    if nibbles:
        store_nibbles(codes, at, code)
    else:
        store_low(codes, at, code)
    if flags == FLAGS_NONE:
        return raised_before, told
    raised, of_block = _flags(t, a, body, k)
    if flags == FLAGS_EACH:
        store_low(element_flags, i, raised)
    return raised_before | raised, told | of_block


@njit(**INLINE)
def _random(words, ready, first, seed, operation, wide):
    """Fill the room of words for the group of element `first`, unless it is there already."""
    group = GROUP_WORD if wide else GROUP_HALF
    begin = first // group * group
    if begin != ready:
        fill_words(words, 0, begin, group, seed, operation, wide)
    return begin


@cache
def encoder(variant: EncoderVariant) -> Any:
    """flags = loop(x, factors, codes, element_flags, block_flags, words, constants, shape, …).

    shape      rows begin … end - 1 of so many columns, blocks of so many elements along a row (a
               multiple of 16), rows that share a scale: (begin, end, columns, width, tall).
    factors    binary32 of blocks, by rows of blocks.
    words      given ones: R in their top bits; first is the number of x[0] in the operation.
    block_flags   uint8 of every row's blocks; those of flags alone.
    """
    STOCHASTIC, WORDS, FLAGS, NIBBLES, INTEGERS = variant

    @compiled
    def loop(
        x, factors, codes, element_flags, block_flags, words, constants, shape, first, seed,
        operation,
    ):
        begin, end, columns, width, tall = shape
        k = _spread(constants)
        raised = nothing = k.drop ^ k.drop
        px, pc, pf, pw = pointer(x), pointer(codes), pointer(element_flags), pointer(words)
        room_words, ready = room(words, GROUP_HALF), -1
        across = columns // width
        what = STOCHASTIC, FLAGS, NIBBLES, INTEGERS
        for row in range(begin, end):
            first_factor = (row if tall == 1 else row // tall) * across  # a division is slow
            for block in range(across):
                factor = as_float(splat_item(factors, first_factor + block))
                at, told = row * columns + block * width, nothing
                for i in range(at, at + width, 16):
                    p, wi = pw, i
                    if WORDS == WORDS_HALF or WORDS == WORDS_WHOLE:
                        wide = WORDS == WORDS_WHOLE
                        ready = _random(room_words, ready, first + i, seed, operation, wide)
                        p, wi = room_words, first + i - ready
                    to = i // 2 if NIBBLES else i
                    raised, told = _step(
                        what, px, i, factor, p, wi, pc, to, pf, k, raised, told
                    )
                if FLAGS == FLAGS_EACH:
                    block_flags[row * across + block] = or_lanes(told)
        return np.int64(or_lanes(raised))

    return loop


@compiled
def words_of_elements(words, first, seed, operation, wide):
    """words[:] = random words of elements from `first` on, R in their top bits; whole groups."""
    fill_words(words, 0, first, words.shape[0], seed, operation, wide)
    return 0
