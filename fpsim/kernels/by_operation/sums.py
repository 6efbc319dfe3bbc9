"""Sums of rows in every order, sixteen side by side, tile by tile.

Which additions an order makes of a tile is in `fpsim.kernels.by_operation.orders`. The arithmetic
of a step is that of the elementwise operations.

Source    docs/semantics.md §2 and §4.
"""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple

import numpy as np
from numba import njit

from fpsim.kernels.by_operation.orders import (
    CARRY,
    COPIED,
    MOST_STEPS,
    N_SLOTS,
    SINGLE,
    SUBTRACTED,
    TOTAL,
    tile_steps,
)
from fpsim.kernels.by_operation.rows import TILE, clear_tile, put_columns, put_tile, row_start
from fpsim.kernels.compiling import INLINE, compiled
from fpsim.kernels.elementwise.special import ADD, SUBTRACT
from fpsim.kernels.elementwise.step import FLAGS_EACH, summary, vector_step
from fpsim.kernels.lanes.memory import copy_item, load, pointer, room
from fpsim.kernels.lanes.vectors import width_of
from fpsim.kernels.random.words import lane_words, place_words
from fpsim.kernels.rounding.modes import SR
from fpsim.kernels.rounding.rule import spread

__all__ = [
    "COLUMN_BLOCK", "LIMBS", "SumLayout", "SumVariant", "WORDS_GIVEN", "WORDS_HALF", "WORDS_NONE",
    "WORDS_WHOLE", "add_exactly", "odd_codes", "sum_kernel", "words_ready",
]

#: Outputs side by side: a block of columns.
COLUMN_BLOCK = 16

#: Numbers in the slots of sixteen rows.
SLOTS_ROOM = N_SLOTS * COLUMN_BLOCK

WORDS_NONE, WORDS_HALF, WORDS_WHOLE, WORDS_GIVEN = range(4)


class SumVariant(NamedTuple):
    """What is compiled in; `operation` ADD runs programs of additions and subtractions."""

    operation: int
    mode: int
    flags: int
    flush: bool
    one_zero: bool
    words: int
    residual: int


@njit(**INLINE)
def words_ready(drawn, held, row, place, first, per_block, seed, operation):
    """Where in `drawn` the words of a row of outputs stand for a rounding place.

    They are made for all rounding places of a counter; held[row] is the counter they belong to.
    """
    block = place // per_block
    if block != held[row]:
        place_words(drawn, row * 128, first, block, seed, operation, per_block == 4)
        held[row] = block
    return row * 128 + (place - block * per_block) * COLUMN_BLOCK


class SumLayout(NamedTuple):
    """Which rows are summed, where they lie, and how; int64.

    n              elements of a row.
    parts          rows that make one output: part b of it starts `part_counters` counters of random
                   words later (`fpsim.kernels.random.words`).
    output_step, part_step, step    from output to output, part to part, element to element.
    order, block   of `fpsim.kernels.by_operation.orders`.
    place_first, place_step    rounding place of element 1 is place_first + place_step - 1.
    """

    n: int
    parts: int
    output_step: int
    part_step: int
    step: int
    order: int
    block: int
    place_first: int = 0
    place_step: int = 1
    part_counters: int = 0


@njit(**INLINE)
def _clear(slots, few):
    """Zeros in lanes without a row, and in Kahan's first c."""
    if few < COLUMN_BLOCK:
        clear_tile(slots, COLUMN_BLOCK)
    for lane in range(COLUMN_BLOCK):
        slots[CARRY * COLUMN_BLOCK + lane] = 0


@njit(**INLINE)
def _fill(slots, source, layout, row, few, begin, m):
    """A tile of rows `row` … `row` + few - 1, elements from `begin` on."""
    parts, output_step, part_step, step = layout[1], layout[2], layout[3], layout[4]
    if parts == 1 and output_step == 1 and layout[5] != SINGLE:
        put_columns(slots, COLUMN_BLOCK, few, source, row + begin * step, step, m)
        return
    for lane in range(few):
        start = row_start(row + lane, parts, output_step, part_step) + begin * step
        put_tile(slots, COLUMN_BLOCK, lane, source, start, step, m)
    if layout[5] == SINGLE and m > 1:
        for lane in range(few, COLUMN_BLOCK):  # zeros are divided by what the others are
            copy_item(slots, COLUMN_BLOCK + lane, slots, COLUMN_BLOCK)


@njit(**INLINE)
def _number_rows(lane_ids, layout, row, first):
    """Numbers of the outputs of sixteen rows, and the counters that their parts start with."""
    numbers, counters = lane_ids
    parts, part_counters = layout[1], layout[9]
    for lane in range(COLUMN_BLOCK):
        numbers[lane] = first + (row + lane) // parts
        counters[lane] = (row + lane) % parts * part_counters


@njit(**INLINE)
def _words_of_rows(drawn, held, lane_ids, place, per_block, draw):
    """Where in `drawn` the words of sixteen rows stand for a rounding place; see `words_ready`."""
    block = place // per_block
    if block != held[0]:
        numbers, counters = load(lane_ids[0], 0), load(lane_ids[1], 0)
        lane_words(drawn, 0, numbers, counters, block, draw[0], draw[1], per_block == 4)
        held[0] = block
    return (place - block * per_block) * COLUMN_BLOCK


@njit(**INLINE)
def _at(steps, step):
    """A step with its slots as places in memory."""
    target, left = steps[step, 1] * COLUMN_BLOCK, steps[step, 2] * COLUMN_BLOCK
    return steps[step, 0], target, left, steps[step, 3] * COLUMN_BLOCK, steps[step, 4]


@njit(**INLINE)
def _copy(slots, target, source):
    for i in range(COLUMN_BLOCK):
        copy_item(slots, target + i, slots, source + i)


@njit(**INLINE)
def _raise(element_flags, row, few, raised):
    """Flags of a step, of the rows that there are."""
    for i in range(few):
        element_flags[row + i] |= raised[i]


@njit(**INLINE)
def _put_sums(out, row, few, slots):
    for i in range(few):
        out[row + i] = slots[TOTAL * COLUMN_BLOCK + i]


@cache
def sum_kernel(variant: SumVariant) -> Any:
    """The compiled sum of rows, sixteen side by side.

    Call    flags = loop(source, layout, rows, out, element_flags, words, constants, random)
            source begins with row 0; layout: `SumLayout`; rows: first, last + 1; out, element_flags
            (rows,); words (places, outputs) if supplied; random: first output, seed, operation
    """
    OP, MODE, FLAGS, FLUSH, ONE_ZERO, WORDS, RESIDUAL = variant
    STOCHASTIC = MODE >= SR
    GIVEN, EACH = WORDS == WORDS_GIVEN, FLAGS == FLAGS_EACH
    PER_BLOCK = 4 if WORDS == WORDS_WHOLE else 8

    @compiled
    def loop(source, layout, rows, out, element_flags, words, constants, random):
        rule = spread(constants)
        lanes, none = 512 // width_of(rule.drop), rule.drop ^ rule.drop
        events = (none, none, none, none)
        data, given_words = pointer(source), pointer(words.reshape(-1))
        slots, block_flags = room(source, SLOTS_ROOM), room(element_flags, 16)
        room_words, lane_ids = room(words, 128), (room(words, 16), room(words, 16))
        steps, held = np.empty((MOST_STEPS, 5), np.int64), np.empty(1, np.int64)
        what = (MODE, FLAGS, FLUSH, ONE_ZERO, GIVEN, RESIDUAL, False, False)
        n, order, block, first, draw = layout[0], layout[5], layout[6], random[0], random[1:]
        for row in range(rows[0], rows[1], COLUMN_BLOCK):
            few = min(COLUMN_BLOCK, rows[1] - row)
            _clear(slots, few)
            if STOCHASTIC and not GIVEN:
                _number_rows(lane_ids, layout, row, first)
            held[0] = -1
            for begin in range(0, n, TILE):
                m = min(TILE, n - begin)
                _fill(slots, data, layout, row, few, begin, m)
                for step in range(tile_steps(steps, order, begin, m, n, block)):
                    kind, target, left, right, start = _at(steps, step)
                    if kind == COPIED:
                        _copy(slots, target, right)
                        continue
                    place = layout[7] + layout[8] * start - 1
                    pw, wi = room_words, np.int64(0)
                    if GIVEN:
                        pw, wi = given_words, place * words.shape[1] + first + row
                    elif STOCHASTIC:
                        wi = _words_of_rows(room_words, held, lane_ids, place, PER_BLOCK, draw)
                    for i in range(0, COLUMN_BLOCK, lanes):
                        if OP == ADD and kind == SUBTRACTED:
                            events = vector_step(
                                SUBTRACT, what, slots, left + i, slots, right + i, slots, 0,
                                slots, target + i, block_flags, i, pw, wi + i, rule, events,
                            )
                        else:
                            events = vector_step(
                                OP, what, slots, left + i, slots, right + i, slots, 0,
                                slots, target + i, block_flags, i, pw, wi + i, rule, events,
                            )
                    if EACH:
                        _raise(element_flags, row, few, block_flags)
            _put_sums(out, row, few, slots)
        return np.int64(summary(events))

    return loop


#: Limbs of 32 bits from 2**-1088 on hold every sum of binary64 numbers.
LIMBS, _LOWEST = 70, -1088


@compiled
def add_exactly(codes, limbs):
    """limbs (rows, LIMBS) += the numbers with these codes (rows, n): finite, of binary64.

    From call to call carries are spread.
    """
    for row in range(codes.shape[0]):
        total = limbs[row]
        for k in range(codes.shape[1]):
            code = np.int64(codes[row, k])
            field = (code >> 52) & 0x7FF
            significand = code & 0xFFFFFFFFFFFFF
            if field:
                significand |= 0x10000000000000
            bit = max(field, 1) - 1075 - _LOWEST
            while significand:
                part = (significand & 0xFFFFFF) << (bit & 31)
                total[bit >> 5] += -part if code < 0 else part
                significand >>= 24
                bit += 24
            if k & 0x3F == 0x3F:
                _spread_carries(total)
        _spread_carries(total)


@compiled
def odd_codes(limbs, codes):
    """codes (rows,) of binary64 of the numbers in limbs, which are used up, rounded to odd."""
    for row in range(limbs.shape[0]):
        codes[row] = _odd_code(limbs[row])


@njit(**INLINE)
def _spread_carries(limbs):
    for i in range(LIMBS - 1):
        limbs[i + 1] += limbs[i] >> 32
        limbs[i] &= 0xFFFFFFFF


@njit(**INLINE)
def _odd_code(limbs):
    """binary64 code of the number in limbs with carries spread, rounded to odd."""
    sign = np.int64(0)
    if limbs[LIMBS - 1] < 0:
        sign = np.int64(-0x8000000000000000)
        for i in range(LIMBS):
            limbs[i] = -limbs[i]
        _spread_carries(limbs)
    top = LIMBS - 1
    while top >= 0 and limbs[top] == 0:
        top -= 1
    if top < 0:
        return np.int64(0)
    digits = 0
    while limbs[top] >> digits:
        digits += 1
    # The bit of the last of 53 digits, or of the smallest subnormal.
    last = max(32 * top + digits - 53, -1074 - _LOWEST)
    significand, rest = np.int64(0), np.int64(0)
    for i in range(top, -1, -1):
        shift = 32 * i - last
        if shift >= 0:
            significand += limbs[i] << shift
        elif shift > -32:
            significand += limbs[i] >> -shift
            rest |= limbs[i] & ((np.int64(1) << -shift) - 1)
        else:
            rest |= limbs[i]
    if rest:
        significand |= 1
    # The hidden digit, where there is one, adds the last one to the exponent field.
    return sign | (((last + _LOWEST + 1074) << 52) + significand)
