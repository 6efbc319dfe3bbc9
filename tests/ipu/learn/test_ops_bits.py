"""Primitives bit for bit (differential): numpy's float32 and float16, one operation at a time.

numpy rounds + - * / of float16 once (in float32, then to half: innocuous for these), as the machine
does. Functions come from binary64, whose rounding is the correct one on these inputs.
"""

from __future__ import annotations

import math

import numpy as np
import pytest

from fpsim import BINARY16, BINARY32, Replay
from fpsim.judge.oracle import elementwise_R
from fpsim.records.geometry import geometry
from ipu.learn import ops
from ipu.learn.tensor import Tensor, gradients
from ipu.learn.variables import Variable
from ipu.machine import Device, FpCtl, FpSts
from tests.ipu.learn.twin import exact, fma, sum_of

DTYPES = {BINARY16: np.float16, BINARY32: np.float32}
FORMATS = pytest.mark.parametrize("fmt", [BINARY16, BINARY32], ids=str)


def machine(**options) -> Device:
    return Device(f32_denormals="ieee", **options)


def leaf(device, values, fmt) -> Variable:
    return Variable(device.from_host(values, fmt), device, "x")


def numbers(shape, fmt, seed=0, scale=1.0):
    return (scale * np.random.default_rng(seed).standard_normal(shape)).astype(DTYPES[fmt])


def gradient_of(y: Tensor, sources, g):
    found = gradients(y, sources, y.device.from_host(g, y.dtype))
    return [a.to_numpy() for a in found]


# Convolution ----------------------------------------------------------------------------------


def chained(pairs, shape):
    """The chain of fused multiply-adds over (a, b), from +0."""
    total = np.zeros(shape, np.float32)
    for a, b in pairs:
        total = fma(*np.broadcast_arrays(np.float32(a), np.float32(b)), total)
    return total


@pytest.mark.parametrize(("stride", "padding"), [(1, "SAME"), (2, "VALID")])
def test_single_convolutions_are_chains_in_numpy(stride, padding):
    """Forward and input gradient over (ky, kx, channel), weight gradient over (batch, y, x)."""
    x, w = numbers((2, 5, 6, 4), BINARY32), numbers((3, 2, 4, 5), BINARY32, 1)
    device = machine()
    leaves = [leaf(device, a, BINARY32) for a in (x, w)]
    y = ops.conv2d(*leaves, stride=stride, padding=padding)
    g = numbers(y.shape, BINARY32, 2)
    dx, dw = gradient_of(y, leaves, g)
    e = geometry((5, 6), (3, 2), stride, padding)
    (top, left), (rows, columns) = e.before, e.output
    reach = ((rows - 1) * stride + 3, (columns - 1) * stride + 2)
    field = np.zeros((2, max(reach[0], top + 5), max(reach[1], left + 6), 4), np.float32)
    field[:, top : top + 5, left : left + 6] = x

    def window(a, ky, kx):
        return a[:, ky : ky + rows * stride : stride, kx : kx + columns * stride : stride]

    taps = [(ky, kx) for ky in range(3) for kx in range(2)]
    forward = ((window(field, *t)[..., c, None], w[t][c]) for t in taps for c in range(4))
    np.testing.assert_array_equal(y.array.to_numpy(), chained(forward, y.shape))
    backward = np.zeros(field.shape, np.float32)
    for t in reversed(taps):
        for o in range(5):
            part = window(backward, *t)
            spread = np.broadcast_to(g[..., o, None], part.shape)
            part[...] = fma(spread, np.broadcast_to(w[t][:, o], part.shape), part.copy())
    np.testing.assert_array_equal(dx, backward[:, top : top + 5, left : left + 6])
    for t in taps:
        pairs = zip(window(field, *t).reshape(-1, 4, 1), g.reshape(-1, 1, 5), strict=True)
        np.testing.assert_array_equal(dw[t], chained(pairs, (4, 5)))


# Elements and reductions ----------------------------------------------------------------------


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


def test_the_first_of_equal_maxima_takes_the_gradient():
    device = machine()
    x = leaf(device, [[1.0, 3.0, 3.0], [2.0, 3.0, 0.0]], BINARY16)
    y = ops.reduce_max(x)
    assert float(y.array) == 3.0
    assert gradient_of(y, [x], 1.0)[0].tolist() == [[0, 1, 0], [0, 0, 0]]
    rows = ops.reduce_max(x, axis=0)
    assert gradient_of(rows, [x], [1.0, 2.0, 4.0])[0].tolist() == [[0, 2, 4], [1, 0, 0]]


# Pooling --------------------------------------------------------------------------------------


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
        chosen = gradient_of(y, [x], np.ones((1, 1, 2, 1)))[0].ravel().tolist()
        assert chosen == ([0, 1, 1, 1] if rule == "number" else [1, 0, 1, 1])


def test_relu_passes_nan_and_its_gradient_does_not():
    device = machine()
    x = leaf(device, [math.nan, -1.0, math.inf], BINARY16)
    y = ops.relu(x)
    np.testing.assert_array_equal(y.array.values, [math.nan, 0.0, math.inf])
    assert device.status == FpSts(inv=True)
    assert gradient_of(y, [x], np.ones(3))[0].tolist() == [0.0, 0.0, 1.0]


def test_the_larger_zero_is_the_positive_one():
    device = machine()
    x = device.from_host([[-0.0, 0.0], [0.0, -0.0], [-0.0, -0.0]], BINARY16)
    found = device.reduce_max(x, axis=1).values
    assert np.signbit(found).ravel().tolist() == [False, False, True]


# Dropout --------------------------------------------------------------------------------------


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
    kept = np.array([t + n >= 65536 for n in r]).reshape(shape)
    share = np.float32(1 / keep)
    np.testing.assert_array_equal(y.array.to_numpy(), np.where(kept, 2 * share, 0))
    assert device.clock.operation == 6
    np.testing.assert_array_equal(gradient_of(y, [x], np.ones(shape))[0], np.where(kept, share, 0))
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
        with pytest.raises(ValueError, match="is no share of what is kept"):
            ops.dropout(x, keep=keep)


# Shapes ---------------------------------------------------------------------------------------


def test_what_moves_values_computes_nothing():
    device = machine(control=FpCtl(esr=True))
    x = leaf(device, np.arange(12.0).reshape(3, 4), BINARY16)
    y = ops.strided_slice(ops.pad(ops.transpose(x), paddings=[(1, 0), (0, 2)]), index=np.s_[::2])
    expected = np.pad(np.arange(12.0).reshape(3, 4).T, [(1, 0), (0, 2)])[::2]
    np.testing.assert_array_equal(y.array.values, expected)
    assert device.clock.operation == 0
    with pytest.raises(TypeError, match="is not made of slices"):
        ops.strided_slice(x, index=(0,))
    with pytest.raises(TypeError, match="fpsim never promotes"):
        ops.concat(x, leaf(device, np.ones((3, 4)), BINARY32), axis=0)
    with pytest.raises(ValueError, match="does not broadcast"):
        ops.multiply(x, leaf(device, np.ones((3, 1, 4)), BINARY16))
