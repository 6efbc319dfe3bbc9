"""Panels of the right operand and blocks of columns (corners)."""

from __future__ import annotations

import numpy as np
import pytest

from fpsim.kernels.by_unit.panels import PLAIN
from fpsim.products.by_unit.panels import Right, column_blocks, filled, n_panels
from fpsim.products.by_unit.task import OperandTable, TileTask
from tests.threads import on_threads

TASK = TileTask(None, 64, None, None, None, OperandTable(64, 0, PLAIN))


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("order", ["C", "F", "neither"])
def test_panels_hold_the_rows_that_were_asked_for(order, threads):
    b = np.arange(5.0 * 70).reshape(5, 70).astype(np.float32)
    b = np.repeat(b, 2, axis=1)[:, ::2] if order == "neither" else np.asarray(b, order=order)
    rows = np.array([3, -1, 0])
    right = Right.of(b)
    panels, fields = on_threads(threads, lambda: filled(TASK, right, rows, slice(6, 70)))
    assert panels.shape == (4, 3, 16)
    assert fields.size == 0
    expected = np.where(rows[:, None] < 0, 0, b[rows, 6:70])
    assert np.array_equal(panels.swapaxes(0, 1).reshape(3, 64), expected)
    below, _ = filled(TASK, right.below(2), np.array([1, -1]), slice(6, 70))
    assert np.array_equal(below[:, 0].reshape(64), b[3, 6:70])
    assert not below[:, 1].any()


def test_columns_are_cut_in_whole_panels():
    assert list(column_blocks(TASK, 1 << 16, slice(0, 70))) == [
        slice(0, 32),
        slice(32, 64),
        slice(64, 70),
    ]
    assert list(column_blocks(TASK, 1 << 20, slice(0, 17))) == [slice(0, 16), slice(16, 17)]
    assert list(column_blocks(TASK, 8, slice(0, 70))) == [slice(0, 70)]
    assert [n_panels(slice(3, stop)) for stop in (4, 19, 20)] == [1, 1, 2]
