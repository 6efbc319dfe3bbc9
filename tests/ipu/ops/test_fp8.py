"""Products of quarters: the choice of scales, an oracle in fractions (differential)."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from fpsim import BINARY16, BINARY32, F143, F152, round_to
from fpsim.judge.oracle.units import Ask, one_output
from fpsim.records.units import find_unit
from ipu.learn.tensor import gradients
from ipu.learn.variables import (
    Variable,
)
from ipu.machine import Device, FpCtl
from ipu.ops import fp8


@pytest.mark.parametrize("fmt", [F143, F152])
@pytest.mark.parametrize("largest", [240.0, 241.0, 1.0, 1e-3, 57344.0, 60000.0, 2.0**-24, 0.0])
def test_the_scale_is_the_smallest_at_which_nothing_exceeds_the_largest_value(fmt, largest):
    device = Device("mk2-fp8")
    x = device.from_host([0.0, -largest, largest / 2], BINARY32)
    scale = fp8.scale_for(x, fmt)
    if largest == 0:
        assert scale == 0
        return
    assert largest * Fraction(2) ** -scale <= fmt.max
    assert scale == -31 or largest * Fraction(2) ** (1 - scale) > fmt.max
    quarter = fp8.quarters(device, x, fmt)
    assert (
        quarter.values.values.tolist()
        == round_to(np.ldexp(x.values.astype(float), -scale), fmt).tolist()
    )


@pytest.mark.parametrize(
    ("largest", "by_f143", "by_f152"),
    [(60000.0, 8, 1), (65504.0, 9, 1), (2.0**17, 10, 2), (1e6, 13, 5), (1e9, 22, 15),
     (240 * 2.0**31, 31, 24), (57344 * 2.0**31, 31, 31), (3e38, 31, 31),
     (57344 * 2.0**-31, -23, -31), (240 * 2.0**-31, -31, -31), (2.0**-100, -31, -31)],
)
def test_scales_of_every_size_by_hand(largest, by_f143, by_f152):
    """The quotient by 240 or 57344 as a power of two, rounded up: 1e6 / 240 = 4167 is below 2**13.

    From -31 to 31; beyond that numbers saturate or become subnormal, as in any cast.
    """
    device = Device("mk2-fp8")
    x = device.from_host([largest / 2, -largest], BINARY32)
    assert (fp8.scale_for(x, F143), fp8.scale_for(x, F152)) == (by_f143, by_f152)
    quarter = fp8.quarters(device, x, F143)
    assert quarter.values.values[1] == round_to(max(-largest * 2.0**-by_f143, -240.0), F143)


def test_infinities_do_not_choose_the_scale_and_become_nan():
    device = Device("mk2-fp8")
    quarter = fp8.quarters(device, device.from_host([np.inf, 3.0], BINARY16), F143)
    assert quarter.scale == -6
    assert np.isnan(quarter.values.values).tolist() == [True, False]


def oracle(device, left, right):
    """left @ right through the unit, each output in exact fractions; rounding to nearest."""
    a, b = left.values, right.values
    settings = device.context(BINARY16).core.settings
    ask = Ask(
        find_unit("AMP_F8_F16"), a.format, b.format, settings, left.scale + right.scale, "keep"
    )
    rows, columns = a.codes().tolist(), b.T.codes().tolist()
    results = [[one_output(ask, row, column, 0)[0] for column in columns] for row in rows]
    return [[float(d.magnitude) * (-1 if d.sign else 1) for d in row] for row in results]


def test_a_product_of_quarters_and_its_gradients_are_the_unit_s_dot_products():
    device = Device("mk2-fp8")
    rng = np.random.default_rng(3)
    x, y = (
        Variable(device.from_host(values, BINARY16), device, name)
        for name, values in (
            ("x", rng.normal(size=(3, 40))),
            ("y", 1e-3 * rng.normal(size=(40, 2))),
        )
    )
    product = fp8.matmul(x, y)
    g = device.from_host(1e-4 * rng.normal(size=(3, 2)), BINARY16)
    results = [product.array, *gradients(product, [x, y], g)]
    a, b = (fp8.quarters(device, t.array, F143) for t in (x, y))
    c = fp8.quarters(device, g, F152)
    for array, (left, right) in zip(results, ((a, b), (c, b.T), (a.T, c)), strict=True):
        assert array.format == BINARY16
        assert array.values.tolist() == oracle(device, left, right)


def test_a_gradient_is_converted_once_for_both_backward_rules():
    """Every stochastic operation draws: two conversions and a product, then one and two."""
    device = Device("mk2-fp8", FpCtl(esr=True))
    values = device.from_host(np.linspace(-1, 1, 32).reshape(4, 8), BINARY16)
    y = fp8.matmul(Variable(values, device, "x"), Variable(values.T, device, "y"))
    assert device.clock.operation == 3
    for _ in range(2):
        before = device.clock.operation
        gradients(y, list(y.node.inputs), y.array)
        assert device.clock.operation == before + 3


@pytest.mark.parametrize(("channels", "stride"), [(8, 1), (3, 2)])
def test_a_convolution_of_quarters_and_its_gradients_are_those_of_the_scaled_values(
    channels, stride
):
    """Small integers: every product and sum is exact, so the numbers are those of binary64."""
    device = Device("mk2-fp8")
    rng = np.random.default_rng(5)
    images = rng.integers(-3, 4, (2, 4, 4, channels))
    kernels = rng.integers(-3, 4, (3, 3, channels, 8))
    x, w = (
        Variable(device.from_host(values * size, BINARY16), device, name)
        for name, values, size in (("x", images, 2.0**-9), ("w", kernels, 2.0**3))
    )
    y = fp8.conv2d(x, w, stride=stride)
    g = rng.integers(-2, 3, y.shape)
    by_x, by_w = gradients(y, [x, w], device.from_host(g * 2.0**-4, BINARY16))
    assert (y.array.values == convolved(images, kernels, stride) * 2.0**-6).all()
    # <g, J v> for unit tensors v: each gradient element is a convolution with one of them.
    for gradient, shape, size, moved in (
        (by_x, images.shape, 2.0**-1, lambda v: convolved(v, kernels, stride)),
        (by_w, kernels.shape, 2.0**-13, lambda v: convolved(images, v, stride)),
    ):
        for index in rng.integers(0, np.prod(shape), 12):
            v = np.zeros(shape)
            v.flat[index] = 1
            assert gradient.values.flat[index] == (g * moved(v)).sum() * size


def convolved(x, w, stride):
    """The definition, padded as TensorFlow's SAME."""
    n, sizes, kernel = len(x), x.shape[1:3], w.shape[:2]
    steps = [-(-size // stride) for size in sizes]
    total = [
        max((m - 1) * stride + k - size, 0) for m, k, size in zip(steps, kernel, sizes, strict=True)
    ]
    around = [(0, 0), *((t // 2, t - t // 2) for t in total), (0, 0)]
    padded = np.pad(x, around)
    y = np.zeros((n, *steps, w.shape[3]))
    for i in range(steps[0]):
        for j in range(steps[1]):
            top, left = i * stride, j * stride
            window = padded[:, top : top + kernel[0], left : left + kernel[1]]
            y[:, i, j] = np.tensordot(window, w, 3)
    return y
