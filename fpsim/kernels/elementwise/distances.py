"""Squares of the distances between three results, in one pass over their elements."""

from __future__ import annotations

import numpy as np
from numba import njit

from fpsim.kernels.compiling import INLINE, compiled

__all__ = ["sum_squares"]

#: Partial sums of each total, a number of its own so that bits do not depend on the vectors.
_LANES = 64


@njit(**INLINE)
def _add_block(x, y, z, sizes, firsts, seconds, both):
    for i in range(x.shape[0]):
        near, far = x[i] - y[i], y[i] - z[i]
        total = near + far
        sizes[i] += z[i] * z[i]
        firsts[i] += near * near
        seconds[i] += far * far
        both[i] += total * total


@compiled
def sum_squares(x, y, z, sums):
    """sums = those of z², (x - y)², (y - z)² and ((x - y) + (y - z))²; of flat arrays."""
    lanes = np.zeros((4, _LANES))
    for start in range(0, x.shape[0], _LANES):
        end = start + _LANES
        _add_block(
            x[start:end], y[start:end], z[start:end], lanes[0], lanes[1], lanes[2], lanes[3])
    for k in range(4):
        total = 0.0
        for lane in range(_LANES):
            total += lanes[k, lane]
        sums[k] = total
