"""Sums as programs of additions, sixteen outputs side by side.

A slot holds one number of each of sixteen outputs. A program is a list of steps
target = left ± right on slots, each with the rounding place of its random bits; every order of
summation is such a list. The arithmetic of a step is that of the elementwise operations.

Source    docs/semantics.md §2 and §4.
"""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple

import numpy as np
from numba import njit

from fpsim.kernels.compiling import INLINE, compiled
from fpsim.kernels.elementwise.special import ADD, SUBTRACT
from fpsim.kernels.elementwise.step import FLAGS_EACH, summary, vector_step
from fpsim.kernels.lanes.memory import pointer, room
from fpsim.kernels.lanes.vectors import width_of
from fpsim.kernels.random.words import place_words
from fpsim.kernels.rounding.modes import SR
from fpsim.kernels.rounding.rule import spread

__all__ = ["COLUMN_BLOCK", "SumVariant", "WORDS_GIVEN", "WORDS_HALF", "WORDS_NONE", "WORDS_WHOLE"]
__all__ += ["exact_sums", "sum_kernel", "words_ready"]

#: Outputs side by side: a block of columns.
COLUMN_BLOCK = 16

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


@cache
def sum_kernel(variant: SumVariant) -> Any:
    """The compiled runner of programs.

    Call    flags = loop(slots, program, element_flags, words, constants, first, seed, operation)
            slots (groups, n, 16) floats; program (steps, 5) int64: subtract, target, left, right,
            rounding place; element_flags (groups, 16) uint8 collects the flags of each output;
            words (rounding places, outputs) if given; first is the number of the first output
    """
    OP, MODE, FLAGS, FLUSH, ONE_ZERO, WORDS, RESIDUAL = variant
    STOCHASTIC = MODE >= SR
    GIVEN, EACH = WORDS == WORDS_GIVEN, FLAGS == FLAGS_EACH
    PER_BLOCK = 4 if WORDS == WORDS_WHOLE else 8

    @compiled
    def loop(slots, program, element_flags, words, constants, first, seed, operation):
        rule = spread(constants)
        lanes = 512 // width_of(rule.drop)
        none = rule.drop ^ rule.drop
        seen = (none, none, none, none)
        flat, flat_flags = slots.reshape(-1), element_flags.reshape(-1)
        all_slots, given_words = pointer(flat), pointer(words.reshape(-1))
        block_flags, room_words = room(element_flags, 16), room(words, 128)
        counters = np.empty(1, np.int64)
        held = pointer(counters)
        what = (MODE, FLAGS, FLUSH, ONE_ZERO, GIVEN, RESIDUAL, False)
        for g in range(slots.shape[0]):
            begin = g * slots.shape[1]
            counters[0] = -1
            for step in range(program.shape[0]):
                target = (begin + program[step, 1]) * COLUMN_BLOCK
                left = (begin + program[step, 2]) * COLUMN_BLOCK
                right = (begin + program[step, 3]) * COLUMN_BLOCK
                place, number = program[step, 4], first + g * COLUMN_BLOCK
                pw, wi = room_words, np.int64(0)
                if GIVEN:
                    pw, wi = given_words, place * words.shape[1] + number
                elif STOCHASTIC:
                    wi = words_ready(room_words, held, 0, place, number, PER_BLOCK, seed, operation)
                for i in range(0, COLUMN_BLOCK, lanes):
                    if OP == ADD and program[step, 0]:
                        seen = vector_step(
                            SUBTRACT, what, all_slots, left + i, all_slots, right + i, all_slots,
                            0, all_slots, target + i, block_flags, i, pw, wi + i, rule, seen,
                        )  # fmt: skip
                    else:
                        seen = vector_step(
                            OP, what, all_slots, left + i, all_slots, right + i, all_slots, 0,
                            all_slots, target + i, block_flags, i, pw, wi + i, rule, seen,
                        )  # fmt: skip
                if EACH:
                    for i in range(COLUMN_BLOCK):
                        flat_flags[g * COLUMN_BLOCK + i] |= block_flags[i]
        return np.int64(summary(seen))

    return loop


#: Limbs of 32 bits from 2**-1088 on hold every sum of binary64 numbers.
_LIMBS, _LOWEST = 70, -1088


@compiled
def exact_sums(codes, sums):
    """sums (rows,) = codes of the rows' sums, rounded to odd; codes (rows, n) finite binary64."""
    limbs = np.zeros(_LIMBS, np.int64)
    for row in range(codes.shape[0]):
        limbs[:] = 0
        for k in range(codes.shape[1]):
            code = np.int64(codes[row, k])
            field = (code >> 52) & 0x7FF
            significand = code & 0xFFFFFFFFFFFFF
            if field:
                significand |= 0x10000000000000
            bit = max(field, 1) - 1075 - _LOWEST
            while significand:
                part = (significand & 0xFFFFFF) << (bit & 31)
                limbs[bit >> 5] += -part if code < 0 else part
                significand >>= 24
                bit += 24
            if k & 0x3F == 0x3F:
                _spread_carries(limbs)
        _spread_carries(limbs)
        sums[row] = _odd_code(limbs)


@njit(**INLINE)
def _spread_carries(limbs):
    for i in range(_LIMBS - 1):
        limbs[i + 1] += limbs[i] >> 32
        limbs[i] &= 0xFFFFFFFF


@njit(**INLINE)
def _odd_code(limbs):
    """binary64 code of the number in limbs with carries spread, rounded to odd."""
    sign = np.int64(0)
    if limbs[_LIMBS - 1] < 0:
        sign = np.int64(-0x8000000000000000)
        for i in range(_LIMBS):
            limbs[i] = -limbs[i]
        _spread_carries(limbs)
    top = _LIMBS - 1
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
