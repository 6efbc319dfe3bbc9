"""Reductions bit for bit (differential: numpy, one operation at a time); empty axes (corners)."""

from __future__ import annotations

import numpy as np
import pytest

from fpsim import BINARY16, BINARY32
from fpsim.array import Array
from ipu import ops
from ipu.machine import Device
from ipu.machine.control import FpSts
from ipu.ops.reductions import first_index
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


def test_a_maximum_that_is_read_as_zero_takes_the_gradient():
    device = Device()
    values = np.float32([-1.0, -1e-41, 1e-42, 1e-41])
    x = Array(values, device.context(BINARY32))
    y, saved = ops.reduce_max.forward(device, x)
    assert (float(y), first_index(saved)) == (0.0, 1)  # zeros of both signs are equal
    assert ops.reduce_max.pull(0, device, y.like(np.float32(2.0)), saved).tolist() == [0, 2, 0, 0]
    images = x.reshape((1, 1, 4, 1))
    _, saved = ops.max_pool.forward(device, images, size=(1, 4), ties="first")
    slope = y.like(np.full((1, 1, 1, 1), 2.0, np.float32))
    pooled = ops.max_pool.pull(0, device, slope, saved)
    assert pooled.reshape((4,)).tolist() == [0, 2, 0, 0]


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


# Spreads, norms, products, running results -------------------------------------------------------

f = np.float32


def of_device(row, x, fmt, **options):
    device = machine()
    return row.value(device, device.from_host(x, fmt), **options).to_numpy(), device


@FORMATS
def test_a_variance_is_single_inside(fmt):
    x = numbers((6, 7), fmt, scale=3.0)
    mean = sum_of(x.astype(f), 1) * f(1 / 7)
    squares = (x.astype(f) - mean[:, None]) ** 2
    variance = sum_of(squares, 1) * f(1 / 6)
    got, _ = of_device(ops.reduce_variance, x, fmt, axis=-1)
    np.testing.assert_array_equal(got, variance.astype(x.dtype))
    root, _ = of_device(ops.reduce_variance, x, fmt, axis=1, root=True, keepdims=True)
    np.testing.assert_array_equal(root, np.sqrt(variance).astype(x.dtype)[:, None])
    biased, _ = of_device(ops.reduce_variance, x, fmt, axis=1, correction=0)
    whole = sum_of(squares, 1) * f(1 / 7)
    np.testing.assert_array_equal(biased, whole.astype(x.dtype))


@FORMATS
def test_norms(fmt):
    x = numbers((6, 7), fmt, scale=3.0)
    of_two, _ = of_device(ops.vector_norm, x, fmt, axis=1)
    np.testing.assert_array_equal(of_two, np.sqrt(sum_of(x.astype(f) ** 2, 1)))
    assert of_two.dtype == f
    of_one, _ = of_device(ops.vector_norm, x, fmt, axis=1, order=1)
    np.testing.assert_array_equal(of_one, sum_of(np.abs(x.astype(f)), 1).astype(x.dtype))
    largest, _ = of_device(ops.vector_norm, x, fmt, axis=(0, 1), order=np.inf, keepdims=True)
    assert largest.tolist() == [[np.abs(x).max()]]
    half, _ = of_device(ops.half_square_sum, x, fmt)
    assert half == (sum_of((x.astype(f) ** 2).reshape(1, -1), 1) * f(0.5)).astype(x.dtype)[0]


def test_a_norm_with_a_nan_is_nan_and_another_order_is_refused():
    x = np.array([[1, np.nan], [2, 3]])
    norm, _ = of_device(ops.vector_norm, x, BINARY16, axis=1, order=np.inf)
    assert np.isnan(norm[0])
    assert norm[1] == 3
    with pytest.raises(ValueError, match="order=3 is no norm of the machine; use 1, 2 or inf"):
        of_device(ops.vector_norm, x, BINARY16, order=3)


@FORMATS
def test_a_product_rounds_each_step_in_order(fmt):
    x = numbers((5, 3, 2), fmt, scale=2.0)
    expected = np.ones((3,), x.dtype)
    for i, (a, b) in enumerate((i, j) for i in range(5) for j in range(2)):
        expected = x[a, :, b] if not i else expected * x[a, :, b]
    got, _ = of_device(ops.reduce_product, x, fmt, axis=(0, 2))
    np.testing.assert_array_equal(got, expected)
    nothing, _ = of_device(ops.reduce_product, np.ones((0, 2)), fmt, axis=0, keepdims=True)
    assert nothing.tolist() == [[1, 1]]


@FORMATS
@pytest.mark.parametrize("is_reversed", [False, True])
@pytest.mark.parametrize("is_exclusive", [False, True])
def test_running_results_are_single_and_each_is_rounded(fmt, is_reversed, is_exclusive):
    x = numbers((4, 6), fmt, scale=3.0)
    for row, combine, start in (
        (ops.cumulative_sum, np.add, 0), (ops.cumulative_product, np.multiply, 1),
    ):
        y = x.astype(f)[:, :: -1 if is_reversed else 1]
        y = combine.accumulate(y, axis=1, dtype=f)
        if is_exclusive:
            y = np.concatenate([np.full((4, 1), start, f), y[:, :-1]], 1)
        expected = y[:, :: -1 if is_reversed else 1].astype(x.dtype)
        got, _ = of_device(row, x, fmt, axis=1, reverse=is_reversed, exclusive=is_exclusive)
        np.testing.assert_array_equal(got, expected)
