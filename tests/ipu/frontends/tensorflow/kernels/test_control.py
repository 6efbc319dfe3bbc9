"""Loops, branches and calls: as on TensorFlow; iterations that count (differential, law)."""

from __future__ import annotations

import numpy as np
import pytest

from ipu.feed.counters import record_launches
from tests.ipu.frontends.tensorflow.framework import launch, machine, tf
from tests.ipu.frontends.tensorflow.kernels.nodes import agree, numbers, types_of

x = numbers(4)


def powers(a):
    return tf.while_loop(lambda i, p: i < 5, lambda i, p: (i + 1, p * a), (0, a))[1]


def chosen(a):
    return tf.cond(tf.reduce_sum(a) > 100, lambda: a * 2, lambda: a * 3)


def switched(a):
    return tf.switch_case(tf.argmax(a, output_type=tf.int32) % 3, [lambda: a, lambda: a * 2])


@tf.function
def inner(a):
    return a * a


count = tf.Variable(0)


def stateful(a):
    count.assign_add(1)
    return tf.cond(a[0] > 100, lambda: a + tf.cast(count.assign_add(0), tf.float32), lambda: a)


CASES = {
    "StatelessWhile": (powers, x),
    "StatelessIf": (chosen, x),
    "If": (stateful, x),
    "StatelessCase": (switched, x),
    "PartitionedCall": (inner, x),
    "StatefulPartitionedCall": (tf.function(stateful), x),
}


@pytest.mark.parametrize("node", CASES)
def test_float32_is_as_on_tensorflow(node):
    agree(node, *CASES[node], gradients=node == "PartitionedCall")


def train(n):
    total = tf.Variable(0.0)

    @tf.function
    def program():
        for _ in tf.range(n):
            total.assign_add(1.0)

    with machine() as used, record_launches() as record:
        launch(program)
    assert "While" in types_of(program)
    return total.numpy(), used, record.counters


def test_the_iterations_of_a_training_count():
    total, used, counters = train(7)
    assert total == 7
    assert (used.launches, used.iteration) == (1, 7)
    assert (counters.launches, counters.iterations) == (1, 7)


def test_a_loop_inside_of_a_layer_is_part_of_its_iteration():
    weight = tf.Variable(1.0)

    @tf.function
    def program():
        for _ in tf.range(3):
            weight.assign(tf.reduce_sum(powers(tf.constant(x) * weight)))

    with machine() as used:
        launch(program)
    assert used.iteration == 3


def test_a_launch_without_a_loop_is_an_iteration():
    with machine() as used:
        for _ in range(3):
            launch(inner, tf.constant(x))
    assert used.iterations == used.evaluations == used.launches == 3


@pytest.mark.parametrize("order", [("value", "slope", "again"), ("slope", "value")])
def test_a_gradient_of_a_function_changes_no_other_call_of_it(order):
    """TensorFlow appends what the gradient needs to the results of the function's one graph.

    Keras' convolution of several groups is such a function.
    """
    shared = tf.function(lambda a: tf.tanh(a) * a, jit_compile=True)

    def slope(a):
        with tf.GradientTape() as tape:
            tape.watch(a)
            result = shared(a)
        return tape.gradient(result, a)

    functions = {"value": lambda a: shared(a) + 1, "slope": slope, "again": lambda a: shared(a) + 1}
    with machine(f32_denormals="ieee"):
        for name in order:
            ours = launch(tf.function(functions[name]), tf.constant(x))
            wide = np.float64(x)
            tanh = np.tanh(wide)
            expected = tanh + wide * (1 - tanh**2) if name == "slope" else tanh * wide + 1
            np.testing.assert_allclose(ours, expected, rtol=0, atol=2e-6)
