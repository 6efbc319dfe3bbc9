"""Reductions bit for bit (differential): numpy, one operation at a time."""

from __future__ import annotations

import numpy as np

from fpsim import BINARY16
from ipu.learn import ops
from tests.ipu.learn.ops.bits import DTYPES, FORMATS, gradient_of, leaf, machine, numbers
from tests.ipu.learn.twin import sum_of


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
    found = device.reduce_max(x, axis=1).values
    assert np.signbit(found).ravel().tolist() == [False, False, True]
