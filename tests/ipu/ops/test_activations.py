"""Activations bit for bit (differential): numpy, one operation at a time."""

from __future__ import annotations

import math

import numpy as np
import pytest

from fpsim import BINARY16, BINARY32, Replay
from fpsim.judge.oracle import elementwise_R
from ipu import ops
from ipu.machine import FpCtl, FpSts
from tests.ipu.ops.bits import DTYPES, FORMATS, gradient_of, leaf, machine, numbers


@FORMATS
def test_activations_are_their_formulas(fmt):
    h = DTYPES[fmt]
    x = numbers((4, 50), fmt, scale=2.0)
    g = numbers((4, 50), fmt, 1)
    tanh = lambda v: np.tanh(v.astype(np.float64)).astype(h)  # noqa: E731
    t, s = tanh(x), (1 / (1 + np.exp(-x.astype(np.float64)))).astype(h)
    square, slope = x * x, h(0.7978845608)
    u = tanh(x * slope * (square * h(0.044715) + h(1)))
    share = (u + h(1)) * h(0.5)
    rise = x * ((h(1) - u * u) * h(0.7978845608 / 2)) * (square * h(3 * 0.044715) + h(1))
    expected = {
        "relu": (np.maximum(x, h(0)), np.where(x > 0, g, h(0))),
        "tanh": (t, g * (h(1) - t * t)),
        "sigmoid": (s, g * (s * (h(1) - s))),
        "gelu": (x * share, g * (share + rise)),
        "square": (square, g * (x * h(2))),
    }
    for name, (value, gradient) in expected.items():
        source = leaf(machine(), x, fmt)
        y = ops.PRIMITIVES[name](source)
        np.testing.assert_array_equal(y.array.to_numpy(), value, name)
        np.testing.assert_array_equal(gradient_of(y, [source], g)[0], gradient, name)


def test_gelu_saturates_without_a_trap():
    device = machine(control=FpCtl(inv=True, div0=True, oflo=True, nanoo=True))
    x = leaf(device, [1000.0, -1000.0, 0.0], BINARY16)
    y = ops.gelu(x)
    assert y.array.values.tolist() == [1000.0, 0.0, 0.0]
    assert gradient_of(y, [x], np.ones(3))[0].tolist() == [1.0, 0.0, 0.5]
    assert device.control.nanoo
    assert device.control.oflo


def test_relu_passes_nan_and_its_gradient_does_not():
    device = machine()
    x = leaf(device, [math.nan, -1.0, math.inf], BINARY16)
    y = ops.relu(x)
    np.testing.assert_array_equal(y.array.values, [math.nan, 0.0, math.inf])
    assert device.status == FpSts(inv=True)
    assert gradient_of(y, [x], np.ones(3))[0].tolist() == [0.0, 0.0, 1.0]


@pytest.mark.parametrize("esr", [False, True])
def test_dropout_keeps_by_the_device_s_bits(esr):
    """Kept iff floor(65536 keep) + R reaches 65536, R of 16 bits in the layout of elements."""
    keep, shape, seed = 0.3, (7, 31), 11
    device = machine(seed=seed, control=FpCtl(esr=esr))
    device.clock.operation = 5
    x = leaf(device, np.full(shape, 2.0), BINARY32)
    y = ops.dropout(x, keep=keep)
    t = math.floor(65536 * float(np.float32(keep)))
    r = [elementwise_R(seed, 5, i, 16) for i in range(math.prod(shape))]
    survivors = np.array([t + n >= 65536 for n in r]).reshape(shape)
    share = np.float32(1 / keep)
    np.testing.assert_array_equal(y.array.to_numpy(), np.where(survivors, 2 * share, 0))
    assert device.clock.operation == 6
    slope = gradient_of(y, [x], np.ones(shape))[0]
    np.testing.assert_array_equal(slope, np.where(survivors, share, 0))
    assert device.clock.operation == 6


def test_dropout_takes_sixteen_bits():
    device = machine()
    device.source = Replay([[0, 32767, 65534, 65535]])
    x = leaf(device, np.ones(4), BINARY32)
    assert ops.dropout(x, keep=2.0**-16).array.values.tolist() == [0, 0, 0, 65536]


def test_dropout_keeps_everything_or_refuses():
    x = leaf(machine(), np.ones(100), BINARY16)
    assert ops.dropout(x, keep=1.0).array.values.tolist() == [1.0] * 100
    for keep in (0.0, 1.5, -1.0):
        with pytest.raises(ValueError, match="is not a probability of keeping"):
            ops.dropout(x, keep=keep)


def test_an_overflow_inside_gelu_leaves_the_bits_of_the_control_register_there():
    device = machine(control=FpCtl(nanoo=True))
    ops.gelu(leaf(device, [6e4], BINARY16))
    assert device.status == FpSts(oflo=True)
