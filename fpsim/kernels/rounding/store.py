"""Rounding of partial results where they are stored, with random words by output and place.

Source    docs/semantics.md §2 (layout of sums and products).
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
from numba import njit

from fpsim.kernels.compiling import INLINE, compiled
from fpsim.kernels.lanes.arithmetic import quiet_add, quiet_subtract
from fpsim.kernels.lanes.formula import formula
from fpsim.kernels.lanes.memory import load, load_float, load_word, store, store_float, store_low
from fpsim.kernels.lanes.vectors import (
    U32,
    as_bits,
    as_float,
    infinity_like,
    or_lanes,
    select,
    sign_like,
    splat,
    umax,
    width_of,
)
from fpsim.kernels.random.philox import philox
from fpsim.kernels.rounding.round import (
    RNE,
    RTN,
    RTP,
    SR,
    SR_EQUAL,
    round_fixed,
    round_random,
    round_residual,
)
from fpsim.kernels.rounding.rule import spread

__all__ = ["BY_INTEGERS", "LOUD", "QUIET", "fill_places", "store_kernel", "store_lanes"]
__all__ += ["store_ordinary"]

#: Flags that units raise; residuals of SR as the plan numbers them.
_OVERFLOW, _INVALID = 4, 16
_TRUNCATED, _EVEN = 0, 2

#: Ways to round to nearest: may raise the inexact flag; by instructions that do not; by integers.
LOUD, QUIET, BY_INTEGERS = range(3)


@formula
def store_lanes(what, bits, word, rule):
    """Bits of partials rounded as they are stored, and their flags OVERFLOW and INVALID.

    `word` holds R in its low bits if `low`, else in the top ones; deterministic modes ignore it.
    NaN is made canonical, and infinity is what the rule says of an infinite operand.
    """
    mode, low, residual = what
    width = width_of(bits)
    none = bits ^ bits
    sign, infinity = sign_like(bits), infinity_like(bits)
    a = bits & ~sign
    negative = bits >= sign
    if mode == SR or mode == SR_EQUAL:
        exact = a if residual == _TRUNCATED else round_residual(a, residual == _EVEN, rule)
        r = round_random(mode, exact, word, low, rule, width)
        over = r > rule.largest
    else:
        r = round_fixed(mode, a, negative, rule, width)
        over = a >= rule.over_pos
        if mode == RTP or mode == RTN:
            over = a >= select(negative, rule.over_neg, rule.over_pos)
    tiny = rule.tiny_pos
    if mode == RTP or mode == RTN:
        tiny = select(negative, rule.tiny_neg, rule.tiny_pos)
    r = select(a < tiny, r & ~rule.flush, r) | (bits & sign)
    r = select(over, select(negative, rule.over_value_neg, rule.over_value_pos), r)
    flags = select(over, none + _OVERFLOW, none)
    infinite = a == infinity
    r = select(infinite, select(negative, rule.infinite_neg, rule.infinite_pos), r)
    flags = select(infinite, rule.infinite_flags & _OVERFLOW, flags)
    nan = a > infinity
    return select(nan, rule.nan_set, r), select(nan, rule.nan_flags & _INVALID, flags)


@formula
def store_ordinary(how, bits, field, word, rule):
    """Bits of finite partials that cannot overflow, rounded as they are stored.

    `how` is the mode, whether R stands in the low bits of the words, the residual, and the care
    taken of the inexact flag; `field` holds the exponent fields. To nearest, 1.5 * 2**drop units of
    the last digit are added and taken away again; below the smallest normal number the unit stays,
    and what becomes zero is +0.
    """
    mode, low, residual, quiet = how
    width = width_of(bits)
    if mode == RNE and quiet != BY_INTEGERS:
        place = 23 if width == 32 else 52
        magic = as_float(
            umax(field, rule.emin << place) + ((rule.drop << place) | (rule.hidden >> 1))
        )
        if quiet == QUIET:
            return as_bits(quiet_subtract(quiet_add(as_float(bits), magic), magic))
        return as_bits((as_float(bits) + magic) - magic)
    bits = as_bits(as_float(bits) + 0.0)
    sign = bits & sign_like(bits)
    a = bits ^ sign
    if mode == SR or mode == SR_EQUAL:
        exact = a if residual == _TRUNCATED else round_residual(a, residual == _EVEN, rule)
        return round_random(mode, exact, word, low, rule, width) | sign
    return round_fixed(mode, a, sign != 0, rule, width) | sign


@njit(**INLINE)
def _step(what, values, i, words, rule):
    """One vector in place; returns its flags."""
    bits = as_bits(load_float(values, i, rule.drop))
    word = bits
    if what[0] == SR or what[0] == SR_EQUAL:
        word = load_word(words, i, bits)
    bits, flags = store_lanes(what, bits, word, rule)
    store_float(values, i, bits)
    return flags


@compiled
def fill_places(words, numbers, block, seed, operation, wide):
    """words (places, n): random words of the outputs with these numbers, R in their top bits.

    The places are those of one counter: 8 halves, or 4 whole words where `wide`; `block` is the
    place div 8 (or 4). n is a multiple of 16.
    """
    k0, k1 = np.uint32(seed & np.uint64(0xFFFFFFFF)), np.uint32(seed >> np.uint64(32))
    n0, n1 = np.uint32(operation & np.uint64(0xFFFFFFFF)), np.uint32(operation >> np.uint64(32))
    zero = splat(np.uint32(0), U32)
    n = words.shape[1]
    flat = words.reshape(-1)
    for i in range(0, n, 16):
        w = philox(load(numbers, i), zero + np.uint32(block + 1), zero + n0, zero + n1, k0, k1)
        if wide:
            store(flat, i, w[0])
            store(flat, n + i, w[1])
            store(flat, 2 * n + i, w[2])
            store(flat, 3 * n + i, w[3])
        else:
            store(flat, i, w[0] << 16)
            store(flat, n + i, w[1] << 16)
            store(flat, 2 * n + i, w[2] << 16)
            store(flat, 3 * n + i, w[3] << 16)
            store(flat, 4 * n + i, w[0])
            store(flat, 5 * n + i, w[1])
            store(flat, 6 * n + i, w[2])
            store(flat, 7 * n + i, w[3])


@cache
def store_kernel(mode: int, low: bool, residual: int) -> Any:
    """Compiled: rounds values (n,) in place and collects each one's flags in marks.

    Call    flags = loop(values, marks, words, constants); words (n,) where the mode takes
            them, R in the low bits if `low`, else in the top ones
    """
    MODE, LOW, RESIDUAL = mode, low, residual

    @compiled
    def loop(values, marks, words, constants):
        rule = spread(constants)
        lanes = 512 // width_of(rule.drop)
        what = (MODE, LOW, RESIDUAL)
        n = values.shape[0]
        room, room_words = np.empty(16, values.dtype), np.empty(16, np.uint32)
        room_marks = np.empty(16, np.uint8)
        whole = n // 16 * 16
        raised = rule.drop ^ rule.drop
        for i in range(0, whole, lanes):
            flags = _step(what, values, i, words, rule)
            raised = raised | flags
            store_low(room_marks, 0, flags)
            for lane in range(lanes):
                marks[i + lane] |= room_marks[lane]
        if whole < n:
            # The last few pass through a full vector.
            for lane in range(16):
                room[lane] = values[whole + lane] if whole + lane < n else 0
                room_words[lane] = words[whole + lane] if whole + lane < words.shape[0] else 0
            for i in range(0, 16, lanes):
                flags = _step(what, room, i, room_words, rule)
                raised = raised | flags
                store_low(room_marks, i, flags)
            for lane in range(n - whole):
                values[whole + lane] = room[lane]
                marks[whole + lane] |= room_marks[lane]
        return np.int64(or_lanes(raised))

    return loop
