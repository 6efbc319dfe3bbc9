"""Reductions: as TensorFlow in float32, as the primitives in half (differential)."""

from __future__ import annotations

import numpy as np
import pytest

from fpsim import BINARY16
from ipu import ops
from ipu.machine.device import Device
from tests.ipu.frontends.tensorflow.framework import configured, launch, machine, tf
from tests.ipu.frontends.tensorflow.kernels.nodes import agree, half, numbers, on_machine

x = numbers(4, 3, 5)
CASES = {
    "Sum": (lambda a: tf.reduce_sum(a, [0, 2]), x),
    "Mean": (lambda a: tf.reduce_mean(a, 1, keepdims=True), x),
    "Max": (lambda a: tf.reduce_max(a, 2), x),
    "Min": (lambda a: tf.reduce_min(a, [0, 1]), x),
    "Prod": (lambda a: tf.reduce_prod(a, 1), x),
    "Cumsum": (lambda a: tf.cumsum(a, 1), x),
    "Cumprod": (lambda a: tf.math.cumprod(a, -1), x),
    "EuclideanNorm": (lambda a: tf.math.reduce_euclidean_norm(a, [0, 2]), x),
    "L2Loss": (tf.nn.l2_loss, x),
    "ArgMax": (lambda a: tf.argmax(a, 1), x),
    "ArgMin": (lambda a: tf.argmin(a, -1, output_type=tf.int32), x),
}


@pytest.mark.parametrize("node", CASES)
def test_float32_is_as_on_tensorflow(node):
    agree(node, *CASES[node], gradients=node != "Min")


def test_without_axes_a_tensor_is_its_sum():
    agree("Sum", lambda a: tf.reduce_sum(a, tf.constant([], tf.int32)), x)


@pytest.mark.parametrize("exclusive", [False, True])
@pytest.mark.parametrize("reverse", [False, True])
def test_running_sums_go_either_way(exclusive, reverse):
    agree("Cumsum", lambda a: tf.cumsum(a, 1, exclusive, reverse), x)
    agree("Cumprod", lambda a: tf.math.cumprod(a, 1, exclusive, reverse), x, gradients=False)


def test_each_running_sum_of_halves_is_rounded_once():
    a = half(200)
    (result,), _ = on_machine(tf.cumsum, a)
    expected = np.add.accumulate(a.astype(np.float32)).astype(np.float16)
    np.testing.assert_array_equal(result.view(np.uint16), expected.view(np.uint16))


@pytest.mark.parametrize("shape", [(3, 0), (0, 3)])
@pytest.mark.parametrize("reduce", ["mean", "max", "min", "sum", "prod"])
def test_nothing_reduces_to_what_tensorflow_says(reduce, shape):
    function = getattr(tf, f"reduce_{reduce}")
    node = reduce.capitalize()
    for kind in (np.float32, np.float16):
        empty = np.zeros(shape, kind)
        agree(node, lambda a: [function(a, 0), function(a, 1, keepdims=True), function(a)], empty,
              gradients=False, tolerance=0)


def test_the_mean_of_nothing_is_an_invalid_operation():
    _, used = on_machine(lambda a: tf.reduce_mean(a, 1), np.zeros((3, 0), np.float32))
    assert used.status.inv
    with machine():
        configured(inv=True)
        with pytest.raises(FloatingPointError, match="INVALID"):
            launch(tf.function(tf.reduce_mean), tf.zeros([0], tf.float16))


@pytest.mark.parametrize(
    ("function", "primitive"),
    [(tf.reduce_sum, ops.reduce_sum), (tf.reduce_mean, ops.reduce_mean),
     (tf.reduce_max, ops.reduce_max)],
)
def test_halves_are_those_of_the_primitive(function, primitive):
    a = half(40, 7)
    (result,), _ = on_machine(lambda v: function(v, 0), a)
    device = Device()
    y, _ = primitive.forward(device, device.from_host(a, BINARY16), axis=0)
    np.testing.assert_array_equal(result.view(np.uint16), np.float16(y.values).view(np.uint16))


def test_places_of_extrema_follow_the_number():
    """docs/semantics.md §6: of a number and a NaN the number, with INV."""
    values = tf.constant([[1, np.nan, 3], [np.nan, 2, 0]], tf.float16)
    traced = tf.function(lambda x: (tf.argmax(x, 1), tf.argmin(x, 1)))
    with machine():
        largest, least = launch(traced, values)
    assert largest.numpy().tolist() == [2, 1]
    assert least.numpy().tolist() == [0, 2]
