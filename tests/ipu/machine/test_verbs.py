"""Verbs that take a short way (differential): the same values, flags and random bits as the long.

Counting takes the long way, so that a counting device judges one that does not count.
"""

from __future__ import annotations

import math

import numpy as np
import pytest

from fpsim import BFLOAT16, BINARY16, BINARY32, Flags
from fpsim.elementwise.codes import from_codes
from ipu.machine import Device, FpCtl

FORMATS = pytest.mark.parametrize("fmt", [BINARY16, BFLOAT16, BINARY32], ids=str)
DENORMALS = pytest.mark.parametrize("denormals", ["flush", "ieee"])


def pair(denormals, **options):
    return [
        Device("hypothetical", f32_denormals=denormals, count=count, **options)
        for count in (False, True)
    ]


def every_kind(device, fmt, nan=False):
    """Values of every exponent, subnormal ones among them, both zeros and infinities."""
    codes = np.random.default_rng(1).integers(0, fmt.n_codes, (50, 12))
    values = from_codes(codes, fmt)
    values[np.isnan(values)] = 1.0
    values[0, :4] = 0.0, -0.0, math.inf, fmt.smallest_subnormal
    if nan:
        values[1, 1] = math.nan
    return device.context(fmt).wrap(values)


def agree(actual, devices):
    short, long = actual
    np.testing.assert_array_equal(short.values, long.values)
    np.testing.assert_array_equal(np.signbit(short.values), np.signbit(long.values))
    for fmt in (BINARY16, BFLOAT16, BINARY32):
        assert devices[0].context(fmt).flags == devices[1].context(fmt).flags


@FORMATS
@DENORMALS
@pytest.mark.parametrize("nan", [False, True])
def test_relu_and_cast_and_select(fmt, denormals, nan):
    for verb in (
        lambda device, x: device.relu(x),
        lambda device, x: device.cast(x, BINARY32),
        lambda device, x: device.select(np.arange(12) % 3 > np.zeros((50, 1)), x),
    ):
        devices = pair(denormals)
        agree([verb(d, every_kind(d, fmt, nan)) for d in devices], devices)


@FORMATS
@DENORMALS
@pytest.mark.parametrize("axes", [(0,), (1,), (0, 1)])
@pytest.mark.parametrize("tiny", [False, True])
def test_sums(fmt, denormals, axes, tiny):
    devices, results = pair(denormals), []
    for device in devices:
        third = device.divide(device.from_host([1.0], BINARY32), 3.0)  # inexact from here on
        x = np.random.default_rng(2).standard_normal((50, 12))
        x = device.from_host(x * (fmt.smallest_normal * 1e-2 if tiny else 1), fmt)
        device.add(third, third)
        results.append(device.reduce_sum(x, axes, BINARY32, scale=0.75))
    agree(results, devices)


@FORMATS
@DENORMALS
@pytest.mark.parametrize("axes", [(0,), (1,), (0, 1)])
@pytest.mark.parametrize("nan", [False, True])
def test_squares_are_summed_as_products_are(fmt, denormals, axes, nan):
    devices = pair(denormals)
    xs = [every_kind(device, fmt, nan) for device in devices]
    wide = devices[1].cast(xs[1], BINARY32)
    products = devices[1].multiply(wide, wide)
    actual = [
        devices[0].reduce_squares(xs[0], axes, scale=0.75),
        devices[1].reduce_sum(products, axes, scale=0.75),
    ]
    agree(actual, devices)
    assert devices[0].vector_cycles == devices[1].vector_cycles


@pytest.mark.parametrize("esr", [False, True])
@pytest.mark.parametrize("first", [False, True])
@pytest.mark.parametrize("shape", [(12,), (1, 12), (7, 12), (1,), (150, 1, 1), (1, 1, 12)])
def test_what_repeats_is_read_as_if_written_out(esr, first, shape):
    device = Device(control=FpCtl(esr=esr), seed=3)
    rng = np.random.default_rng(4)
    x, y = (device.from_host(rng.standard_normal(s), BINARY16) for s in ((150, 7, 12), shape))
    wide = device.from_host(np.broadcast_to(y.values, x.shape), BINARY16)
    results, raised = [], []
    for other in (y, wide):
        device.clock.operation = 9
        device.context(BINARY16).clear_flags()
        results.append(device.multiply(other, x) if first else device.multiply(x, other))
        raised.append(device.context(BINARY16).flags)
    assert raised[0] == raised[1] != Flags.NONE
    np.testing.assert_array_equal(results[0].values, results[1].values)


def test_one_row_takes_a_row():
    device = Device()
    x, y = device.from_host([[1.0, 2.0]], BINARY16), device.from_host([3.0, 4.0], BINARY16)
    assert device.add(x, y).values.tolist() == device.add(y, x).values.tolist() == [[4.0, 6.0]]


def test_a_trap_in_what_repeats_names_the_element():
    device = Device(control=FpCtl(oflo=True))
    x = device.from_host(np.ones((3, 5, 4)), BINARY16)
    x[2, 1, 3] = 60000.0
    with pytest.raises(FloatingPointError, match=r"at \(2, 1, 3\)"):
        device.multiply(x, device.from_host([1.0, 1.0, 1.0, 2.0], BINARY16))
