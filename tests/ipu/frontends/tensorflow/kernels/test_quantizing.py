"""Fake quantisation: TensorFlow's bits in binary32, each operation rounded (differential, law)."""

from __future__ import annotations

import numpy as np
import pytest

from tests.ipu.frontends.tensorflow.framework import launch, machine, tf
from tests.ipu.frontends.tensorflow.kernels.nodes import agree, numbers

Q = tf.quantization
x = numbers(64, 5)
LOW, HIGH = np.float32([-1.1, -0.2, 0, -3, -0.5]), np.float32([0.7, 0.1, 6, 0, 0.5])


def by_args(a):
    return Q.fake_quant_with_min_max_args(a, -1.2, 1.3)


def by_vars(a, low, high):
    return Q.fake_quant_with_min_max_vars(a, low, high, num_bits=4, narrow_range=True)


def by_channel(a, low, high):
    return Q.fake_quant_with_min_max_vars_per_channel(a, low, high)


CASES = {
    "FakeQuantWithMinMaxArgs": (by_args, x),
    "FakeQuantWithMinMaxArgsGradient": (by_args, x),
    "FakeQuantWithMinMaxVars": (by_vars, x, LOW[0], HIGH[0]),
    "FakeQuantWithMinMaxVarsGradient": (by_vars, x, LOW[0], HIGH[0]),
    "FakeQuantWithMinMaxVarsPerChannel": (by_channel, x, LOW, HIGH),
    "FakeQuantWithMinMaxVarsPerChannelGradient": (by_channel, x, LOW, HIGH),
}


@pytest.mark.parametrize("node", CASES)
def test_float32_is_as_on_tensorflow(node):
    agree(node, *CASES[node], tolerance=1e-5)


@pytest.mark.parametrize(("low", "high", "bits", "narrow"), [
    (-1.2, 1.3, 8, False), (-1.1, 1.3, 4, True), (0.0, 6.0, 8, False), (-3.0, 0.0, 2, False),
    (-0.5, 0.5, 8, True),
])
def test_values_and_gradients_have_tensorflows_bits(low, high, bits, narrow):
    """The grid's numbers, at its ends, beside them, at ties and everywhere else."""
    step = (high - low) / (2**bits - 1 - narrow)
    ties = np.float32(np.arange(-4, 2**bits + 4) * (step / 2))
    values = np.concatenate([ties, -ties, np.float32([low, high, 0, 1e9, -1e9]), numbers(2000)])
    options = {"num_bits": bits, "narrow_range": narrow}

    @tf.function
    def both(a):
        with tf.GradientTape() as tape:
            tape.watch(a)
            result = Q.fake_quant_with_min_max_args(a, low, high, **options)
        return result, tape.gradient(result, a)

    with machine(f32_denormals="ieee"):
        ours = launch(both, tf.constant(values))
    for a, b in zip(ours, both(tf.constant(values)), strict=True):
        np.testing.assert_array_equal(a.numpy().view(np.int32), b.numpy().view(np.int32))


def test_under_binary16_each_operation_rounds():
    low, high = np.float16(-1), np.float16(1)

    @tf.function
    def quantized(a):
        return Q.fake_quant_with_min_max_args(a, -1.0, 1.0, num_bits=8)

    values = numbers(500).astype(np.float16)
    with machine(policy="fp16"):
        ours = launch(quantized, tf.constant(values.astype(np.float32))).numpy()
    f = np.float16
    scale = f(f(high - low) / f(255))
    zero = f(np.floor(float(f(0 - f(low / scale))) + 0.5))
    first, last = f(f(0 - zero) * scale), f(f(f(255) - zero) * scale)
    inverse = f(1 / scale)
    shifted = f(f(np.clip(values, first, last) - first) * inverse)
    quanta = f(np.floor(f(f(-first * inverse) + f(0.5))))
    expected = f(f(np.floor(f(f(shifted - quanta) + f(0.5)))) * scale)
    np.testing.assert_array_equal(ours, expected.astype(np.float32))
