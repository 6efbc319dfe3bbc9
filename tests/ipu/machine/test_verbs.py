"""Verbs that take a short way (differential): the same values, flags and random bits as the long;
the largest of a row beside its definition in integers.

Counting takes the long way, so that a counting device judges one that does not count; what counting
devices take the short way too is beside the operation that it stands for.
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
@pytest.mark.parametrize("nan", [False, True])
def test_a_counted_relu_is_the_maximum_with_zero(fmt, denormals, nan):
    devices = [Device("hypothetical", f32_denormals=denormals, count=True) for _ in range(2)]
    x, y = (every_kind(device, fmt, nan) for device in devices)
    agree([devices[0].relu(x), devices[1].context(fmt).maximum(y, 0.0)], devices)
    assert devices[0].counts == devices[1].counts
    assert devices[0].counts["", "maximum"]["results"] == x.size


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


# The largest -----------------------------------------------------------------------------------


def largest_of(codes, fmt, max_nan):
    """The code of the largest of a row, from integers alone: -0 < +0, and the rule for NaN."""
    top = 1 << fmt.bits - 1
    infinity = (top - 1) ^ ((1 << fmt.precision - 1) - 1)
    numbers = [code for code in codes if code & (top - 1) <= infinity]
    if not numbers or (max_nan == "propagate" and len(numbers) < len(codes)):
        return infinity | 1 << fmt.precision - 2  # the quiet NaN
    return max(numbers, key=lambda code: top - 1 - code if code & top else code)


@pytest.mark.parametrize("max_nan", ["number", "propagate"])
@FORMATS
def test_a_signalling_nan_removes_no_number_wherever_it_stands(fmt, max_nan):
    """Vectors of the processor are 4, 8 or 16 lanes, and a rest: every length, every place."""
    rng = np.random.default_rng(5)
    top = 1 << fmt.bits - 1
    infinity = (top - 1) ^ ((1 << fmt.precision - 1) - 1)
    nans = [infinity | 1, top | infinity | 1, infinity | 1 << fmt.precision - 2, top | infinity | 3]
    device = Device("hypothetical", max_nan=max_nan, f32_denormals="ieee")
    rows = []
    for n in (1, 2, 3, 4, 7, 8, 9, 16, 17, 31, 33, 49, 70):
        for place in range(n):
            row = rng.integers(0, infinity, n) | rng.integers(0, 2, n) * top
            if place % 5 == 0:
                row[:] = rng.choice([0, top], n)  # zeros of both signs
            row[place] = nans[place % 4]
            rows.append(row)
    rows += [np.full(5, nans[0]), np.array([0, top]), np.array([top, top, top])]
    for row in rows:
        x = device.context(fmt).wrap(from_codes(row.astype(fmt.code_dtype), fmt))
        for of, axis in ((x.reshape(1, -1), 1), (x.reshape(-1, 1), 0)):
            largest = int(device.reduce_max(of, axis).codes().item())
            assert largest == largest_of(row.tolist(), fmt, max_nan), [hex(c) for c in row]


def test_the_largest_of_a_row_without_nan_raises_nothing_and_of_one_with_it_inv():
    device = Device()
    x = device.from_host([[1.0, 2.0], [4.0, 3.0]], BINARY16)
    assert device.reduce_max(x, 1).values.tolist() == [[2.0], [4.0]]
    assert not device.status.inv
    device.reduce_max(device.from_host([[1.0, math.nan]], BINARY16), 1)
    assert device.status.inv


def test_there_is_nothing_to_be_the_largest_of_no_rows():
    device = Device()
    assert device.reduce_max(device.zeros((0, 4), BINARY16), 1).shape == (0, 1)
    with pytest.raises(ValueError, match="zero-size"):
        device.reduce_max(device.zeros((4, 0), BINARY16), 1)
