"""Activations: as TensorFlow in float32, rounded once in half (differential, exact)."""

from __future__ import annotations

import math

import numpy as np
import pytest

from tests.ipu.frontends.tensorflow.framework import configured, launch, machine, tf
from tests.ipu.frontends.tensorflow.kernels.nodes import agree, half, numbers, on_machine

x = np.append(4 * numbers(40), np.float32([0, 1e-6, -1e-6, 7, -30]))
nn = tf.nn

CASES = {
    "Log1p": (lambda a: tf.math.log1p(tf.abs(a)), x),
    "Expm1": (tf.math.expm1, x),
    "Softplus": (nn.softplus, x),
    "Elu": (nn.elu, x),
    "EluGrad": (nn.elu, x),
    "Relu6": (nn.relu6, x),
    "Relu6Grad": (nn.relu6, x),
    "Softsign": (nn.softsign, x),
    "SoftsignGrad": (nn.softsign, x),
    "Selu": (nn.selu, x),
    "SeluGrad": (nn.selu, x),
    "LeakyRelu": (lambda a: nn.leaky_relu(a, 0.3), x),
    "LeakyReluGrad": (lambda a: nn.leaky_relu(a, 0.3), x),
}


@pytest.mark.parametrize("node", CASES)
def test_float32_is_as_on_tensorflow(node):
    agree(node, *CASES[node])


@pytest.mark.parametrize(
    ("function", "exact"),
    [
        (tf.math.log1p, math.log1p),
        (tf.math.expm1, math.expm1),
        (nn.elu, lambda v: v if v > 0 else math.expm1(v)),
        (nn.softplus, lambda v: max(v, 0.0) + math.log1p(math.exp(-abs(v)))),
        (nn.relu6, lambda v: min(max(v, 0.0), 6.0)),
    ],
)
def test_halves_are_rounded_once(function, exact):
    values = np.append(np.abs(half(200)), np.float16([1e-3, 6e-5, 5, 9]))
    (result,), _ = on_machine(function, values)
    assert np.array_equal(result, np.float16([exact(float(v)) for v in values]))


def test_small_numbers_keep_their_digits():
    small = tf.constant([1e-6, -1e-7, 3e-9])
    with machine(f32_denormals="ieee"):
        for function, exact in ((tf.math.log1p, np.log1p), (tf.math.expm1, np.expm1)):
            result = launch(tf.function(function), small).numpy()
            assert np.allclose(result, exact(small.numpy().astype(float)), rtol=3e-7, atol=0)


def test_ordinary_numbers_and_infinities_stop_no_machine_with_traps():
    ends = tf.constant([0.0, 1e-9, 3.0, -100.0, -3.0, np.inf])
    with machine():
        configured(inv=True, div0=True)
        for function in (tf.math.expm1, nn.elu, nn.softplus):
            result = launch(tf.function(function), ends).numpy()
            assert np.allclose(result, function(ends).numpy(), rtol=1e-6)
        log = launch(tf.function(lambda a: tf.math.log1p(tf.abs(a))), ends).numpy()
        assert np.isinf(log[-1])
        assert np.isfinite(log[:-1]).all()


def test_the_cross_entropy_of_truth_values_runs():
    agree(
        "Log1p",
        lambda a: tf.nn.sigmoid_cross_entropy_with_logits(logits=a, labels=tf.ones_like(a)), x,
    )
