"""Axes, shapes and numbers of elements: what they mean and what is refused (corners)."""

from __future__ import annotations

import numpy as np
import pytest

from fpsim.elementwise.axes import checked_axes
from fpsim.elementwise.sizes import check_size, checked_count, checked_shape


@pytest.mark.parametrize("axis", [1.5, "0", True, [0.0], (0, None), np.ones(2), object()])
def test_what_is_no_axis_is_refused(axis):
    with pytest.raises(TypeError, match=r"axis=.* is not an axis; use a whole number"):
        checked_axes(axis, 3)


def test_axes_are_in_range_and_come_once():
    assert checked_axes((), 3) == ()
    assert checked_axes(np.int64(-3), 3) == (0,)
    for axis in (3, -4, (0, 3), 10**15):
        with pytest.raises(np.exceptions.AxisError, match=r"is not there: the array has 3 dimen"):
            checked_axes(axis, 3)
    with pytest.raises(np.exceptions.AxisError, match=r"0 dimensions, so use None or \(\)"):
        checked_axes(0, 0)
    with pytest.raises(ValueError, match=r"axis=\(0, -3\) has one axis twice"):
        checked_axes((0, -3), 3)


@pytest.mark.parametrize("shape", [2.5, "3", None, (2, 1.0), [[1, 2]], True, {3}, (True,)])
def test_what_is_no_shape_is_refused(shape):
    with pytest.raises(TypeError, match=r"shape=.* is not a shape; use a whole number"):
        checked_shape(shape, 4)


@pytest.mark.parametrize(
    ("shape", "expected"), [(0, (0,)), (np.int64(3), (3,)), ([2, 3], (2, 3)), ((), ()),
                            (np.array([4, 5]), (4, 5))],
)
def test_shapes_become_tuples(shape, expected):
    assert checked_shape(shape, 4) == expected


def test_sizes_and_counts():
    check_size("num", 10, 10, 8)
    assert checked_count("num", np.uint8(7)) == 7
    for n, kind, message in (
        (-1, ValueError, "num=-1 is too small; use 0 or more"),
        (True, TypeError, "num=True is not a whole number"),
        ("3", TypeError, "num='3' is not a whole number"),
    ):
        with pytest.raises(kind, match=message):
            checked_count("num", n)
    with pytest.raises(ValueError, match=r"shape=\(1000000, 10000000\) makes 10{13} elements"):
        checked_shape((10**6, 10**7), 4)
