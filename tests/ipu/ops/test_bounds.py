"""Neighbours, numbers in place of infinities, and remainders (known answers, exhaustive)."""

from __future__ import annotations

import math

import numpy as np
import pytest

from fpsim import BINARY16
from ipu import ops
from ipu.machine import Device, FpCtl


def halves(values, **control):
    device = Device("hypothetical", FpCtl(**control)) if control else Device("hypothetical")
    return device, device.from_host(values, BINARY16)


def test_numbers_stand_for_nan_and_infinities():
    device, x = halves([math.inf, -math.inf, math.nan, -0.0, 1.5])
    assert ops.finite.value(device, x).values.tolist() == [65504.0, -65504.0, 0.0, -0.0, 1.5]
    result = ops.finite.value(device, x, nan=7.0, above=2.0, below=-math.inf)
    assert result.values.tolist() == [2.0, -math.inf, 7.0, -0.0, 1.5]
    gradient = ops.finite.pull(0, device, device.from_host(np.ones(5), BINARY16), (x,))
    assert gradient.values.tolist() == [0.0, 0.0, 0.0, 1.0, 1.0]
    assert not device.status_word


def test_the_neighbour_of_every_half_is_numpys():
    codes = np.arange(1 << 16, dtype=np.uint16).view(np.float16)
    finite = codes[np.isfinite(codes)]
    device, x = halves(finite.astype(np.float32))
    for side in (np.inf, -np.inf):
        y = device.from_host(np.full(finite.shape, side), BINARY16)
        with np.errstate(all="ignore"):
            expected = np.nextafter(finite, np.float16(side))
        np.testing.assert_array_equal(ops.next_after.value(device, x, y).values, expected)


@pytest.mark.parametrize(
    ("row", "expected"),
    [(ops.fmod, [2.0, -2.0, -0.0, 2.0]), (ops.floor_mod, [2.0, 1.0, -0.0, -1.0])],
)
def test_remainders_have_the_sign_of_one_operand(row, expected):
    device, x = halves([5.0, -5.0, -6.0, 5.0])
    y = device.from_host([3.0, 3.0, 3.0, -3.0], BINARY16)
    z = row.value(device, x, y).values
    assert z.tolist() == expected
    assert np.signbit(z).tolist() == np.signbit(expected).tolist()
    assert not device.status_word


@pytest.mark.source("IEEE 754-2019 §9.2: invalid operation of an infinite operand")
@pytest.mark.parametrize("row", [ops.sin, ops.cos, ops.tan, ops.asin, ops.floor_mod, ops.fmod])
def test_infinity_is_outside_of_a_domain_as_numbers_are(row):
    device, x = halves([math.inf])
    others = [device.from_host([2.0], BINARY16)] * (len(row.vjps) - 1)
    assert np.isnan(row.value(device, x, *others).values).all()
    assert device.status.inv


@pytest.mark.parametrize("row", [ops.fmod, ops.floor_mod])
def test_a_remainder_by_zero_is_invalid_and_traps(row):
    device, x = halves([1.0])
    zero = device.from_host([0.0], BINARY16)
    assert np.isnan(row.value(device, x, zero).values).all()
    assert device.status.inv
    device, x = halves([1.0], inv=True)
    with pytest.raises(FloatingPointError):
        row.value(device, x, device.from_host([0.0], BINARY16))
