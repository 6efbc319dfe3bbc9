"""Chains of fused multiply-adds in binary32: one rounding per term, ascending.

Sixteen outputs side by side in two vectors, four rows at a time. Where the processor has no fused
multiply-add, product and sum are made in binary64, rounded to odd, and rounded once from there.

Source    docs/semantics.md §5; Boldo & Melquiond 2008 (round to odd).
"""

# mypy: no-check-untyped-defs
from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
from numba import njit

from fpsim.kernels.compiling import INLINE, compiled
from fpsim.kernels.exact import sum_to_odd
from fpsim.kernels.lane_math import fused, spread_item
from fpsim.kernels.lanes import (
    F32,
    any_lane,
    as_bits,
    as_float,
    concat,
    high_half,
    low_half,
    narrow,
    splat,
    widen,
)
from fpsim.kernels.memory import copy_item, load_float, pointer, room, store_float

__all__ = ["COLUMNS", "ROWS", "fused_kernel", "keep_wide"]

ROWS, COLUMNS = 4, 32

#: Operand elements of a group of rows (4 bytes each).
_GROUP = 1 << 16


@njit(**INLINE)  # type: ignore[misc]
def _to_odd(x, y, acc):  # type: ignore[no-untyped-def]
    return narrow(as_float(sum_to_odd(widen(x) * widen(y), widen(acc), 64)))


@njit(**INLINE)  # type: ignore[misc]
def _add(has_fma, x, y, acc):  # type: ignore[no-untyped-def]
    """x * y + acc, rounded once."""
    if has_fma:
        return fused(x, y, acc)
    return concat(
        _to_odd(low_half(x), low_half(y), low_half(acc)),
        _to_odd(high_half(x), high_half(y), high_half(acc)),
    )


@njit(**INLINE)  # type: ignore[misc]
def _suspect(seen, acc, limit):  # type: ignore[no-untyped-def]
    """Sums that a policy for tiny results or the sign of zero may change: 1 … limit, and -0."""
    bits = as_bits(acc)
    return seen | ((bits & 0x7FFFFFFF) - 1 < limit) | (bits == 0x80000000)


@njit(**INLINE)  # type: ignore[misc]
def _fetch(tile, array, first, stride, m, n, zero):  # type: ignore[no-untyped-def]
    for r in range(ROWS):
        for c in range(0, COLUMNS, 16):
            if r < m and n >= c + 16:
                x = load_float(array, first + r * stride + c, zero)
                store_float(tile, r * COLUMNS + c, as_bits(x))
                continue
            store_float(tile, r * COLUMNS + c, zero)
            for i in range(c, min(n, c + 16) if r < m else 0):
                copy_item(tile, r * COLUMNS + i, array, first + r * stride + i)


@njit(**INLINE)  # type: ignore[misc]
def keep_wide(array, tile, first, stride, m, n, zero):  # type: ignore[no-untyped-def]
    for r in range(m):
        for c in range(0, COLUMNS, 16):
            if n >= c + 16:
                x = load_float(tile, r * COLUMNS + c, zero)
                store_float(array, first + r * stride + c, as_bits(x))
                continue
            for i in range(c, min(n, c + 16)):
                copy_item(array, first + r * stride + i, tile, r * COLUMNS + i)


@cache
def fused_kernel(has_fma: bool, checked: bool) -> Any:
    """The compiled product of packed operands.

    Call    doubt = loop(a, b, out, limit): a (tiles, K, 4), b (panels, K, 32) binary32, out (M, N)
            holds the partials and receives the result; doubt, where `checked`: some sum was a
            number of magnitude up to the code `limit`, or -0
    """
    FMA, CHECKED = has_fma, checked

    @compiled
    def loop(a, b, out, limit):  # type: ignore[no-untyped-def]
        depth = a.shape[1]
        rows, columns = out.shape
        pa, pb, po = pointer(a.reshape(-1)), pointer(b.reshape(-1)), pointer(out.reshape(-1))
        tile = room(out, 128)
        zero = as_bits(splat(0.0, F32))
        top = zero + np.uint32(limit)
        seen = zero != zero
        group = max(1, _GROUP // (depth * ROWS))
        for turn in range((a.shape[0] + group - 1) // group * b.shape[0]):
            panel, begin = turn % b.shape[0], turn // b.shape[0] * group
            for block in range(begin, min(begin + group, a.shape[0])):
                i, j = block * depth * ROWS, panel * depth * COLUMNS
                first = block * ROWS * columns + panel * COLUMNS
                m, n = min(ROWS, rows - block * ROWS), min(COLUMNS, columns - panel * COLUMNS)
                _fetch(tile, po, first, columns, m, n, zero)
                c0, d0 = load_float(tile, 0, zero) + 0.0, load_float(tile, 16, zero) + 0.0
                c1, d1 = load_float(tile, 32, zero) + 0.0, load_float(tile, 48, zero) + 0.0
                c2, d2 = load_float(tile, 64, zero) + 0.0, load_float(tile, 80, zero) + 0.0
                c3, d3 = load_float(tile, 96, zero) + 0.0, load_float(tile, 112, zero) + 0.0
                for k in range(depth):
                    x, y = i + k * ROWS, j + k * COLUMNS
                    u, v = load_float(pb, y, zero), load_float(pb, y + 16, zero)
                    a0, a1 = spread_item(pa, x), spread_item(pa, x + 1)
                    a2, a3 = spread_item(pa, x + 2), spread_item(pa, x + 3)
                    c0, d0 = _add(FMA, a0, u, c0), _add(FMA, a0, v, d0)
                    c1, d1 = _add(FMA, a1, u, c1), _add(FMA, a1, v, d1)
                    c2, d2 = _add(FMA, a2, u, c2), _add(FMA, a2, v, d2)
                    c3, d3 = _add(FMA, a3, u, c3), _add(FMA, a3, v, d3)
                    if CHECKED:
                        seen = _suspect(_suspect(seen, c0, top), d0, top)
                        seen = _suspect(_suspect(seen, c1, top), d1, top)
                        seen = _suspect(_suspect(seen, c2, top), d2, top)
                        seen = _suspect(_suspect(seen, c3, top), d3, top)
                store_float(tile, 0, as_bits(c0))
                store_float(tile, 16, as_bits(d0))
                store_float(tile, 32, as_bits(c1))
                store_float(tile, 48, as_bits(d1))
                store_float(tile, 64, as_bits(c2))
                store_float(tile, 80, as_bits(d2))
                store_float(tile, 96, as_bits(c3))
                store_float(tile, 112, as_bits(d3))
                keep_wide(po, tile, first, columns, m, n, zero)
        return any_lane(seen)

    return loop
