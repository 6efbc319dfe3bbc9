"""Rows of a matrix as kernels of sums read them: where they lie, without a copy.

Source    `fpsim.kernels.by_operation.rows`.
"""

from __future__ import annotations

import math

import numpy as np

from fpsim.products.jobs.job import to_read
from fpsim.records.types import Carrier, Shape

__all__ = ["as_rows", "has_whole_steps", "in_whole_steps", "origin", "steps_of"]


def has_whole_steps(shape: Shape, strides: Shape, itemsize: int) -> bool:
    """Whether numbers lie whole numbers apart, as those of a field of records do not.

    An axis of one element has no step, whatever numpy says: a copy would say the same.
    """
    steps = zip(shape, strides, strict=True)
    return not any(step % itemsize for extent, step in steps if extent > 1)


def in_whole_steps(x: Carrier) -> Carrier:
    """The same numbers, whole numbers apart: a copy of a field of records, else the array.

    >>> records = np.ones(3, [("sign", np.uint8), ("x", np.float32)])
    >>> records["x"].strides, in_whole_steps(records["x"]).strides
    ((5,), (4,))
    """
    is_whole = has_whole_steps(x.shape, x.strides, x.itemsize)
    return x if is_whole else np.ascontiguousarray(x)


def as_rows(values: Carrier, axes: tuple[int, ...]) -> Carrier:
    """Values as (outputs, elements); elements of several axes in C order.

    >>> as_rows(np.arange(6.0).reshape(2, 3), (0,)).tolist()
    [[0.0, 3.0], [1.0, 4.0], [2.0, 5.0]]
    """
    left = tuple(i for i in range(values.ndim) if i not in axes)
    moved = values.transpose((*left, *sorted(axes)))
    outputs, elements = (math.prod(values.shape[i] for i in axes_of) for axes_of in (left, axes))
    return in_whole_steps(moved.reshape(outputs, elements))


def origin(rows: Carrier) -> Carrier:
    """An array that begins with the first element of the first row; kernels know the steps."""
    first = np.lib.stride_tricks.as_strided(rows, (1,), (rows.itemsize,))
    return to_read(first)


def steps_of(rows: Carrier) -> tuple[int, int]:
    """Elements from row to row, and from element to element."""
    down, along = rows.strides
    return down // rows.itemsize, along // rows.itemsize
