"""Batch norm: as TensorFlow in float32, as the primitive in half (differential)."""

from __future__ import annotations

import numpy as np
import pytest

from fpsim import BINARY16, BINARY32
from ipu import ops
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
        )[:3]

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


def with_slopes(layer, a, g):
    """What a Keras layer gives of halves, and its gradients to the input and its variables."""

    def compute(a, g):
        sources = [a, layer.gamma, layer.beta]
        with tf.GradientTape() as tape:
            tape.watch(a)
            y = layer(a)
        return y, *tape.gradient(y, sources, output_gradients=g)

    layer(a)
    layer.set_weights([np.asarray(numbers(16, seed=s), w.dtype) for s, w in
                       zip((1, 2), layer.get_weights(), strict=True)])
    return on_machine(compute, a, g)[0]


def same_bits(results, expected):
    for ours, theirs in zip(results, expected, strict=True):
        np.testing.assert_array_equal(
            ours.astype("f4").view("u4"), np.float32(theirs.values).view("u4")
        )


def test_layer_norm_of_halves_with_variables_of_float32_is_the_primitive():
    """Keras takes the node of batch norm, whose rows are channels; the bits are layer norm's."""
    a, g = half(2, 4, 16), half(2, 4, 16, seed=3)
    layer = tf.keras.layers.LayerNormalization(epsilon=0.01, dtype="mixed_float16")
    results = with_slopes(layer, a, g)
    device = Device()
    rows = [device.from_host(v.reshape(8, 16), BINARY16) for v in (a, g)]
    others = [device.from_host(numbers(16, seed=s), BINARY16) for s in (1, 2)]
    y, saved = ops.layer_norm.forward(device, rows[0], *others, epsilon=0.01)
    to_x, *slopes = (rule(device, rows[1], saved) for rule in ops.layer_norm.vjps)
    same_bits(results, [y.reshape(2, 4, 16), to_x.reshape(2, 4, 16), *slopes])


def test_layer_norm_of_halves_alone_is_its_nodes_one_after_the_other():
    """Keras builds it of moments in binary32 and of operations in half: no primitive has these."""
    a, g = half(4, 16), half(4, 16, seed=3)
    layer = tf.keras.layers.LayerNormalization(epsilon=0.01, dtype="float16")
    results = with_slopes(layer, a, g)
    d = Device()
    x, slope, gamma, beta = (
        d.from_host(v, BINARY16) for v in (a, g, numbers(16, seed=1), numbers(16, seed=2))
    )

    def mean(v):
        return d.cast(d.reduce_sum(v, axis=-1, scale=1 / 16), v.format)

    def total(v, axis):
        return d.cast(d.reduce_sum(v, axis=axis), v.format)

    wide = d.cast(x, BINARY32)
    centre = mean(wide)
    gap = d.subtract(wide, centre)
    low, variance = (d.cast(v, BINARY16) for v in (centre, mean(d.multiply(gap, gap))))
    inverse = d.rsqrt(d.add(variance, d.from_host(0.01, BINARY16)))
    scale = d.multiply(inverse, gamma)
    shift = d.subtract(beta, d.multiply(low, scale))
    y = d.add(d.multiply(x, scale), shift)

    opposite = d.negative(slope)
    to_scale = d.add(d.multiply(x, slope), d.multiply(low, opposite))
    to_inverse = total(d.multiply(to_scale, gamma), -1)
    cube = d.multiply(d.multiply(inverse, inverse), inverse)
    to_variance = d.multiply(d.multiply(to_inverse, -0.5), cube)
    to_low = total(d.multiply(opposite, scale), -1)
    to_mean, to_square = (d.divide(d.cast(v, BINARY32), 16.0) for v in (to_low, to_variance))
    through = d.add(to_mean, d.multiply(d.multiply(2.0, to_square), gap))
    to_x = d.add(d.multiply(slope, scale), d.cast(through, BINARY16))
    to_gamma = total(d.multiply(inverse, to_scale), 0).reshape(-1)
    same_bits(results, [y, to_x, to_gamma, total(slope, 0).reshape(-1)])
