"""Axes: what they mean and what is refused (corners)."""

from __future__ import annotations

import numpy as np
import pytest

from fpsim.elementwise.axes import checked_axes


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
