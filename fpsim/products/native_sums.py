"""Sequential sums of binary32 by the processor's own additions, where they are the same.

A context's sum rounds every addition to nearest even; so does the processor. The kernel sees what
could make a difference (see `fpsim.kernels.by_operation.native_sums`) and then has no result.

Source    docs/semantics.md §4 (order); IEEE 754-2019 §4.3.1.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from fpsim.kernels.by_operation.native_sums import outer_sums
from fpsim.kernels.by_operation.sums import COLUMN_BLOCK
from fpsim.products.jobs.job import to_read
from fpsim.records.formats import BINARY32
from fpsim.records.rounding import RNE
from fpsim.records.types import Carrier

if TYPE_CHECKING:
    from fpsim.records.settings import Settings

__all__ = ["Sums", "is_native", "native_sums"]

#: Sums, and whether each is inexact.
Sums = tuple[Carrier, NDArray[np.uint8]]


def is_native(settings: Settings, order: str) -> bool:
    """Whether the processor's additions are those of this context, numbers permitting."""
    return order == "sequential" and settings.format == BINARY32 and settings.rounding == RNE


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
    rows = _rows(x, sorted(axes))
    outer, n, inner = rows.shape
    values, width = to_read(np.ascontiguousarray(rows)).reshape(-1), max(inner, COLUMN_BLOCK)
    sums, marks = np.empty((outer, width), np.float32), np.empty((outer, width), np.uint8)
    if outer_sums(values, (outer, n, width), inner, squared, sums, marks):
        return None
    shape = tuple(extent for axis, extent in enumerate(x.shape) if axis not in axes)
    return sums[:, :inner].reshape(shape), marks[:, :inner].reshape(shape)


def _rows(x: Carrier, axes: list[int]) -> Carrier:
    """As (outer, elements of a sum, inner): what is summed stands before the sums beside it."""
    first, last = axes[0], axes[-1]
    if len(axes) <= last - first or last == x.ndim - 1:
        kept = [axis for axis in range(x.ndim) if axis not in axes]
        x, first, last = x.transpose((*axes, *kept)), 0, len(axes) - 1
    outer, n = math.prod(x.shape[:first]), math.prod(x.shape[first : last + 1])
    return x.reshape(outer, n, math.prod(x.shape[last + 1 :]))
