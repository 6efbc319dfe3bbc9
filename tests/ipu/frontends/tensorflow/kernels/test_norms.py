"""Batch norm: as TensorFlow in float32, as the primitive in half (differential)."""

from __future__ import annotations

import numpy as np
import pytest

from fpsim import BINARY16
from ipu.learn import ops
from ipu.machine.device import Device
from tests.ipu.frontends.tensorflow.framework import tf
from tests.ipu.frontends.tensorflow.kernels.nodes import agree, half, numbers, on_machine

images, scale, offset = numbers(4, 5, 5, 3), numbers(3, seed=1), numbers(3, seed=2)
v1 = tf.compat.v1


def trained(a, s, o):
    return v1.nn.fused_batch_norm(a, s, o, is_training=True)[0]


def known(a, s, o):
    mean, variance = tf.constant([0.1, -0.2, 0.3]), tf.constant([0.9, 1.1, 2.0])
    return v1.nn.fused_batch_norm(a, s, o, mean, variance, is_training=False)[0]


CASES = {
    "FusedBatchNormV3": (known, images, scale, offset),
    "FusedBatchNormGradV3": (trained, images, scale, offset),
}


@pytest.mark.parametrize("node", CASES)
def test_float32_is_as_on_tensorflow(node):
    agree(node, *CASES[node])


@pytest.mark.parametrize("axis", [-1, [1, 2, 3]])
def test_layer_norm_of_keras_is_as_on_tensorflow(axis):
    """Its rows are channels, and these come first."""
    layer = tf.keras.layers.LayerNormalization(axis=axis, epsilon=0.01)
    rows = numbers(2, 4, 3, 16)
    layer(rows)
    agree("FusedBatchNormV3", layer, rows)
    agree("FusedBatchNormGradV3", layer, rows)


def test_statistics_are_as_on_tensorflow():
    def statistics(a, s, o):
        return v1.nn.fused_batch_norm(a, s, o, is_training=True)

    agree("FusedBatchNormV3", statistics, images, scale, offset, gradients=False)


def test_a_node_that_averages_its_statistics_does_as_tensorflow():
    def averaged(a, s, o, mean, variance):
        return tf.raw_ops.FusedBatchNormV3(
            x=a, scale=s, offset=o, mean=mean, variance=variance, epsilon=1e-3,
            exponential_avg_factor=0.1, is_training=True,
        )[:3]  # fmt: skip

    before = numbers(3, seed=3), np.abs(numbers(3, seed=4))
    agree("FusedBatchNormV3", averaged, images, scale, offset, *before, gradients=False)


def test_halves_are_those_of_the_primitive():
    a, g = half(4, 5, 5, 3), half(4, 5, 5, 3, seed=3)

    def compute(a, g):
        with tf.GradientTape() as tape:
            tape.watch(a)
            y = trained(a, tf.constant(scale), tf.constant(offset))
        return y, tape.gradient(y, a, output_gradients=g)

    results, _ = on_machine(compute, a, g)
    device = Device()
    x, slope, gamma, beta = (device.from_host(v, BINARY16) for v in (a, g, scale, offset))
    y, saved = ops.batch_norm.forward(device, x, gamma, beta, epsilon=1e-3)
    for ours, theirs in zip(
        results, (y, ops.batch_norm.vjps[0](device, slope, saved)), strict=True
    ):
        np.testing.assert_array_equal(ours.view(np.uint16), np.float16(theirs.values).view("u2"))
