"""Squares of the distances between three results, in one pass over their elements.

The results of an operation in binary64 can be computed in the same pass: of the operands as they
are, and as they would be in binary64.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from fpsim.kernels.compiling import INLINE, compiled

__all__ = [
    "ADD", "DIVIDE", "MULTIPLY", "ROOT", "SQUARED_DIFFERENCE", "SUBTRACT", "sum_squares",
    "sum_squares_of",
]

#: Operations that are computed in the same pass; a root is that of the first operand.
ADD, SUBTRACT, MULTIPLY, DIVIDE, SQUARED_DIFFERENCE, ROOT = range(6)

#: Partial sums of each total, a number of its own so that bits do not depend on the vectors.
_LANES = 64
#: Elements that are added to the lanes at a time: four to each.
_BLOCK = 4 * _LANES


@njit(**INLINE)
def _squares(x, y, z):
    near, far = x - y, y - z
    total = near + far
    return z * z, near * near, far * far, total * total


@njit(**INLINE)
def _add_part(x, y, z, lanes):
    """At most as many elements as there are lanes."""
    for i in range(x.shape[0]):
        size, first, second, both = _squares(x[i], y[i], z[i])
        lanes[0, i] += size
        lanes[1, i] += first
        lanes[2, i] += second
        lanes[3, i] += both


@njit(**INLINE)
def _add_whole(x, y, z, lanes):
    """A block: partial sums stay in registers over the four elements of a lane, written out."""
    sizes, firsts, seconds, boths = lanes[0], lanes[1], lanes[2], lanes[3]
    for i in range(_LANES):
        a, b, c, d = i, i + _LANES, i + 2 * _LANES, i + 3 * _LANES
        size_a, first_a, second_a, both_a = _squares(x[a], y[a], z[a])
        size_b, first_b, second_b, both_b = _squares(x[b], y[b], z[b])
        size_c, first_c, second_c, both_c = _squares(x[c], y[c], z[c])
        size_d, first_d, second_d, both_d = _squares(x[d], y[d], z[d])
        sizes[i] = sizes[i] + size_a + size_b + size_c + size_d
        firsts[i] = firsts[i] + first_a + first_b + first_c + first_d
        seconds[i] = seconds[i] + second_a + second_b + second_c + second_d
        boths[i] = boths[i] + both_a + both_b + both_c + both_d


@njit(**INLINE)
def _add_block(x, y, z, lanes):
    if x.shape[0] == _BLOCK:
        _add_whole(x, y, z, lanes)
        return
    for start in range(0, x.shape[0], _LANES):
        end = start + _LANES
        _add_part(x[start:end], y[start:end], z[start:end], lanes)


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
    for start in range(0, x.shape[0], _BLOCK):
        end = start + _BLOCK
        _add_block(x[start:end], y[start:end], z[start:end], lanes)
    _add_lanes(lanes, sums)


@njit(**INLINE)
def _repeated(x):
    """A block of the only element of an operand; empty for one that has others."""
    room = np.empty(_BLOCK if x.shape[0] == 1 else 0, x.dtype)
    room[:] = x[0]
    return room


@njit(**INLINE)
def _operand(x, repeated, start, end):
    return repeated[: end - start] if repeated.shape[0] else x[start:end]


@njit(**INLINE)
def _combine(operation, x, y, out):
    """In binary64, whatever the operands are."""
    n = out.shape[0]
    if operation == ADD:
        for i in range(n):
            out[i] = np.float64(x[i]) + np.float64(y[i])
    elif operation == SUBTRACT:
        for i in range(n):
            out[i] = np.float64(x[i]) - np.float64(y[i])
    elif operation == MULTIPLY:
        for i in range(n):
            out[i] = np.float64(x[i]) * np.float64(y[i])
    elif operation == DIVIDE:
        for i in range(n):
            out[i] = np.float64(x[i]) / np.float64(y[i])
    elif operation == SQUARED_DIFFERENCE:
        for i in range(n):
            difference = np.float64(x[i]) - np.float64(y[i])
            out[i] = difference * difference
    else:
        for i in range(n):
            out[i] = np.sqrt(np.float64(x[i]))


@compiled
def sum_squares_of(operation, x, y, far_x, far_y, result, far, sums):
    """far = the operation of far_x and far_y; sums as of `sum_squares`, of flat arrays.

    They are of the result, the operation of x and y, and far. Operands of one element go with every
    other; all but `result`, x and y are binary64.
    """
    lanes, room = np.zeros((4, _LANES)), np.empty(_BLOCK)
    all_x, all_y, all_far_x, all_far_y = (
        _repeated(x), _repeated(y), _repeated(far_x), _repeated(far_y))
    for start in range(0, result.shape[0], _BLOCK):
        end = min(start + _BLOCK, result.shape[0])
        near, there = room[: end - start], far[start:end]
        _combine(
            operation, _operand(x, all_x, start, end), _operand(y, all_y, start, end), near)
        _combine(
            operation, _operand(far_x, all_far_x, start, end),
            _operand(far_y, all_far_y, start, end), there)
        _add_block(result[start:end], near, there, lanes)
    _add_lanes(lanes, sums)
