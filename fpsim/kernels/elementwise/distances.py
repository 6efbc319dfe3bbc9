"""Squares of the distances between three results, in one pass over their elements.

The results of an operation in binary64 can be computed in the same pass: of the operands as they
are, and as they would be in binary64.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from fpsim.kernels.compiling import INLINE, compiled
from fpsim.kernels.elementwise.binary64 import combine, operand, repeated

__all__ = ["sum_squares", "sum_squares_of"]

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


@compiled
def sum_squares_of(operation, x, y, far_x, far_y, result, far, sums):
    """far = an operation of far_x and far_y (`combine`); sums as of `sum_squares`, of flat arrays.

    They are of the result, the operation of x and y, and far. Operands of one element go with every
    other; all but `result`, x and y are binary64.
    """
    lanes, room = np.zeros((4, _LANES)), np.empty(_BLOCK)
    few = min(result.shape[0], _BLOCK)
    only_x, only_y = repeated(x, few), repeated(y, few)
    only_far_x, only_far_y = repeated(far_x, few), repeated(far_y, few)
    for start in range(0, result.shape[0], _BLOCK):
        end = min(start + _BLOCK, result.shape[0])
        near, there = room[: end - start], far[start:end]
        combine(operation, operand(x, only_x, start, end), operand(y, only_y, start, end), near)
        combine(
            operation, operand(far_x, only_far_x, start, end),
            operand(far_y, only_far_y, start, end), there)
        _add_block(result[start:end], near, there, lanes)
    _add_lanes(lanes, sums)
