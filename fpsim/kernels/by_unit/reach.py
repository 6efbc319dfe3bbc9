"""The smallest and the largest magnitudes of the operands of a product.

Magnitudes of binary32 are ordered as their codes. A zero less one is the largest code, so zeros
never are the smallest.
"""

# mypy: no-check-untyped-defs
from __future__ import annotations

import numpy as np
from numba import njit

from fpsim.kernels.compiling import INLINE, compiled
from fpsim.kernels.lanes.memory import load, store
from fpsim.kernels.lanes.vectors import U32, splat, umax, umin

__all__ = ["extents"]


@njit(**INLINE)
def _extent(codes, ends, at):
    """Codes of the least magnitude that is not zero, else infinity, and of the largest one."""
    most = splat(np.uint32(0), U32)
    least = most - 1
    vectors = codes.shape[0] // 16 * 16
    for i in range(0, vectors, 16):
        magnitude = load(codes, i) & 0x7FFFFFFF
        least, most = umin(least, magnitude - 1), umax(most, magnitude)
    low, high = np.uint32(0xFFFFFFFF), np.uint32(0)
    lanes = np.empty(32, np.uint32)
    store(lanes, 0, least)
    store(lanes, 16, most)
    for i in range(16):
        low, high = min(low, lanes[i]), max(high, lanes[16 + i])
    for i in range(vectors, codes.shape[0]):
        magnitude = codes[i] & np.uint32(0x7FFFFFFF)
        low, high = min(low, np.uint32(magnitude - np.uint32(1))), max(high, magnitude)
    ends[at] = min(low, np.uint32(0x7F7FFFFF)) + np.uint32(1)
    ends[at + 1] = high


@compiled
def extents(a, b, start):
    """Of binary32 codes (n,), (m,), (k,): least a, most a, least b, most b, least and most start.

    A least is infinity where all are zero; a most is infinity or NaN where one of them is.
    """
    ends = np.empty(6, np.uint32)
    _extent(a, ends, 0)
    _extent(b, ends, 2)
    _extent(start, ends, 4)
    x = ends.view(np.float32)
    return (
        np.float64(x[0]), np.float64(x[1]), np.float64(x[2]), np.float64(x[3]), np.float64(x[4]),
        np.float64(x[5]),
    )
