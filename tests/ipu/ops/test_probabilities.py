"""Softmax bit for bit (differential): numpy, one operation at a time."""

from __future__ import annotations

import numpy as np
import pytest

from fpsim import BINARY16
from ipu import ops
from tests.ipu.learn.twin import exact, sum_of
from tests.ipu.ops.bits import DTYPES, FORMATS, gradient_of, leaf, machine, numbers


@pytest.mark.source("S4-05")
@pytest.mark.source("S4-45")
@FORMATS
def test_softmax_is_single_inside_and_rounded_once(fmt):
    h, f = DTYPES[fmt], np.float32
    x, g = numbers((6, 9), fmt, scale=3.0), numbers((6, 9), fmt, 1)
    z = x.astype(f) - x.astype(f).max(axis=1, keepdims=True)
    e = exact(np.exp, z)
    total = sum_of(e, 1)[:, None]
    source = leaf(machine(), x, fmt)
    y = ops.softmax(source)
    np.testing.assert_array_equal(y.array.to_numpy(), (e / total).astype(h))
    p, wide = (e / total).astype(h).astype(f), g.astype(f)
    expected = (p * (wide - sum_of(wide * p, 1)[:, None])).astype(h)
    np.testing.assert_array_equal(gradient_of(y, [source], g)[0], expected)
    y = ops.log_softmax(source)
    logarithm = (z - exact(np.log, total)).astype(h)
    np.testing.assert_array_equal(y.array.to_numpy(), logarithm)
    expected = (wide - exact(np.exp, logarithm) * sum_of(wide, 1)[:, None]).astype(h)
    np.testing.assert_array_equal(gradient_of(y, [source], g)[0], expected)


@FORMATS
def test_logsumexp_is_single_inside_and_rounded_once(fmt):
    h, f = DTYPES[fmt], np.float32
    x = numbers((6, 9), fmt, scale=3.0)
    most = x.astype(f).max(axis=1, keepdims=True)
    total = sum_of(exact(np.exp, x.astype(f) - most), 1)
    expected = (exact(np.log, total) + most[:, 0]).astype(h)
    device = machine()
    rows = device.from_host(x, fmt)
    np.testing.assert_array_equal(ops.logsumexp.value(device, rows, axis=(1,)).to_numpy(), expected)
    whole = ops.logsumexp.value(device, rows, keepdims=True)
    assert whole.shape == (1, 1)


def test_rows_of_infinities_have_a_logsumexp_and_a_safe_softmax():
    device = machine()
    rows = device.from_host([[-np.inf] * 2, [np.inf, 0], [0, -np.inf], [np.nan, 0]], BINARY16)
    sums = ops.logsumexp.value(device, rows, axis=(1,)).to_numpy()
    assert sums[:3].tolist() == [-np.inf, np.inf, 0]
    assert np.isnan(sums[3])
    finite = device.from_host([[-np.inf] * 2, [0, -np.inf], [1, 1]], BINARY16)
    y = ops.safe_softmax.value(device, finite)
    assert y.tolist() == [[0, 0], [1, 0], [0.5, 0.5]]
