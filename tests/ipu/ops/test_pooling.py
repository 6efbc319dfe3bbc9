"""Pooling bit for bit (differential): numpy, one operation at a time."""

from __future__ import annotations

import math

import numpy as np
import pytest

from fpsim import BINARY16
from fpsim.records.geometry import geometry
from ipu import ops
from ipu.machine import FpSts
from tests.ipu.ops.bits import DTYPES, FORMATS, gradient_of, leaf, machine, numbers


@FORMATS
@pytest.mark.parametrize("padding", ["SAME", "VALID"])
def test_average_pooling_adds_shares_in_the_format(fmt, padding):
    h = DTYPES[fmt]
    x = numbers((2, 5, 4, 3), fmt)
    source = leaf(machine(), x, fmt)
    y = ops.average_pool(source, size=3, stride=2, padding=padding)
    g = numbers(y.shape, fmt, 1)
    e = geometry((5, 4), (3, 3), 2, padding)
    expected, back = np.zeros(y.shape, h), np.zeros(x.shape, h)
    cells = [(ky, kx) for ky in range(3) for kx in range(3)]
    inside = {}
    for index in np.ndindex(e.output):
        at = [
            (index[0] * 2 - e.before[0] + ky, index[1] * 2 - e.before[1] + kx) for ky, kx in cells
        ]
        inside[index] = [0 <= a < 5 and 0 <= b < 4 for a, b in at], at
    for k in range(9):
        for (i, j), (real, at) in inside.items():
            if real[k]:
                share = h(1 / sum(real))
                expected[:, i, j] += x[:, at[k][0], at[k][1]] * share
                back[:, at[k][0], at[k][1]] += g[:, i, j] * share
    np.testing.assert_array_equal(y.array.to_numpy(), expected)
    np.testing.assert_array_equal(gradient_of(y, [source], g)[0], back)


@FORMATS
def test_max_pooling_takes_the_largest_of_what_is_there(fmt):
    x = numbers((2, 5, 4, 3), fmt) - DTYPES[fmt](9)  # padding is no zero
    y = ops.max_pool(leaf(machine(), x, fmt), size=3, stride=2, padding="SAME")
    wide = np.pad(x, [(0, 0), (1, 1), (0, 1), (0, 0)], constant_values=-np.inf)
    windows = np.lib.stride_tricks.sliding_window_view(wide, (3, 3), (1, 2))[:, ::2, ::2]
    np.testing.assert_array_equal(y.array.to_numpy(), windows.max(axis=(-1, -2)))


def test_overlapping_windows_add_their_gradients_in_field_order():
    x = leaf(machine(), np.array([0, 9.0, 0, 0]).reshape(1, 1, 4, 1), BINARY16)
    y = ops.max_pool(x, size=(1, 3), stride=1)
    # Position 0 of the second window comes before position 1 of the first: 2048 + 1 is a tie.
    assert gradient_of(y, [x], np.array([1.0, 2048]).reshape(y.shape))[0].ravel()[1] == 2048


def test_ties_go_to_the_first_or_to_all():
    x = leaf(machine(), np.array([[1.0, 2], [2, 2]]).reshape(1, 2, 2, 1), BINARY16)
    for ties, expected in (("first", [0, 3, 0, 0]), ("all", [0, 3, 3, 3])):
        y = ops.max_pool(x, size=2, ties=ties)
        assert gradient_of(y, [x], np.full((1, 1, 1, 1), 3.0))[0].ravel().tolist() == expected
    with pytest.raises(ValueError, match="ties='last' is not known; use first or all"):
        ops.max_pool(x, size=2, ties="last")


def test_numbers_win_over_nan_in_pooling_and_invalid_is_raised():
    field = np.array([math.nan, 1.0, math.nan, math.nan]).reshape(1, 1, 4, 1)
    for rule, expected in (("number", [1.0, math.nan]), ("propagate", [math.nan, math.nan])):
        device = machine(max_nan=rule)
        x = leaf(device, field, BINARY16)
        y = ops.max_pool(x, size=(1, 2))
        np.testing.assert_array_equal(y.array.values.ravel(), expected)
        assert device.status == FpSts(inv=True)
        gradients = gradient_of(y, [x], np.ones((1, 1, 2, 1)))[0].ravel().tolist()
        assert gradients == ([0, 1, 1, 1] if rule == "number" else [1, 0, 1, 1])
