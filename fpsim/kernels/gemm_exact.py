"""Exact units in binary64 lanes: sixteen outputs side by side, four rows at a time.

Products of short significands are exact in binary64, and mostly their sums are too. The processor
says so itself: its sticky inexact flag, lowered before a stretch of a tile and read after it, is
proof that every addition there was exact. The rounding to binary32 goes by integers, which raise no
flag. Where the flag is up, the stretch is done again in two limbs that hold every digit; after two
such failures the tiles go there directly and try the short way every sixteenth time.

The caller guarantees finite operands and that `unit` fits the data (see `fpsim.engine_exact`).

Source    docs/semantics.md §5; Dekker 1971 (splitting at a fixed place); Boldo & Melquiond 2008.
"""

# mypy: no-check-untyped-defs
from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple

import numpy as np
from numba import njit

from fpsim.kernels.compiling import INLINE, compiled
from fpsim.kernels.exact import sum_to_odd
from fpsim.kernels.gemm_window import ROWS, fetch, keep, stored
from fpsim.kernels.lane_math import clear_inexact, fused, inexact, spread_item
from fpsim.kernels.lanes import F64, any_lane, as_bits, as_float, or_lanes, select, splat
from fpsim.kernels.memory import copy_item, load_float, pointer, room, store_byte, store_float
from fpsim.kernels.rule import spread

__all__ = ["COLUMNS", "ExactVariant", "exact_kernel"]

#: Columns of a tile: two panels of eight.
COLUMNS = 16

#: Terms of a stretch, at most.
STRETCH = 256

#: Operand elements of a group of rows (8 bytes each).
_GROUP = 1 << 15


class ExactVariant(NamedTuple):
    """What is compiled in."""

    terms: int
    calls: int
    store: int
    mode: int
    low: bool
    residual: int
    flagged: bool  # the processor has an inexact flag
    has_fma: bool


@njit(**INLINE)  # type: ignore[misc]
def _nearest_binary32(bits):  # type: ignore[no-untyped-def]
    """binary64 bits rounded to 24 digits, ties to even, without an arithmetic flag."""
    odd = (bits >> 29) & 1
    return as_float((bits + (odd + ((1 << 28) - 1))) & ~np.uint64((1 << 29) - 1))


@njit(**INLINE)  # type: ignore[misc]
def _short(terms, has_fma, acc, a, i, b, j):  # type: ignore[no-untyped-def]
    """One call, right where every addition is exact."""
    for t in range(terms):
        x, y = spread_item(a, i + ROWS * t), load_float(b, j + 8 * t, acc)
        acc = fused(x, y, acc) if has_fma else x * y + acc
    return _nearest_binary32(as_bits(acc))


@njit(**INLINE)  # type: ignore[misc]
def _long(terms, has_fma, acc, a, i, b, j, unit):  # type: ignore[no-untyped-def]
    """One call in two limbs: whole multiples of a unit, and what is left."""
    high = acc + unit
    low = acc - (high - unit)
    for t in range(terms):
        x, y = spread_item(a, i + ROWS * t), load_float(b, j + 8 * t, acc)
        if has_fma:
            after = fused(x, y, high)
            low = low + fused(x, y, high - after)
        else:
            after = high + x * y
            low = low + (x * y - (after - high))
        high = after
    total = _nearest_binary32(sum_to_odd(high - unit, low, 64))
    finite = (as_bits(acc) & 0x7FF0000000000000) != 0x7FF0000000000000
    return select(finite, total, acc)


@njit(**INLINE)  # type: ignore[misc]
def _stretch(what, long, c, marks, pa, i, pb, j0, j1, n, pw, w, stride, columns, m, unit, rule):  # type: ignore[no-untyped-def]
    """Products of n terms added to a tile, in the short way or the long; the tile and its flags."""
    terms, calls, storing, has_fma = what[0], what[1], what[2], what[3]
    how = (what[4], what[5], what[6])
    c0, c1, c2, c3, d0, d1, d2, d3 = c
    g0, g1, g2, g3, h0, h1, h2, h3 = marks
    for k in range(0, n, terms * calls):
        for q in range(k, k + terms * calls, terms):
            x, y, z = i + q * ROWS, j0 + q * 8, j1 + q * 8
            if long:
                c0 = _long(terms, has_fma, c0, pa, x, pb, y, unit)
                c1 = _long(terms, has_fma, c1, pa, x + 1, pb, y, unit)
                c2 = _long(terms, has_fma, c2, pa, x + 2, pb, y, unit)
                c3 = _long(terms, has_fma, c3, pa, x + 3, pb, y, unit)
                d0 = _long(terms, has_fma, d0, pa, x, pb, z, unit)
                d1 = _long(terms, has_fma, d1, pa, x + 1, pb, z, unit)
                d2 = _long(terms, has_fma, d2, pa, x + 2, pb, z, unit)
                d3 = _long(terms, has_fma, d3, pa, x + 3, pb, z, unit)
            else:
                c0 = _short(terms, has_fma, c0, pa, x, pb, y)
                c1 = _short(terms, has_fma, c1, pa, x + 1, pb, y)
                c2 = _short(terms, has_fma, c2, pa, x + 2, pb, y)
                c3 = _short(terms, has_fma, c3, pa, x + 3, pb, y)
                d0 = _short(terms, has_fma, d0, pa, x, pb, z)
                d1 = _short(terms, has_fma, d1, pa, x + 1, pb, z)
                d2 = _short(terms, has_fma, d2, pa, x + 2, pb, z)
                d3 = _short(terms, has_fma, d3, pa, x + 3, pb, z)
        if storing:
            c0, f0 = stored(how, c0, pw, w, rule)
            c1, f1 = stored(how, c1, pw, w + min(1, m - 1) * columns, rule)
            c2, f2 = stored(how, c2, pw, w + min(2, m - 1) * columns, rule)
            c3, f3 = stored(how, c3, pw, w + min(3, m - 1) * columns, rule)
            g0, g1, g2, g3 = g0 | f0, g1 | f1, g2 | f2, g3 | f3
            d0, f0 = stored(how, d0, pw, w + 8, rule)
            d1, f1 = stored(how, d1, pw, w + 8 + min(1, m - 1) * columns, rule)
            d2, f2 = stored(how, d2, pw, w + 8 + min(2, m - 1) * columns, rule)
            d3, f3 = stored(how, d3, pw, w + 8 + min(3, m - 1) * columns, rule)
            h0, h1, h2, h3 = h0 | f0, h1 | f1, h2 | f2, h3 | f3
            w += stride
    return (c0, c1, c2, c3, d0, d1, d2, d3), (g0, g1, g2, g3, h0, h1, h2, h3)


@njit(**INLINE)  # type: ignore[misc]
def _put(left, right, c):  # type: ignore[no-untyped-def]
    """A tile into memory, four rows of eight on either side."""
    for side in range(2):
        place = right if side else left
        store_float(place, 0, as_bits(c[4] if side else c[0]))
        store_float(place, 8, as_bits(c[5] if side else c[1]))
        store_float(place, 16, as_bits(c[6] if side else c[2]))
        store_float(place, 24, as_bits(c[7] if side else c[3]))


@cache
def exact_kernel(variant: ExactVariant) -> Any:
    """The compiled product of packed operands.

    Call    flags = loop(a, b, out, marks, words, constants, unit)
            a (tiles, K, 4), b (panels, K, 8) binary64, panels even in number; out (M, N) binary32
            holds the partials and receives the result, marks (M, N) its flags; words (places, M * N
            and 32 more); unit 1.5 * 2**52 units of the higher limb
    """
    TERMS, CALLS, STORE, MODE, LOW, RESIDUAL, FLAGGED, FMA = variant
    PASS = TERMS * CALLS

    @compiled
    def loop(a, b, out, marks, words, constants, unit):  # type: ignore[no-untyped-def]
        what = (TERMS, CALLS, STORE, FMA, MODE, LOW, RESIDUAL)
        rule = spread(constants)
        none = rule.drop ^ rule.drop
        clean = (none, none, none, none, none, none, none, none)
        raised = none
        depth = a.shape[1]
        rows, columns = out.shape
        pa, pb = pointer(a.reshape(-1)), pointer(b.reshape(-1))
        po, pm, pw = (
            pointer(out.reshape(-1)), pointer(marks.reshape(-1)), pointer(words.reshape(-1)),
        )  # fmt: skip
        units = splat(unit, F64)
        # Results before a stretch and after it: a store that the reading of the flag cannot pass.
        left, right, tile_marks = room(out, 32), room(out, 32), room(marks, 64)
        group = max(1, _GROUP // (depth * ROWS))
        stretch_length = max(1, STRETCH // PASS) * PASS
        failures = 0 if FLAGGED else 1 << 30
        turns = 0
        panels = b.shape[0] // 2
        for turn in range((a.shape[0] + group - 1) // group * panels):
            panel, begin = turn % panels, turn // panels * group
            for block in range(begin, min(begin + group, a.shape[0])):
                i, j0 = block * depth * ROWS, 2 * panel * depth * 8
                j1 = j0 + depth * 8
                first = block * ROWS * columns + panel * COLUMNS
                m = min(ROWS, rows - block * ROWS)
                n = min(8, columns - panel * COLUMNS)
                n1 = min(8, columns - panel * COLUMNS - 8)
                fetch(left, po, first, columns, m, n, none)
                fetch(right, po, first + 8, columns, m, n1, none)
                seen = clean
                for k in range(0, depth, stretch_length):
                    length = min(stretch_length, depth - k)
                    # A start of -0 would survive products of -0; a sum of zero is +0.
                    c = (
                        load_float(left, 0, none) + 0.0, load_float(left, 8, none) + 0.0,
                        load_float(left, 16, none) + 0.0, load_float(left, 24, none) + 0.0,
                        load_float(right, 0, none) + 0.0, load_float(right, 8, none) + 0.0,
                        load_float(right, 16, none) + 0.0, load_float(right, 24, none) + 0.0,
                    )  # fmt: skip
                    w = k // PASS * words.shape[1] + first
                    x, y, z = i + k * ROWS, j0 + k * 8, j1 + k * 8
                    turns += 1
                    long = FLAGGED == False or (failures >= 2 and turns % 16 != 0)  # noqa: E712
                    if not long:
                        clear_inexact()
                        done, found = _stretch(
                            what, False, c, seen, pa, x, pb, y, z, length, pw, w, words.shape[1],
                            columns, m, units, rule,
                        )  # fmt: skip
                        _put(left, right, done)
                        long = inexact()
                        failures = failures + 1 if long else 0
                        if not long:
                            seen = found
                    if long:
                        done, seen = _stretch(
                            what, True, c, seen, pa, x, pb, y, z, length, pw, w, words.shape[1],
                            columns, m, units, rule,
                        )  # fmt: skip
                        _put(left, right, done)
                keep(po, left, first, columns, m, n, none)
                keep(po, right, first + 8, columns, m, n1, none)
                if STORE:
                    merged = seen[0] | seen[1] | seen[2] | seen[3]
                    merged = merged | seen[4] | seen[5] | seen[6] | seen[7]
                    if any_lane(merged != 0):
                        raised = raised | merged
                        store_byte(tile_marks, 0, seen[0])
                        store_byte(tile_marks, 8, seen[1])
                        store_byte(tile_marks, 16, seen[2])
                        store_byte(tile_marks, 24, seen[3])
                        store_byte(tile_marks, 32, seen[4])
                        store_byte(tile_marks, 40, seen[5])
                        store_byte(tile_marks, 48, seen[6])
                        store_byte(tile_marks, 56, seen[7])
                        for r in range(m):
                            for col in range(n):
                                copy_item(pm, first + r * columns + col, tile_marks, r * 8 + col)
                            for col in range(n1):
                                copy_item(
                                    pm, first + 8 + r * columns + col, tile_marks, 32 + r * 8 + col
                                )
        return np.int64(or_lanes(raised))

    return loop
