"""Pooling: as TensorFlow in float32, as the primitives in half, ties (differential)."""

from __future__ import annotations

import gc

import numpy as np
import pytest

from fpsim import BINARY16
from ipu import ops
from ipu.machine.device import Device
from tests.ipu.frontends.tensorflow.framework import launch, machine, tf
from tests.ipu.frontends.tensorflow.kernels.nodes import agree, half, numbers, on_machine

from ipu.frontends.tensorflow.kernels import pooling  # isort: skip

images = numbers(2, 7, 7, 3)
CASES = {
    "MaxPool": (lambda a: tf.nn.max_pool2d(a, 3, 2, "SAME"), images),
    "MaxPoolGrad": (lambda a: tf.nn.max_pool2d(a, 2, 2, "VALID"), images),
    "AvgPool": (lambda a: tf.nn.avg_pool2d(a, 3, 2, "SAME"), images),
    "AvgPoolGrad": (lambda a: tf.nn.avg_pool2d(a, 3, 1, "VALID"), images),
}


@pytest.mark.parametrize("node", CASES)
def test_float32_is_as_on_tensorflow(node):
    agree(node, *CASES[node])


def pooled(a):
    with tf.GradientTape() as tape:
        tape.watch(a)
        y = tf.nn.max_pool2d(a, 2, 2, "VALID")
    return tape.gradient(y, a)


def test_the_gradient_goes_to_every_maximum_or_to_the_first():
    equal = np.ones((1, 2, 2, 1), np.float16)
    (every,), _ = on_machine(pooled, equal)
    (first,), _ = on_machine(pooled, equal, ties="first")
    assert every.ravel().tolist() == [1, 1, 1, 1]
    assert first.ravel().tolist() == [1, 0, 0, 0]


def test_what_a_maximum_saves_lives_as_long_as_its_result():
    for _ in range(2):
        on_machine(pooled, np.ones((1, 4, 4, 1), np.float16))
    gc.collect()
    assert not pooling._saved


def test_a_gradient_between_other_formats_finds_its_maxima():
    """The policy casts what it reads: the saved windows belong to another array."""
    with machine(policy={"pool": "f16"}, ties="first"):
        x = tf.constant(images)

        def program(a):
            with tf.GradientTape() as tape:
                tape.watch(a)
                with tf.name_scope("pool"):
                    y = tf.nn.max_pool2d(a, 2, 2, "VALID")
            return tape.gradient(y, a)

        slope = launch(tf.function(program), x).numpy()
    assert slope.sum() == 2 * 3 * 3 * 3


def test_averages_of_halves_are_those_of_the_primitive():
    a = half(2, 7, 7, 3)
    (result,), _ = on_machine(lambda x: tf.nn.avg_pool2d(x, 3, 2, "SAME"), a)
    device = Device()
    y, _ = ops.average_pool.forward(
        device, device.from_host(a, BINARY16), size=3, stride=2, padding="SAME"
    )
    np.testing.assert_array_equal(result.view(np.uint16), np.float16(y.values).view(np.uint16))
