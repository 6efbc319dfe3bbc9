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

from fpsim.kernels.by_operation.native_sums import outer_sums as sum_rows
from fpsim.kernels.by_operation.sums import COLUMN_BLOCK
from fpsim.records.formats import BINARY32
from fpsim.records.rounding import RNE
from fpsim.records.types import Carrier

if TYPE_CHECKING:
    from fpsim.records.settings import Settings

__all__ = ["is_native", "outer_sums"]

#: Sums, and whether each is inexact.
_Sums = tuple[Carrier, NDArray[np.uint8]]

#: Numbers of narrow rows that are filled up at a time.
_NUMBERS = 1 << 15


def is_native(settings: Settings, order: str) -> bool:
    """Whether the processor's additions are those of this context, numbers permitting."""
    return order == "sequential" and settings.format == BINARY32 and settings.rounding == RNE


def outer_sums(x: Carrier, axes: tuple[int, ...]) -> tuple[Carrier, NDArray[np.uint8]] | None:
    """Sums over neighbouring axes that are not the last, in C order; None where they may differ.

    Shapes    the axes vanish.
    Flags     INEXACT of each sum; those that would raise others have no result here.

    >>> outer_sums(np.float32([[1, 2**24], [3, 1]]), (0,))
    (array([4.0000000e+00, 1.6777216e+07], dtype=float32), array([0, 1], dtype=uint8))
    """
    first, last = min(axes, default=-1), max(axes, default=-1)
    if x.size == 0 or last in (-1, x.ndim - 1) or len(axes) != last - first + 1:
        return None
    outer, n, inner = (math.prod(x.shape[a:b]) for a, b in ((0, first), (first, last + 1),
                                                           (last + 1, None)))  # fmt: skip
    if inner == 1:
        return None
    rows = x.reshape(outer, n, inner)
    result = _wide_sums(rows) if inner >= COLUMN_BLOCK else _narrow_sums(rows)
    if result is None:
        return None
    shape = x.shape[:first] + x.shape[last + 1 :]
    sums, marks = result
    return sums[:, :inner].reshape(shape), marks[:, :inner].reshape(shape)


def _wide_sums(rows: Carrier) -> _Sums | None:
    """Where the kernel can read the columns as they lie."""
    shape = rows.shape[0], rows.shape[2]
    sums, marks = np.empty(shape, np.float32), np.empty(shape, np.uint8)
    rows = rows if rows.flags.carray else rows.copy()
    return None if sum_rows(rows, sums, marks) else (sums, marks)


def _narrow_sums(rows: Carrier) -> _Sums | None:
    """Columns too few for the kernel, with zeros beside them, some rows at a time.

    The sums so far are the first row of the next ones.
    """
    outer, n, inner = rows.shape
    step = max(1, _NUMBERS // (outer * COLUMN_BLOCK))
    filled = np.zeros((outer, min(n, step) + 1, COLUMN_BLOCK), rows.dtype)
    sums = np.empty((outer, COLUMN_BLOCK), np.float32)
    marks, raised = np.zeros(sums.shape, np.uint8), np.empty(sums.shape, np.uint8)
    for begin in range(0, n, step):
        block, first = rows[:, begin : begin + step], min(begin, 1)
        if begin:
            filled[:, 0] = sums
        end = first + block.shape[1]
        filled[:, first:end, :inner] = block
        if sum_rows(np.ascontiguousarray(filled[:, :end]), sums, raised):
            return None
        marks |= raised
    return sums, marks
