"""The order of a unit's terms: zeros at the end, pairs (corners)."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

import fpsim as fp
from fpsim.products.by_unit.terms import all_terms, pairs
from fpsim.products.by_unit.unit_settings import UnitSettings
from fpsim.records.settings import Settings
from fpsim.records.units import MatrixUnit

FOUR = MatrixUnit("TEST_F16_F32", "none", (fp.BINARY16,), fp.BINARY32, terms=4, window=23)


def terms(unit, k):
    settings = UnitSettings(unit, fp.BINARY16, fp.BINARY16, Settings(fp.BINARY32))
    offsets, rows, first = all_terms(settings, np.arange(k) + 100)
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
