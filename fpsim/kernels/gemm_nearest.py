"""Products rounded to nearest even after every multiplication and addition, in binary32 lanes.

For formats of at most 11 digits: a product is exact in binary32, and a sum that is rounded to 24
digits first is rounded to p digits as the exact one would be, since 24 >= 2 p + 2. Adding and
subtracting 1.5 * 2**(24 - p + e), e the exponent of the number, rounds it to p digits; products
look at the smallest normal exponent at least, sums below that are exact.

The caller guarantees that nothing is infinite or NaN, overflows or leaves binary32's normal range
(see `fpsim.rounded`); flags are not looked at.

Source    docs/semantics.md §4; Figueroa 1995 (double rounding is innocuous).
"""

# mypy: no-check-untyped-defs
from __future__ import annotations

import numpy as np
from numba import njit

from fpsim.kernels.compiling import INLINE, compiled
from fpsim.kernels.gemm_fused import COLUMNS, ROWS, keep_wide
from fpsim.kernels.lane_math import spread_item
from fpsim.kernels.lanes import F32, as_bits, as_float, splat, umax
from fpsim.kernels.memory import load_float, pointer, room, store_float

__all__ = ["nearest_matmul"]

_FIELD, _SIGN = 0x7F800000, 0x80000000

#: Operand elements of a group of rows (4 bytes each).
_GROUP = 1 << 16


@njit(**INLINE)  # type: ignore[misc]
def _round(x, floor, step):  # type: ignore[no-untyped-def]
    bits = as_bits(x)
    magic = as_float(umax(bits & _FIELD, floor) + step)
    return as_float(as_bits((x + magic) - magic) | (bits & _SIGN))


@njit(**INLINE)  # type: ignore[misc]
def _round_sum(x, step):  # type: ignore[no-untyped-def]
    bits = as_bits(x)
    magic = as_float((bits & _FIELD) + step)
    return as_float(as_bits((x + magic) - magic) | (bits & _SIGN))


@compiled
def nearest_matmul(a, b, out, precision, emin):  # type: ignore[no-untyped-def]
    """out (M, N) = the product of a (tiles, K, 4) and b (panels, K, 32), all binary32."""
    depth = a.shape[1]
    rows, columns = out.shape
    pa, pb, po = pointer(a.reshape(-1)), pointer(b.reshape(-1)), pointer(out.reshape(-1))
    tile = room(out, 128)
    zero = as_bits(splat(0.0, F32))
    floor = zero + np.uint32((emin + 127) << 23)
    step = zero + np.uint32(((24 - precision) << 23) | 0x400000)
    group = max(1, _GROUP // (depth * ROWS))
    for turn in range((a.shape[0] + group - 1) // group * b.shape[0]):
        panel, begin = turn % b.shape[0], turn // b.shape[0] * group
        for block in range(begin, min(begin + group, a.shape[0])):
            i, j = block * depth * ROWS, panel * depth * COLUMNS
            u, v = load_float(pb, j, zero), load_float(pb, j + 16, zero)
            a0, a1 = spread_item(pa, i), spread_item(pa, i + 1)
            a2, a3 = spread_item(pa, i + 2), spread_item(pa, i + 3)
            c0, d0 = _round(a0 * u, floor, step), _round(a0 * v, floor, step)
            c1, d1 = _round(a1 * u, floor, step), _round(a1 * v, floor, step)
            c2, d2 = _round(a2 * u, floor, step), _round(a2 * v, floor, step)
            c3, d3 = _round(a3 * u, floor, step), _round(a3 * v, floor, step)
            for k in range(1, depth):
                x, y = i + k * ROWS, j + k * COLUMNS
                u, v = load_float(pb, y, zero), load_float(pb, y + 16, zero)
                a0, a1 = spread_item(pa, x), spread_item(pa, x + 1)
                a2, a3 = spread_item(pa, x + 2), spread_item(pa, x + 3)
                c0 = _round_sum(c0 + _round(a0 * u, floor, step), step)
                c1 = _round_sum(c1 + _round(a1 * u, floor, step), step)
                c2 = _round_sum(c2 + _round(a2 * u, floor, step), step)
                c3 = _round_sum(c3 + _round(a3 * u, floor, step), step)
                d0 = _round_sum(d0 + _round(a0 * v, floor, step), step)
                d1 = _round_sum(d1 + _round(a1 * v, floor, step), step)
                d2 = _round_sum(d2 + _round(a2 * v, floor, step), step)
                d3 = _round_sum(d3 + _round(a3 * v, floor, step), step)
            store_float(tile, 0, as_bits(c0))
            store_float(tile, 16, as_bits(d0))
            store_float(tile, 32, as_bits(c1))
            store_float(tile, 48, as_bits(d1))
            store_float(tile, 64, as_bits(c2))
            store_float(tile, 80, as_bits(d2))
            store_float(tile, 96, as_bits(c3))
            store_float(tile, 112, as_bits(d3))
            m, n = min(ROWS, rows - block * ROWS), min(COLUMNS, columns - panel * COLUMNS)
            first = block * ROWS * columns + panel * COLUMNS
            keep_wide(po, tile, first, columns, m, n, zero)
    return 0
