"""Sums along an outer axis by the processor's own additions of binary32, sixteen side by side.

What an addition has lost is a number of binary32, computed beside it (TwoSum), so that each sum
knows whether it is exact. Whatever else could make a difference is seen and left to the caller:
sums that are not finite, and subnormal numbers.

Source    docs/semantics.md §4; Knuth 1969 (TwoSum).
"""

from __future__ import annotations

import numpy as np
from numba import njit

from fpsim.kernels.by_operation.sums import COLUMN_BLOCK
from fpsim.kernels.compiling import INLINE, compiled
from fpsim.kernels.lanes.formula import formula
from fpsim.kernels.lanes.memory import (
    copy_item,
    load_float,
    pointer,
    room,
    store_float,
    store_low,
)
from fpsim.kernels.lanes.vectors import U32, as_bits, or_lanes, select, splat, umax, umin

__all__ = ["add_lanes", "inexact_lanes", "outer_sums", "strange_lanes"]

_MAGNITUDE, _INFINITY, _LARGEST_SUBNORMAL = 0x7FFFFFFF, 0x7F800000, 0x007FFFFF


@formula
def add_lanes(s, x, lost, least):
    """The sum, the largest error so far, and the smallest magnitude less one; zero is largest."""
    t = s + x
    back = t - s
    error = as_bits((s - (t - back)) + (x - back)) & _MAGNITUDE
    least = umin(least, (as_bits(x) & _MAGNITUDE) - 1)
    least = umin(least, (as_bits(t) & _MAGNITUDE) - 1)
    return t, umax(lost, error), least


@formula
def strange_lanes(t, lost, least):
    """All ones in a lane whose sum is not finite, or met a subnormal number."""
    none = lost ^ lost
    infinite = umax(as_bits(t) & _MAGNITUDE, lost) >= _INFINITY
    return select(infinite | (least < _LARGEST_SUBNORMAL), ~none, none)


@formula
def inexact_lanes(lost):
    """1 in a lane that has lost something."""
    none = lost ^ lost
    return select(lost != 0, none | 1, none)


@njit(**INLINE)
def _vector(values, total, at, few, none):
    """Sixteen of `total` numbers; zeros beyond the last one."""
    if at + COLUMN_BLOCK <= total:
        return load_float(values, at, none)
    for i in range(COLUMN_BLOCK):
        few[i] = 0
    for i in range(total - at):
        copy_item(few, i, values, at + i)
    return load_float(few, 0, none)


@compiled
def outer_sums(values, shape, step, squared, sums, element_flags):
    """sums (outer, inner) of values (outer, n, inner) in index order; flags 1 where inexact.

    values is flat; row (o, k) begins at (o n + k) step. inner is at least 16; where it is more than
    step, vectors go on into the next rows, and columns from there on mean nothing. All contiguous.
    squared: sums of squares, which must be numbers of binary32.
    Returns 0, or else another number: these are not the sums.
    """
    outer, n, inner = shape
    all_values, all_sums = pointer(values), pointer(sums.reshape(-1))
    all_flags = pointer(element_flags.reshape(-1))
    total, few = values.shape[0], room(values, COLUMN_BLOCK)
    none = splat(np.uint32(0), U32)
    strange = none
    for o in range(outer):
        for first in range(0, inner, COLUMN_BLOCK):
            # The last sixteen may have been summed in part already, to the same sums.
            column = min(first, inner - COLUMN_BLOCK)
            begin, end = o * n * step + column, o * inner + column
            s = _vector(all_values, total, begin, few, none)
            if squared:
                s = s * s
            lost, least = none, (as_bits(s) & _MAGNITUDE) - 1
            for k in range(1, n):
                x = _vector(all_values, total, begin + k * step, few, none)
                if squared:
                    x = x * x
                s, lost, least = add_lanes(s, x, lost, least)
            strange = strange | strange_lanes(s, lost, least)
            store_float(all_sums, end, s)
            store_low(all_flags, end, inexact_lanes(lost))
    return np.int64(or_lanes(strange))
