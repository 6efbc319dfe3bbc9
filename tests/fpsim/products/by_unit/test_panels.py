"""Panels of operands and the order of terms in them (corners)."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import fpsim as fp
from fpsim.kernels.by_unit.panels import PLAIN
from fpsim.products.by_unit.panels import Right, column_blocks, filled, n_panels
from fpsim.products.by_unit.task import OperandTable, TileTask
from fpsim.products.by_unit.terms import all_terms, pairs
from fpsim.products.by_unit.unit_settings import UnitSettings
from fpsim.records.settings import Settings
from fpsim.records.units import MatrixUnit
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


FOUR = MatrixUnit("TEST_F16_F32", "none", (fp.BINARY16,), fp.BINARY32, terms=4, window=23)


def terms(unit, k):
    settings = UnitSettings(unit, fp.BINARY16, fp.BINARY16, Settings(fp.BINARY32))
    offsets, rows, first = all_terms(settings, np.arange(k) + 100, unit.channels)
    return offsets.tolist(), rows.tolist(), first


def test_terms_that_fill_passes_are_as_they_were():
    assert terms(FOUR, 8) == (list(range(100, 108)), list(range(8)), 0)


def test_zeros_fill_the_last_pass():
    """Their offset is one that can be read; their row is none."""
    assert terms(FOUR, 5) == ([100, 101, 102, 103, 104, 100, 100, 100], [*range(5), -1, -1, -1], 0)


def test_pairs_take_every_other_pair_first():
    assert pairs(8, 8).tolist() == [0, 1, 4, 5, 2, 3, 6, 7]
    unit = replace(FOUR, order="pairs", calls=2)
    assert terms(unit, 6)[1] == [0, 1, 4, 5, 2, 3, -1, -1]
