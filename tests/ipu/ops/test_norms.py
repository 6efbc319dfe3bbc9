"""Norms: bit for bit in numpy, step by step (differential); what stable statistics are for."""

from __future__ import annotations

import math

import numpy as np
import pytest

from fpsim import BINARY16, BINARY32
from ipu import ops
from ipu.learn.tensor import gradients
from ipu.learn.variables import Variable
from ipu.machine import Device, FpCtl, FpSts
from ipu.ops import norms
from tests.ipu.learn.twin import sum_of

DTYPES = {BINARY16: np.float16, BINARY32: np.float32}
EPSILON = 1e-3
f = np.float32


def leaves(fmt, *arrays, **options):
    device = Device(f32_denormals="ieee", **options)
    return [Variable(device.from_host(a, fmt), device, f"x{k}") for k, a in enumerate(arrays)]


def reduced(x, scale):
    """Rows of (groups, n): the sum in float32 in order, times the scale, in float32."""
    return sum_of(x.astype(f), 1)[:, None] * f(scale)


def statistics(x, stable, unbiased):
    """Of rows (groups, n) in their format h: mean and inverse deviation as the page says."""
    h, n = x.dtype.type, x.shape[1]
    mean = reduced(x, 1 / n).astype(h)
    wide = ((x - mean) if stable else x).astype(f)
    power = reduced(wide * wide, 1 / n)
    if not stable:
        power = np.maximum(power - mean.astype(f) * mean.astype(f), f(0))
    shifted = power + f(EPSILON)
    if unbiased:
        shifted = shifted * f(n / (n - 1))
    return mean, (f(1) / np.sqrt(shifted)).astype(h)


def whitened_gradient(h, w, inverse):
    share = -1 / h.shape[1]
    bend, shift = (reduced(a, share).astype(h.dtype) for a in (w * h, h))
    return (h + w * bend + shift) * inverse


#: How elements stand in rows, and back: (rows from x, x from rows).
SHAPE = (3, 4, 2, 6)


def batch(x):
    return x.reshape(-1, 6).T


def unbatch(rows):
    return rows.T.reshape(SHAPE)


def strided(x):
    return x.reshape(3, 24, 2).transpose(0, 2, 1).reshape(6, 24)


def unstrided(rows):
    return rows.reshape(3, 2, 24).transpose(0, 2, 1).reshape(SHAPE)


def neighbours(x):
    return x.reshape(3, 8, 2, 3).transpose(0, 2, 1, 3).reshape(6, 24)


def unneighbours(rows):
    return rows.reshape(3, 2, 8, 3).transpose(0, 2, 1, 3).reshape(SHAPE)


KINDS = {
    "batch": ("batch_norm", {}, batch, unbatch),
    "strided": ("group_norm", {"groups": 2}, strided, unstrided),
    "neighbours": ("group_norm", {"groups": 2, "strided": False}, neighbours, unneighbours),
    "layer": ("layer_norm", {}, lambda x: x.reshape(3, 48), lambda rows: rows.reshape(SHAPE)),
}


@pytest.mark.source("S4-45")
@pytest.mark.parametrize("fmt", [BINARY16, BINARY32], ids=str)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("stable", "unbiased"), [(False, False), (True, False), (True, True)])
def test_norms_round_where_the_page_says(fmt, kind, stable, unbiased):
    name, options, rows_of, from_rows = KINDS[kind]
    h, rng = DTYPES[fmt], np.random.default_rng(3)
    x, g = (rng.standard_normal(SHAPE).astype(h) for _ in range(2))
    gamma, beta = (rng.standard_normal(6).astype(h) for _ in range(2))
    sources = leaves(fmt, x, gamma, beta)
    y = ops.PRIMITIVES[name](*sources, epsilon=EPSILON, stable=stable, unbiased=unbiased, **options)
    rows = rows_of(x)
    mean, inverse = statistics(rows, stable, unbiased)
    w = from_rows((rows - mean) * inverse)
    np.testing.assert_array_equal(y.array.to_numpy(), w * gamma + beta)
    actual = [a.to_numpy() for a in gradients(y, sources, y.device.from_host(g, fmt))]
    back = whitened_gradient(rows_of(g * gamma), rows_of(w), inverse)
    np.testing.assert_array_equal(actual[0], from_rows(back))
    np.testing.assert_array_equal(actual[1], reduced(batch(w * g), 1).ravel().astype(h))
    np.testing.assert_array_equal(actual[2], reduced(batch(g), 1).ravel().astype(h))


@pytest.mark.source("S4-44")
@pytest.mark.parametrize(
    ("fmt", "offset", "spread"), [(BINARY32, 10_000.0, 0.25), (BINARY16, 1000.0, 2.0)]
)
def test_stable_statistics_see_the_variance_beside_a_large_mean(fmt, offset, spread):
    """power and mean² agree in all digits but the last few: their difference is noise."""
    h = DTYPES[fmt]
    x = (offset + spread * np.random.default_rng(0).standard_normal((500, 3))).astype(h)
    (source,) = leaves(fmt, x)
    true = x.astype(float).var(axis=0)
    error = {}
    for stable in (False, True):
        actual = norms.batch_statistics(source.device, source.array, EPSILON, stable)
        error[stable] = np.abs(actual.variance.values.ravel() / true - 1).max()
    assert error[True] < 0.05 < 0.3 < error[False]


@pytest.mark.source("S4-45")
def test_sums_and_squares_do_not_overflow_in_half():
    """The sum of 4096 times 300 and its squares lie far beyond 65504."""
    x = np.full((1, 4096), 300.0)
    x[0, ::2] = 100.0
    sources = leaves(BINARY16, x, np.ones(4096), np.zeros(4096))
    y = ops.layer_norm(*sources)
    assert y.device.status == FpSts()
    assert set(y.array.values.ravel().tolist()) == {-1.0, 1.0}


def test_a_negative_variance_becomes_zero_and_nan_stays():
    for fmt, value, expected in ((BINARY32, 1000.1, 0.0), (BINARY16, math.nan, math.nan)):
        (source,) = leaves(fmt, np.full((5, 1), value))
        actual = norms.batch_statistics(source.device, source.array, 0.0, stable=False)
        np.testing.assert_array_equal(actual.variance.values.ravel(), [expected])


def test_all_is_drawn_in_turn_under_stochastic_rounding():
    """Equal seeds, equal bits; mean, centring, inverse and four more operations round."""
    x = np.random.default_rng(0).standard_normal((8, 3))
    actual = []
    for _ in range(2):
        sources = leaves(BINARY16, x, np.ones(3), np.zeros(3), control=FpCtl(esr=True), seed=4)
        y = ops.batch_norm(*sources)
        actual.append(y.array.values.tolist())
        assert y.device.clock.operation == 6
    assert actual[0] == actual[1]


def test_channels_and_groups_have_to_fit():
    x, gamma, short = leaves(BINARY16, np.ones((2, 6)), np.ones(6), np.ones(3))
    with pytest.raises(ValueError, match="groups=4 does not divide 6 channels"):
        ops.group_norm(x, gamma, gamma, groups=4)
    with pytest.raises(ValueError, match="go with 6 channels; give one number for each"):
        ops.layer_norm(x, gamma, short)


@pytest.mark.parametrize("stable", [False, True])
def test_an_empty_batch_has_statistics_that_are_nan_and_empty_results(stable):
    x, gamma, beta = leaves(BINARY16, np.zeros((0, 3)), np.ones(3), np.ones(3))
    result = ops.batch_norm(x, gamma, beta, stable=stable)
    assert result.array.shape == (0, 3)
    moments = norms.batch_statistics(x.device, x.array, EPSILON, stable)
    assert np.isnan(moments.mean.values).all()


def test_the_unbiased_variance_of_one_element_is_divided_by_zero():
    x, gamma, beta = leaves(BINARY16, np.full((1, 2), 3.0), np.ones(2), np.full(2, 0.5))
    result = ops.batch_norm(x, gamma, beta, unbiased=True, epsilon=EPSILON)
    assert result.array.values.tolist() == [[0.5, 0.5]]


# Around norms ------------------------------------------------------------------------------------


@pytest.mark.parametrize("fmt", DTYPES, ids=str)
def test_a_moving_average_rounds_both_products_and_the_sum(fmt):
    h, rng = DTYPES[fmt], np.random.default_rng(3)
    old, fresh = (rng.standard_normal(50).astype(h) for _ in range(2))
    expected = old * h(0.9) + fresh * h(0.1)
    for order in (False, True):
        device = Device()
        arrays = [device.from_host(x, fmt) for x in (old, fresh)]
        got = ops.moving_average.value(device, *arrays, rest=0.9, share=0.1, fresh_first=order)
        np.testing.assert_array_equal(got.to_numpy(), expected)


def test_an_unbiased_variance_is_one_product():
    device = Device()
    variance = device.from_host(np.linspace(0.1, 3, 20, dtype=f), BINARY32)
    got = ops.unbiased.value(device, variance, n=7).to_numpy()
    np.testing.assert_array_equal(got, variance.to_numpy() * f(7 / 6))
    assert ops.unbiased.value(device, variance, n=1).tolist() == variance.tolist()


@pytest.mark.parametrize("fmt", DTYPES, ids=str)
def test_a_weight_norm_is_single_inside(fmt):
    h, rng = DTYPES[fmt], np.random.default_rng(4)
    v, g = rng.standard_normal((4, 6)).astype(h), rng.standard_normal((4, 1)).astype(h)
    device = Device()
    w, (norms,) = ops.weight_norm.forward(
        device, device.from_host(v, fmt), device.from_host(g, fmt)
    )
    sizes = np.sqrt(sum_of(v.astype(f) ** 2, 1))[:, None]
    np.testing.assert_array_equal(norms.to_numpy(), sizes)
    np.testing.assert_array_equal(w.to_numpy(), (v.astype(f) * (g.astype(f) / sizes)).astype(h))


def test_gradients_of_a_weight_norm_are_the_derivative():
    """Beside differences of numpy in binary64."""
    rng = np.random.default_rng(5)
    v, g, u = rng.standard_normal((3, 4)), rng.standard_normal((3, 1)), rng.standard_normal((3, 4))

    def loss(v, g):
        return float((g * v / np.linalg.norm(v, axis=1, keepdims=True) * u).sum())

    def slope(x, other, at):
        step = 1e-6
        result = np.zeros_like(x)
        for place in np.ndindex(x.shape):
            moved = [x.copy(), x.copy()]
            moved[0][place] += step
            moved[1][place] -= step
            ahead, behind = (loss(*at(m, other)) for m in moved)
            result[place] = (ahead - behind) / (2 * step)
        return result

    device = Device()
    arrays = [device.from_host(x, BINARY32) for x in (u, v, g, np.linalg.norm(v, axis=1))]
    to_v, to_g = norms.weight_norm_gradients(device, *arrays, 0)
    of_v = slope(v, g, lambda x, y: (x, y))
    np.testing.assert_allclose(to_v.to_numpy(), of_v, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(
        to_g.to_numpy().reshape(3, 1), slope(g, v, lambda x, y: (y, x)), rtol=1e-4
    )
