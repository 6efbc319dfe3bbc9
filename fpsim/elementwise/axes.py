"""Axes as users name them, checked: from the first on, each once."""

from __future__ import annotations

from typing import Any

import numpy as np

__all__ = ["checked_axes", "one_axis"]


def checked_axes(axis: Any, ndim: int, name: str = "axis") -> tuple[int, ...]:
    """The axes of a reduction in the order in which they are named; None means all.

    Raises    TypeError for what is no axis; numpy's AxisError, a ValueError, for one that is not
              there; ValueError for one that comes twice.

    >>> checked_axes(-1, 3), checked_axes((2, 0), 3), checked_axes(None, 2)
    ((2,), (2, 0), (0, 1))
    >>> checked_axes(1.5, 3)
    Traceback (most recent call last):
    ...
    TypeError: axis=1.5 is not an axis; use a whole number, a tuple of them, or None for all
    """
    if axis is None:
        return tuple(range(ndim))
    axes = tuple(axis) if isinstance(axis, (tuple, list)) else (axis,)
    for one in axes:
        if isinstance(one, (bool, np.bool_)) or not isinstance(one, (int, np.integer)):
            raise TypeError(
                f"{name}={axis!r} is not an axis; use a whole number, a tuple of them, or None for "
                "all"
            )
        if not -ndim <= one < ndim:
            raise np.exceptions.AxisError(
                f"{name}={axis} is not there: the array has {ndim} dimensions, so use "
                + (f"{-ndim} to {ndim - 1}" if ndim else "None or ()")
            )
    result = tuple([int(one) % ndim for one in axes])
    if len(set(result)) < len(result):
        raise ValueError(f"{name}={axis} has one axis twice; name each once")
    return result


def one_axis(axis: Any, ndim: int) -> int:
    """A single axis.

    >>> one_axis(-1, 2)
    1
    """
    if axis is None or isinstance(axis, (tuple, list)):
        raise TypeError(f"axis={axis!r} is not one axis; use a whole number")
    return checked_axes(axis, ndim)[0]
