"""Spread sums of binary32 by the processor's own additions, where they are the same.

All rounds are one call of a kernel that reads the array as it lies in memory: nothing is copied,
and what is kept of a round is a number for each part. The kernel sees what could make a difference
(see `fpsim.kernels.by_operation.native_sums`) and then has no result.

Source    docs/semantics.md §6 (sums of the device).
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fpsim.kernels.by_operation.spread_sums import FEWEST_COLUMNS, PART, spread_sums
from fpsim.kernels.lanes.vectors import VECTOR_WIDTH
from fpsim.products.jobs.job import to_read
from fpsim.products.native_sums import Sums
from fpsim.products.rows import has_whole_steps, origin
from fpsim.records.types import Carrier, Shape

__all__ = ["native_spread_sums", "sum_rooms"]

#: Extents and steps of axes, as the kernel takes them.
_Axes = tuple[NDArray[np.int64], NDArray[np.int64]]


class _Reading(NamedTuple):
    """How an array is summed: axes of outputs and summands, the kernel's plan, numbers in all."""

    free: _Axes
    reduced: _Axes
    plan: tuple[int, int, bool, bool, int]
    chains: int
    result: Shape


def native_spread_sums(x: Carrier, axes: tuple[int, ...], *, squared: bool = False) -> Sums | None:
    """Sums of binary32 over axes, and whether each is inexact; None where they may differ.

    squared   sums of squares, which must be numbers of binary32.

    Shapes    the axes vanish.
    Flags     INEXACT of each sum; those that would raise others have no result here.

    >>> native_spread_sums(np.float32([[1, 2**24], [3, 1]]), (0,))
    (array([4.0000000e+00, 1.6777216e+07], dtype=float32), array([0, 1], dtype=uint8))
    """
    if x.size == 0:
        return None
    reading = _reading(x.shape, x.strides, axes, x.itemsize)
    if reading is None:
        return native_spread_sums(np.ascontiguousarray(x), axes, squared=squared)
    source = to_read(x).reshape(-1) if x.flags.c_contiguous else origin(x)
    free, reduced, plan, chains, result = reading
    sums, inexact = np.empty(chains, np.float32), np.zeros(plan[0] + VECTOR_WIDTH, np.uint8)
    first = spread_sums(source, free, reduced, plan, squared, sums, inexact)
    if first < 0:
        return None
    outputs = plan[0]
    total = sums[first : first + outputs].reshape(result)
    return total.copy() if first else total, inexact[:outputs].reshape(result)


@lru_cache(maxsize=256)
def _reading(shape: Shape, strides: Shape, axes: tuple[int, ...], itemsize: int) -> _Reading | None:
    """None where numbers do not lie whole numbers apart."""
    if not has_whole_steps(shape, strides, itemsize):
        return None
    left = [axis for axis in range(len(shape)) if axis not in axes]
    free = _axes(shape, strides, left, itemsize)
    reduced = _axes(shape, strides, sorted(axes), itemsize)
    outputs, n = (math.prod(extents.tolist()) for extents, _ in (free, reduced))
    beside, along = abs(int(free[1][-1])), abs(int(reduced[1][-1]))
    by_columns = int(free[1][-1]) == 1 and int(free[0][-1]) >= FEWEST_COLUMNS
    size = 1 + sum(int(((e - 1) * np.maximum(s, 0)).sum()) for e, s in (free, reduced))
    plan = outputs, n, by_columns, not by_columns and (outputs == 1 or beside > along), size
    chains = _chains(outputs, n)
    return _Reading(free, reduced, plan, chains, tuple(shape[axis] for axis in left))


def _chains(outputs: int, n: int) -> int:
    """Numbers of all rounds that the kernel has room for."""
    chains, parts = 0, n
    while parts > 1 or not chains:
        parts = -(-parts // PART)
        chains += outputs * parts + VECTOR_WIDTH
    return chains


def sum_rooms(rows: int, n: int) -> tuple[_Axes, _Axes, NDArray[np.float32], NDArray[np.uint8]]:
    """Axes and rooms of the kernel for rows of n numbers that lie side by side."""
    free, reduced = (
        (np.full(1, extent, np.int64), np.full(1, step, np.int64))
        for extent, step in ((rows, n), (n, 1))
    )
    marks = np.zeros(rows + VECTOR_WIDTH, np.uint8)
    return free, reduced, np.empty(_chains(rows, n), np.float32), marks


def _axes(shape: Shape, strides: Shape, axes: list[int], itemsize: int) -> _Axes:
    """Extents and steps of axes in C order; those that are one in memory are joined."""
    extents, steps = [1], [0]
    for axis in axes:
        extent, step = shape[axis], strides[axis] // itemsize
        if extent == 1:
            continue
        if extents[-1] == 1 or steps[-1] == extent * step:
            extents[-1], steps[-1] = extents[-1] * extent, step
        else:
            extents.append(extent)
            steps.append(step)
    return np.array(extents, np.int64), np.array(steps, np.int64)
