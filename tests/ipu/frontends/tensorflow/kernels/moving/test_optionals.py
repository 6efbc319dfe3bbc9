"""Gradients of branches, as on TensorFlow (differential)."""

from __future__ import annotations

import numpy as np
import pytest

from ipu.frontends.tensorflow.kernels.moving.optionals import Optional
from tests.ipu.frontends.tensorflow.framework import launch, machine, tf
from tests.ipu.frontends.tensorflow.kernels.nodes import agree, numbers

x = np.abs(numbers(4))
RAW = tf.raw_ops


def branches(a):
    return tf.cond(tf.reduce_sum(a) > 0, lambda: tf.tanh(a) * a, lambda: a * a * 3)


def one_sided(a):
    return tf.cond(tf.reduce_sum(a) > 0, lambda: tf.tanh(a) * tf.exp(a), lambda: a)


def nested(a):
    def loop():
        return tf.while_loop(lambda i, p: i < 3, lambda i, p: (i + 1, p * a), (0, a))[1]

    def inner():
        return tf.cond(a[0] > 0.7, lambda: tf.exp(a), lambda: tf.sigmoid(a) * a)

    return tf.cond(tf.reduce_sum(a) > 0, inner, loop)


def switched(a):
    index = tf.argmax(a, output_type=tf.int32) % 3
    return tf.switch_case(index, [lambda: tf.tanh(a), lambda: a * a * a, lambda: tf.exp(a)])


@tf.function(jit_compile=True)
def slope(a):
    """XLA has no optionals: TensorFlow puts stand-ins where a branch was not taken."""
    with tf.GradientTape() as tape:
        tape.watch(a)
        result = branches(a)
    return tape.gradient(result, a)


def counted(a):
    """Branches with whole numbers and lists among what their gradients read."""

    def rows():
        array = tf.TensorArray(tf.float32, 4)
        for i in range(4):
            array = array.write(i, a[i] * a[i])
        return array.stack()

    return tf.cond(tf.reduce_sum(a) > 0, rows, lambda: tf.gather(a, tf.argsort(a)) * a)


def value(a):
    optional = RAW.OptionalFromValue(components=[a])
    empty = RAW.OptionalNone()
    (there,) = RAW.OptionalGetValue(
        optional=optional, output_types=[tf.float32], output_shapes=[a.shape]
    )
    has = [RAW.OptionalHasValue(optional=option) for option in (optional, empty)]
    return [there, *has]


CASES = {
    "OptionalFromValue": (branches, x),
    "OptionalNone": (one_sided, -x),
    "OptionalGetValue": (nested, x),
    "OptionalHasValue": (value, x),
    "FakeParam": (slope, x),
}


@pytest.mark.parametrize("node", CASES)
def test_float32_is_as_on_tensorflow(node):
    agree(node, *CASES[node], gradients=CASES[node][0] not in (value, slope))


@pytest.mark.parametrize("function", [nested, one_sided, switched, counted])
@pytest.mark.parametrize("sign", [1, -1])
def test_every_branch_has_its_gradient(function, sign):
    agree("OptionalFromValue", function, sign * x)


@pytest.mark.parametrize("sign", [1, -1])
def test_a_compiled_branch_has_its_gradient(sign):
    agree("FakeParam", slope, sign * x, gradients=False)


def test_an_absent_value_cannot_be_read():
    def read(a):
        (there,) = RAW.OptionalGetValue(
            optional=RAW.OptionalNone(), output_types=[tf.float32], output_shapes=[a.shape]
        )
        return there

    assert Optional().values is None
    with machine(), pytest.raises(ValueError, match="reads an optional that has no value"):
        launch(tf.function(read), tf.constant(x))
