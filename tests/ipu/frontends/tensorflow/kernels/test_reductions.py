"""Reductions: as TensorFlow in float32, as the primitives in half (differential)."""

from __future__ import annotations

import numpy as np
import pytest

from fpsim import BINARY16
from ipu.learn import ops
from ipu.machine.device import Device
from tests.ipu.frontends.tensorflow.framework import tf
from tests.ipu.frontends.tensorflow.kernels.nodes import agree, half, numbers, on_machine

x = numbers(4, 3, 5)
CASES = {
    "Sum": (lambda a: tf.reduce_sum(a, [0, 2]), x),
    "Mean": (lambda a: tf.reduce_mean(a, 1, keepdims=True), x),
    "Max": (lambda a: tf.reduce_max(a, 2), x),
    "Min": (lambda a: tf.reduce_min(a, [0, 1]), x),
    "Prod": (lambda a: tf.reduce_prod(a, 1), x),
    "L2Loss": (tf.nn.l2_loss, x),
    "ArgMax": (lambda a: tf.argmax(a, 1), x),
    "ArgMin": (lambda a: tf.argmin(a, -1, output_type=tf.int32), x),
}


@pytest.mark.parametrize("node", CASES)
def test_float32_is_as_on_tensorflow(node):
    agree(node, *CASES[node], gradients=node not in ("Prod", "Min"))


def test_without_axes_a_tensor_is_its_sum():
    agree("Sum", lambda a: tf.reduce_sum(a, tf.constant([], tf.int32)), x)


@pytest.mark.parametrize(
    ("function", "primitive"),
    [(tf.reduce_sum, ops.reduce_sum), (tf.reduce_mean, ops.reduce_mean),
     (tf.reduce_max, ops.reduce_max)],
)  # fmt: skip
def test_halves_are_those_of_the_primitive(function, primitive):
    a = half(40, 7)
    (result,), _ = on_machine(lambda v: function(v, 0), a)
    device = Device()
    y, _ = primitive.forward(device, device.from_host(a, BINARY16), axis=0)
    np.testing.assert_array_equal(result.view(np.uint16), np.float16(y.values).view(np.uint16))
