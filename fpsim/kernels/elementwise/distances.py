"""Squares of the distances between three results, in one pass over their elements.

The results of an operation in binary64 can be computed in the same pass: of the operands as they
are, and as they would be in binary64.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from fpsim.kernels.compiling import INLINE, compiled

__all__ = ["ADD", "DIVIDE", "MULTIPLY", "SUBTRACT", "sum_squares", "sum_squares_of"]

#: Operations that are computed in the same pass.
ADD, SUBTRACT, MULTIPLY, DIVIDE = range(4)

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


@njit(**INLINE)
def _add_lanes(lanes, sums):
    for k in range(4):
        total = 0.0
        for lane in range(_LANES):
            total += lanes[k, lane]
        sums[k] = total


@compiled
def sum_squares(x, y, z, sums):
    """sums = those of z², (x - y)², (y - z)² and ((x - y) + (y - z))²; of flat arrays."""
    lanes = np.zeros((4, _LANES))
    for start in range(0, x.shape[0], _LANES):
        end = start + _LANES
        _add_block(
            x[start:end], y[start:end], z[start:end], lanes[0], lanes[1], lanes[2], lanes[3])
    _add_lanes(lanes, sums)


@njit(**INLINE)
def _take(block, x, start):
    """A block of an operand; of one with one element, that element."""
    if x.shape[0] == 1:
        for i in range(block.shape[0]):
            block[i] = x[0]
    else:
        for i in range(block.shape[0]):
            block[i] = x[start + i]


@njit(**INLINE)
def _combine(operation, x, y, out):
    if operation == ADD:
        for i in range(out.shape[0]):
            out[i] = x[i] + y[i]
    elif operation == SUBTRACT:
        for i in range(out.shape[0]):
            out[i] = x[i] - y[i]
    elif operation == MULTIPLY:
        for i in range(out.shape[0]):
            out[i] = x[i] * y[i]
    else:
        for i in range(out.shape[0]):
            out[i] = x[i] / y[i]


@compiled
def sum_squares_of(operation, x, y, far_x, far_y, result, far, sums):
    """far = the operation of far_x and far_y; sums as of `sum_squares`, of flat arrays.

    They are of the result, the operation of x and y, and far. Operands of one element go with every
    other; all but `result`, x and y are binary64.
    """
    lanes, rooms = np.zeros((4, _LANES)), np.empty((3, _LANES))
    for start in range(0, result.shape[0], _LANES):
        end = min(start + _LANES, result.shape[0])
        m = end - start
        first, second, near = rooms[0, :m], rooms[1, :m], rooms[2, :m]
        _take(first, x, start)
        _take(second, y, start)
        _combine(operation, first, second, near)
        _take(first, far_x, start)
        _take(second, far_y, start)
        _combine(operation, first, second, far[start:end])
        _add_block(
            result[start:end], near, far[start:end], lanes[0], lanes[1], lanes[2], lanes[3])
    _add_lanes(lanes, sums)
