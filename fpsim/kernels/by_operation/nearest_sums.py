"""Chains of additions to nearest even by the processor's own additions of binary64.

A sum of two numbers of at most 24 digits, rounded to binary64 and then to p digits, is rounded
once (2p + 1 <= 53), and (t + m) - m rounds t to the last digit of m. While a running sum stays in
one binade, its last digit does too: then the chain runs on m + s, where an addition of binary64
*is* the addition of the format. A tile is tried so first, and checked when it is done: each sum
lies inside the binade, or is exact. What fails is computed again, every addition rounded.

Nothing else is known here: sums beyond the largest number, infinities and NaN are left to the
caller. Tiny sums are exact, so there is no underflow.

Source    docs/semantics.md §4; Figueroa 1995 (double rounding); Sterbenz 1974.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit

from fpsim.kernels.by_operation.rows import TILE, clear_tile, put_tile
from fpsim.kernels.compiling import INLINE, compiled
from fpsim.kernels.lanes.formula import formula
from fpsim.kernels.lanes.memory import load_float, pointer, room, store_float
from fpsim.kernels.lanes.vectors import (
    U64,
    LaneKind,
    Lanes,
    any_lane,
    as_bits,
    as_float,
    or_lanes,
    select,
    sign_like,
    splat,
    umax,
    umin,
)

__all__ = ["FEW", "MANY", "ChainLimits", "few_chains", "many_chains"]

#: Outputs side by side: where there are few, short vectors take less of the processor.
FEW, MANY = 2, 8

_PAIR = LaneKind(Lanes("u", 64, FEW))

_FIELD, _HIDDEN = 0x7FF0000000000000, 1 << 52

#: After so many tiles in a row that left their binade, most are not tried.
_MOST_MISSES = 3


class ChainLimits(NamedTuple):
    """What a kernel knows of a format, as bits of binary64.

    lift       added to the exponent field of t: the number m that rounds t.
    largest    the largest number.
    """

    lift: int
    largest: int


@formula
def _nearest(t, lift):
    """t rounded to the format; a zero keeps its sign."""
    bits = as_bits(t)
    m = as_float((bits & _FIELD) + lift)
    return as_float(as_bits((t + m) - m) | (bits & sign_like(bits)))


@formula
def _negated(x):
    bits = as_bits(x)
    return as_float(bits ^ sign_like(bits))


@formula
def _size(x):
    bits = as_bits(x)
    return bits & ~sign_like(bits)


@formula
def _lost(x, y, r):
    """Not zero where r, the rounded sum, is not x + y: r less the larger one is exact."""
    return _size((r - x) - y) | _size((r - y) - x)


@formula
def _add(x, y, lift, lost, top):
    """The rounded sum; what was lost so far, and the largest magnitude so far."""
    r = _nearest(x + y, lift)
    return r, lost | _lost(x, y, r), umax(top, _size(r))


@formula
def _binade(s, lift, largest):
    """The number whose last digit is that of s, and the bounds of sums that it rounds."""
    low = as_bits(s) & _FIELD
    none = low ^ low
    high = umin(low + _HIDDEN, none + largest)
    return as_float(low + lift), low, high


@formula
def _above(r, low):
    """How far |r| is above the first number that is larger than the bound, wrapping below it."""
    return _size(r) - low - 1


@formula
def _strayed(r, rest, low, high):
    """All ones where a sum has left its binade: upward, or downward with digits lost.

    rest    r less the exact sum. On the lower bound nothing is wrong while |r| is not the larger.
    """
    none, size, sign = low ^ low, _size(r), sign_like(low)
    outward = ((as_bits(r) ^ as_bits(rest)) & sign) != 0
    wrong = (size < low) | ((size == low) & ~outward)
    wrong = (size > high) | (wrong & (_size(rest) != 0))
    return select(wrong, ~none, none)


@formula
def _minus_zero(s):
    """All ones where s is -0, which a shifted sum does not show."""
    bits = as_bits(s)
    none = bits ^ bits
    return select(bits == sign_like(bits), ~none, none)


@formula
def _shifted_kahan(shifted, c, x, lift):
    """A compensated step of a chain in its binade: t - s and (t - s) - y are exact.

    Both are numbers of the format: t and s share a binade, and nothing is lost that y has not.
    The sign of a zero y shows nowhere.
    """
    y = x - c
    m = as_float((as_bits(y) & _FIELD) + lift)
    y = (y + m) - m
    t = shifted + y
    return t, (t - shifted) - y


@formula
def _checked(before, after, x, offset, low, high):
    """What the additions of a chain have lost, and which have left their binade."""
    rest = (after - before) - x
    return _size(rest), _strayed(after - offset, rest, low, high)


@formula
def _checked_kahan(before, after, c, c_after, x, offset, low, high):
    """The same of compensated steps: y follows from what it has led to."""
    y = (after - before) - c_after
    lost = _lost(x, _negated(c), y) | _size(c_after)
    return lost, _strayed(after - offset, c_after, low, high)


@formula
def _kahan(s, c, x, lift, lost, top):
    """A compensated step, every operation rounded."""
    y, lost, top = _add(x, _negated(c), lift, lost, top)
    t, lost, top = _add(s, y, lift, lost, top)
    d, lost, top = _add(t, _negated(s), lift, lost, top)
    c, lost, top = _add(d, _negated(y), lift, lost, top)
    return t, c, lost, top


@njit(**INLINE)
def _try_binade(tile, rooms, first, m, lanes, compensated, s, c, inexact, limits, wide):
    """The chains over elements first … m - 1 of a tile, as if they stayed in their binades.

    Every sum is stored, and looked at eight at a time when the chain is done; more closely where
    not all sums are known to be `inexact`, or one is on or below the lower bound.
    Returns s, c, what was lost, and what is not zero if a chain has left its binade.
    """
    sums, carries, spare = rooms
    offset, low, high = _binade(s, limits[0], limits[1])
    none = low ^ low
    shifted, bad = offset + s, or_lanes(_minus_zero(s))
    store_float(sums, first * lanes, as_bits(shifted))
    store_float(carries, first * lanes, as_bits(c))
    if compensated:
        for k in range(first, m):
            shifted, c = _shifted_kahan(shifted, c, load_float(tile, k * lanes, none), limits[0])
            store_float(sums, (k + 1) * lanes, as_bits(shifted))
            store_float(carries, (k + 1) * lanes, as_bits(c))
    else:
        for k in range(first, m):
            shifted = shifted + load_float(tile, k * lanes, none)
            store_float(sums, (k + 1) * lanes, as_bits(shifted))
    # Steps behind the last one that lose nothing: x is c, then y, the next c and x are 0.
    store_float(tile, m * lanes, as_bits(c))
    for k in range(m, m + MANY // lanes - 1):
        store_float(tile, (k + 1) * lanes, none)
        store_float(sums, (k + 1) * lanes, as_bits(shifted))
        store_float(carries, (k + 1) * lanes, none)
    for i in range(0, MANY, lanes):
        store_float(spare, i, as_bits(offset))
        store_float(spare, MANY + i, low)
        store_float(spare, 2 * MANY + i, high)
    begin, end = first * lanes, m * lanes
    if not inexact or _may_stray(sums, spare, begin + lanes, end + lanes, wide):
        lost, strayed = _look(tile, rooms, begin, end, lanes, compensated, wide)
        bad |= or_lanes(strayed)
        store_float(spare, 0, lost)
    else:
        store_float(spare, 0, wide)
    lost = none
    for i in range(0, MANY, lanes):
        lost = lost | as_bits(load_float(spare, i, none))
    return shifted - offset, c, lost, bad


@njit(**INLINE)
def _may_stray(sums, spare, first, last, wide):
    """Whether a sum does not lie inside its binade."""
    offset, low = load_float(spare, 0, wide), as_bits(load_float(spare, MANY, wide))
    inside = as_bits(load_float(spare, 2 * MANY, wide)) - low
    above = wide
    for i in range(first, last, MANY):
        above = umax(above, _above(load_float(sums, i, wide) - offset, low))
    return any_lane(above >= inside)


@njit(**INLINE)
def _look(tile, rooms, first, last, lanes, compensated, wide):
    """What a chain in its binade has lost, and where it has left it."""
    sums, carries, spare = rooms
    offset = load_float(spare, 0, wide)
    low = as_bits(load_float(spare, MANY, wide))
    high = as_bits(load_float(spare, 2 * MANY, wide))
    lost = strayed = wide
    for i in range(first, last, MANY):
        before, after = load_float(sums, i, wide), load_float(sums, i + lanes, wide)
        x = load_float(tile, i, wide)
        if compensated:
            c, next_c = load_float(carries, i, wide), load_float(carries, i + lanes, wide)
            less, out = _checked_kahan(before, after, c, next_c, x, offset, low, high)
        else:
            less, out = _checked(before, after, x, offset, low, high)
        lost, strayed = lost | less, strayed | out
    return lost, strayed


@njit(**INLINE)
def _rounded(tile, first, m, lanes, compensated, s, c, lost, top, lift):
    """The same, every operation rounded."""
    if compensated:
        for k in range(first, m):
            s, c, lost, top = _kahan(s, c, load_float(tile, k * lanes, lost), lift, lost, top)
    else:
        for k in range(first, m):
            s, lost, top = _add(s, load_float(tile, k * lanes, lost), lift, lost, top)
    return s, c, lost, top


@formula
def _beyond(top, largest):
    """Not zero where a magnitude was larger than the largest number: infinities and NaN are."""
    none = top ^ top
    return select(top > largest, ~none, none)


@njit(**INLINE)
def _without_row(few, spare, none):
    """Lanes that have no row, marked as if they had lost digits."""
    for i in range(MANY):
        spare[i] = 0.0 if i < few else 1.0
    return as_bits(load_float(spare, 0, none))


@njit(**INLINE)
def _chains(source, shape, steps, compensated, limits, sums, inexact, lanes, none):
    """What `many_chains` says, `lanes` rows side by side."""
    rows, n = shape
    output_step, step = steps
    numbers = limits[0], limits[1]
    data, tile = pointer(source), room(source, 544)
    rooms = room(sums, 544), room(sums, 544), room(sums, 24)
    result, marks = room(sums, 8), room(sums, 8)
    strange, wide = none, splat(np.uint64(0), U64)
    for g in range(0, rows, lanes):
        few = min(lanes, rows - g)
        clear_tile(tile, lanes)
        s = load_float(tile, 0, none)
        c, lost, top = s, _without_row(few, result, none), none
        misses, wait, all_inexact = 0, 0, False
        for begin in range(0, n, TILE):
            m = min(TILE, n - begin)
            for lane in range(few):
                start = (g + lane) * output_step + begin * step
                put_tile(tile, lanes, lane, data, start, step, m)
            first = 0
            if begin == 0:
                s, first = load_float(tile, 0, none), 1
            if wait == 0:
                s1, c1, less, strayed = _try_binade(
                    tile, rooms, first, m, lanes, compensated, s, c, all_inexact, numbers, wide
                )
                if strayed == 0:
                    s, c, lost, misses = s1, c1, lost | less, 0
                    all_inexact = all_inexact or not any_lane(lost == 0)
                    continue
                misses = min(misses + 1, _MOST_MISSES)
                wait = 1 << misses
            wait -= 1
            s, c, lost, top = _rounded(
                tile, first, m, lanes, compensated, s, c, lost, top, numbers[0]
            )
        strange = strange | _beyond(top, numbers[1])
        store_float(result, 0, as_bits(s))
        store_float(marks, 0, lost)
        for lane in range(few):
            sums[g + lane] = result[lane]
            inexact[g + lane] = marks[lane] != 0
    return np.int64(or_lanes(strange) != 0)


@compiled
def many_chains(source, shape, steps, compensated, limits, sums, inexact):
    """Sums of rows to nearest even, MANY of them side by side.

    source    array that begins with the first element of the first row; its size does not matter.
    shape     rows, elements of each: two or more; steps from row to row, from element to element.
    limits    `ChainLimits`, uint64.
    sums, inexact    (rows,): binary64, uint8.
    Returns 0, or else another number: these are not the sums.
    """
    none = splat(np.uint64(0), U64)
    return _chains(source, shape, steps, compensated, limits, sums, inexact, MANY, none)


@compiled
def few_chains(source, shape, steps, compensated, limits, sums, inexact):
    """The same, FEW of them side by side."""
    none = splat(np.uint64(0), _PAIR)
    return _chains(source, shape, steps, compensated, limits, sums, inexact, FEW, none)
