"""Sequential sums of binary32 by the processor's own additions, where they are the same.

A context's sum rounds every addition to nearest even; so does the processor. The kernel sees what
could make a difference (see `fpsim.kernels.by_operation.native_sums`) and then has no result.

Source    docs/semantics.md §4 (order); IEEE 754-2019 §4.3.1.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fpsim.kernels.by_operation.native_sums import outer_sums
from fpsim.kernels.by_operation.sums import COLUMN_BLOCK
from fpsim.products.jobs.job import to_read
from fpsim.records.formats import BINARY32
from fpsim.records.rounding import RNE
from fpsim.records.types import Carrier, Shape

if TYPE_CHECKING:
    from fpsim.records.settings import Settings

__all__ = ["Sums", "is_native", "native_sums"]

#: Sums, and whether each is inexact.
Sums = tuple[Carrier, NDArray[np.uint8]]


def is_native(settings: Settings, order: str) -> bool:
    """Whether the processor's additions are those of this context, numbers permitting."""
    nearest = settings.rounding is RNE or settings.rounding == RNE
    return nearest and order == "sequential" and (
        settings.format is BINARY32 or settings.format == BINARY32
    )


def native_sums(x: Carrier, axes: tuple[int, ...], *, squared: bool = False) -> Sums | None:
    """Sums over axes in C order, and whether each is inexact; None where they may differ.

    squared   sums of squares, which must be numbers of binary32.

    Shapes    the axes vanish.
    Flags     INEXACT of each sum; those that would raise others have no result here.

    >>> native_sums(np.float32([[1, 2**24], [3, 1]]), (0,))
    (array([4.0000000e+00, 1.6777216e+07], dtype=float32), array([0, 1], dtype=uint8))
    """
    if x.size == 0 or not axes:
        return None
    moved, (outer, n, inner), shape = _layout(x.shape, axes)
    rows = x if moved is None else x.transpose(moved)
    values, width = to_read(np.ascontiguousarray(rows)).reshape(-1), max(inner, COLUMN_BLOCK)
    sums, marks = np.empty((outer, width), np.float32), np.empty((outer, width), np.uint8)
    if outer_sums(values, (outer, n, width), inner, squared, sums, marks):
        return None
    if inner < width:
        sums, marks = sums[:, :inner], marks[:, :inner]
    return sums.reshape(shape), marks.reshape(shape)


class _Layout(NamedTuple):
    """How an array is summed: its axes in another order, if they must be, and its extents then.

    rows    outer, elements of a sum, inner: what is summed stands before the sums beside it.
    """

    moved: tuple[int, ...] | None
    rows: tuple[int, int, int]
    result: Shape


@lru_cache(maxsize=256)
def _layout(shape: Shape, axes: tuple[int, ...]) -> _Layout:
    reduced, free = sorted(axes), [axis for axis in range(len(shape)) if axis not in axes]
    result = tuple(shape[axis] for axis in free)
    first, last = reduced[0], reduced[-1]
    moved = None
    if len(axes) <= last - first or last == len(shape) - 1:
        moved = (*reduced, *free)
        shape, first, last = tuple(shape[axis] for axis in moved), 0, len(axes) - 1
    outer, n = math.prod(shape[:first]), math.prod(shape[first : last + 1])
    return _Layout(moved, (outer, n, math.prod(shape[last + 1 :])), result)
