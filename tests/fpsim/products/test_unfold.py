"""Convolutions as matrix products: differential (oracle's order)."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import fpsim as fp
from fpsim.judge.oracle.conv import ExactConvolution
from fpsim.products.jobs.windows import ZERO
from fpsim.products.unfold import every_position, moved, order, weight_matrix
from fpsim.records.units import MatrixUnit, find_unit

FOUR = MatrixUnit("TEST_F16_F32", "none", (fp.BINARY16,), fp.BINARY32, terms=4, window=23)
UNITS = {
    "four channels": FOUR,
    "two calls": replace(FOUR, calls=2),
    "four taps of two": replace(FOUR, calls=2, taps=4),
    "one pass": replace(FOUR, calls=None),
}


@pytest.mark.parametrize("unit", UNITS.values(), ids=UNITS)
@pytest.mark.parametrize("kernel", [(1, 1), (3, 3), (2, 5)])
@pytest.mark.parametrize("channels", [1, 3, 4, 9])
def test_terms_stand_in_the_order_of_the_definition(kernel, channels, unit):
    table = order(kernel, channels, unit)
    terms = ExactConvolution(unit, (1, 1), (0, 0), (1, 1)).order(*kernel, channels)
    assert table.tolist() == [[ZERO] * 3 if term is None else list(term) for term in terms]
    assert not table.flags.writeable


@pytest.mark.parametrize("unit", UNITS.values(), ids=UNITS)
def test_the_right_operand_has_each_weight_at_its_term(unit):
    kernel = np.arange(1.0, 2 * 3 * 5 * 4 + 1).reshape(2, 3, 5, 4).astype(np.float32)
    table = order((2, 3), 5, unit)
    matrix = weight_matrix(table, kernel)
    assert matrix.shape == (len(table), 4)
    for row, (ky, kx, c) in zip(matrix.tolist(), table.tolist(), strict=True):
        assert row == ([0.0] * 4 if ky == ZERO else kernel[ky, kx, c].tolist())


def test_every_position_is_in_the_order_of_memory():
    kernel = np.arange(24.0).reshape(2, 3, 4, 1).astype(np.float32)
    table = every_position((2, 3), 4)
    assert weight_matrix(table, kernel).reshape(-1).tolist() == list(range(24))
    assert table.dtype == np.int64


def test_terms_move_with_their_corner_and_zeros_stay_zeros():
    unit = find_unit("V100_F16_F32")
    table = order((1, 2), 5, unit)
    wanted = table + (table[:, :1] != ZERO) * np.array([2, 3, 0])
    assert np.array_equal(moved(table, (2, 3)), wanted)
    assert moved(table, (2, 3)) is moved(table, (2, 3))
    assert moved(table, (0, 0)) is table
