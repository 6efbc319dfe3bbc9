"""Reductions bit for bit (differential: numpy, one operation at a time); empty axes (corners)."""

from __future__ import annotations

import numpy as np
import pytest

from fpsim import BINARY16
from ipu import ops
from ipu.machine.control import FpSts
from tests.ipu.learn.twin import sum_of
from tests.ipu.ops.bits import DTYPES, FORMATS, gradient_of, leaf, machine, numbers


@FORMATS
def test_reductions_are_single_inside_and_rounded_once(fmt):
    h = DTYPES[fmt]
    x = numbers((6, 7, 5), fmt, scale=200.0)
    total = sum_of(x.transpose(1, 0, 2).reshape(7, 30).astype(np.float32), 1)
    source = leaf(machine(), x, fmt)
    y = ops.reduce_sum(source, axis=(0, 2))
    np.testing.assert_array_equal(y.array.to_numpy(), total.astype(h))
    mean = ops.reduce_mean(source, axis=(0, 2), keepdims=True)
    expected = (total * np.float32(1 / 30)).astype(h)
    np.testing.assert_array_equal(mean.array.to_numpy(), expected.reshape(1, 7, 1))
    g = numbers((1, 7, 1), fmt, 1)
    share = (g.astype(np.float32) * np.float32(1 / 30)).astype(h)
    np.testing.assert_array_equal(
        gradient_of(mean, [source], g)[0], np.broadcast_to(share, x.shape)
    )


def test_the_first_of_equal_maxima_takes_the_gradient():
    device = machine()
    x = leaf(device, [[1.0, 3.0, 3.0], [2.0, 3.0, 0.0]], BINARY16)
    y = ops.reduce_max(x)
    assert float(y.array) == 3.0
    assert gradient_of(y, [x], 1.0)[0].tolist() == [[0, 1, 0], [0, 0, 0]]
    rows = ops.reduce_max(x, axis=0)
    assert gradient_of(rows, [x], [1.0, 2.0, 4.0])[0].tolist() == [[0, 2, 4], [1, 0, 0]]


def test_the_larger_zero_is_the_positive_one():
    device = machine()
    x = device.from_host([[-0.0, 0.0], [0.0, -0.0], [-0.0, -0.0]], BINARY16)
    largest = device.reduce_max(x, axis=1).values
    assert np.signbit(largest).ravel().tolist() == [False, False, True]


@FORMATS
@pytest.mark.parametrize(("shape", "axis"), [((0, 3), 0), ((2, 0, 3), (0, 1)), ((2, 0), None)])
def test_the_mean_of_no_elements_is_nan_and_invalid(shape, axis, fmt):
    device = machine()
    x = leaf(device, np.zeros(shape), fmt)
    y = ops.reduce_mean(x, axis=axis)
    with np.errstate(invalid="ignore"):
        expected = np.zeros(shape).sum(axis) / 0.0
    np.testing.assert_array_equal(y.array.to_numpy(), expected)
    assert device.status == FpSts(inv=True)
    device.clear_status()
    assert gradient_of(y, [x], np.zeros(y.shape))[0].shape == shape
    assert device.status == FpSts()


@pytest.mark.parametrize("op", [ops.reduce_sum, ops.reduce_mean, ops.reduce_max])
def test_without_results_nothing_is_reduced(op):
    device = machine()
    x = leaf(device, np.zeros((0, 3)), BINARY16)
    y = op(x, axis=1)
    assert y.shape == (0,)
    assert gradient_of(y, [x], np.zeros(0))[0].shape == (0, 3)


def test_the_sum_of_no_elements_is_zero_and_has_no_maximum():
    x = leaf(machine(), np.zeros((2, 0, 3)), BINARY16)
    total = ops.reduce_sum(x, axis=1).array.to_numpy()
    assert total.shape == (2, 3)
    assert not total.any()
    with pytest.raises(ValueError, match=r"x has shape \(2, 0, 3\), so there is no maximum over"):
        ops.reduce_max(x, axis=1)
