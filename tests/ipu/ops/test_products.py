"""Convolutions bit for bit (differential): chains of fused multiply-adds in numpy."""

from __future__ import annotations

import numpy as np
import pytest

from fpsim import BINARY16, BINARY32
from fpsim.records.geometry import geometry
from ipu import ops
from ipu.learn.tensor import OperationCost, Tensor, gradients
from ipu.learn.variables import Variable
from tests.ipu.learn.twin import fma
from tests.ipu.ops.bits import gradient_of, leaf, machine, numbers


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


def leaves(device, values, fmt=BINARY32):
    return [Variable(device.from_host(x, fmt), device, f"x{k}") for k, x in enumerate(values)]


@pytest.mark.source("S4-19")
@pytest.mark.source("S4-18")
def test_dense_layer_with_single_parameters_on_a_column_vector():
    device = machine()
    weights, biases = leaves(device, [np.arange(6.0).reshape(2, 3), [[0.5], [0.25]]])
    x = Tensor(device.from_host([1.0, 2.0, 3.0], BINARY16), device)
    column = ops.reshape(x, shape=(3, 1))
    half_weights, half_biases = (ops.cast(p, dtype=BINARY16) for p in (weights, biases))
    product = ops.matmul(half_weights, column)
    y = ops.reshape(ops.bias(product, half_biases), shape=(2,))
    assert [t.dtype for t in (half_weights, product, y)] == [BINARY16] * 3
    assert y.array.values.tolist() == [8.5, 26.25]
    pair = gradients(y, [weights, biases], device.from_host([1.0, 1.0], BINARY16))
    assert [g.format for g in pair] == [BINARY32] * 2
    assert pair[0].values.tolist() == [[1.0, 2.0, 3.0]] * 2


def test_a_bias_times_zero_is_not_read():
    device = machine()
    bias, x, y = (device.from_host(v, BINARY16) for v in ([[np.inf]], [[2.0]], [[3.0]]))
    assert ops.matmul_bias.value(device, bias, x, y, beta=0).values == 6
    rounded = device.from_host(0.0, BINARY16)  # a factor that was rounded to zero is one
    assert np.isnan(ops.matmul_bias.value(device, bias, x, y, beta=rounded).values)


def test_the_work_of_a_transposed_convolution_counts_each_side_of_its_kernel():
    """2 × 5 × 6 elements of three channels, each times 2 × 5 places of four channels."""
    device = machine()
    x, w = leaves(device, [numbers((2, 5, 6, 3), BINARY32), numbers((2, 5, 4, 3), BINARY32)])
    y = ops.conv2d_transpose(x, w, shape=(2, 5, 6, 4))
    assert y.node.cost == OperationCost(macs=2 * 5 * 6 * 3 * 2 * 5 * 4)
