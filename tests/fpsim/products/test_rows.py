"""Rows of a matrix where they lie (corners)."""

from __future__ import annotations

import numpy as np
import pytest

from fpsim.products.rows import as_rows, origin, steps_of


@pytest.mark.parametrize("axes", [(0,), (1,), (2,), (0, 2), (2, 1), (0, 1, 2), ()])
def test_rows_hold_elements_in_c_order(axes):
    x = np.arange(24.0).reshape(2, 3, 4)
    left = [i for i in range(3) if i not in axes]
    rows = as_rows(x, axes)
    wanted = np.moveaxis(x, left, range(len(left))).reshape(rows.shape)
    assert np.array_equal(rows, wanted)


def test_single_axes_are_not_copied():
    x = np.arange(24, dtype=np.float32).reshape(2, 3, 4)[:, ::-1]
    for axis in range(3):
        rows = as_rows(x[0] if axis == 2 else x[..., 0], (min(axis, 1),))
        assert np.shares_memory(rows, x)
        down, along = steps_of(rows)
        assert down * 4 == rows.strides[0]
        assert along * 4 == rows.strides[1]
        assert origin(rows)[0] == rows[0, 0]


def test_fields_of_records_are_copied_and_what_is_read_only_is_not():
    records = np.zeros(5, [("tag", "u1"), ("value", "f4")])
    records["value"] = range(5)
    rows = as_rows(records["value"], (0,))
    assert rows.tolist() == [[0, 1, 2, 3, 4]]
    assert steps_of(rows) == (5, 1)
    locked = np.ones((2, 3), np.float32)
    locked.flags.writeable = False
    first = origin(as_rows(locked, (1,)))
    assert first.flags.writeable
    assert np.shares_memory(first, locked)
