"""Nodes of the host: integers as TensorFlow's kernels, iterators, queues (differential)."""

from __future__ import annotations

import numpy as np
import pytest

from tests.ipu.frontends.tensorflow.framework import configured, launch, machine, tf
from tests.ipu.frontends.tensorflow.kernels.nodes import agree, half, numbers

a, b = np.arange(6, dtype=np.int32), np.array([3, 1, 4, 1, 5, 9], np.int32)
raw = tf.raw_ops
CASES = {
    "AddV2": (lambda x, y: x + y + 2147483647, a, b),
    "FloorMod": (lambda x, y: (x - 3) % y, a, b),
    "FloorDiv": (lambda x, y: (x - 3) // y, a, b),
    "BitwiseAnd": (lambda x, y: tf.bitwise.bitwise_and(x, y), a, b),
    "Range": (lambda x, y: tf.range(x[0], y[5], 2), a, b),
    "All": (lambda x, y: tf.reduce_all(x < y), a, b),
    "LogicalAnd": (lambda x, y: tf.logical_and(x < y, x > 1), a, b),
    "ArgMax": (lambda x, y: tf.argmax(x * y), a, b),
    "Prod": (lambda x, y: tf.reduce_prod(x + y), a, b),
    "Sum": (lambda x, y: tf.reduce_sum(x), a, b),
    "BroadcastGradientArgs": (lambda x, y: raw.BroadcastGradientArgs(s0=x[1:3], s1=y[1:2]), a, b),
    "InvertPermutation": (lambda x, y: tf.math.invert_permutation(x), a, b),
    "HistogramFixedWidth": (lambda x: tf.histogram_fixed_width(x, [-1.0, 1.5], 7), numbers(500)),
    "EagerPyFunc": (lambda x: eagerly(x, x.dtype), numbers(4)),
}


def eagerly(x, kind):
    """A function that TensorFlow executes eagerly, with its gradient."""
    result = tf.py_function(lambda v: v * tf.tanh(v), [x], kind)
    result.set_shape(x.shape)
    return result


@pytest.mark.parametrize("node", CASES)
def test_nodes_of_the_host_are_as_on_tensorflow(node):
    agree(node, *CASES[node], gradients=node == "EagerPyFunc")


def test_an_eager_function_gets_and_gives_halves():
    x = half(5)
    with machine():
        ours = launch(tf.function(lambda v: eagerly(v, tf.float16)), tf.constant(x))
    np.testing.assert_array_equal(ours, eagerly(tf.constant(x), tf.float16))


def test_gradients_of_eager_functions_are_of_one_call():
    """TensorFlow keeps the tape of the last one."""

    def slope(v):
        with tf.GradientTape() as tape:
            tape.watch(v)
            result = eagerly(v, tf.float32)
        return tape.gradient(result, v)

    @tf.function
    def in_a_loop(v):
        with tf.GradientTape() as tape:
            tape.watch(v)
            result = tf.while_loop(
                lambda i, p: i < 3, lambda i, p: (i + 1, eagerly(p, tf.float32)), (0, v)
            )[1]
        return tape.gradient(result, v)

    v = tf.constant(numbers(4))
    with machine():
        configured(2)
        with pytest.raises(NotImplementedError, match="2 replicas make as many"):
            launch(tf.function(slope), v)
    with machine(), pytest.raises(NotImplementedError, match="in a loop, of which TensorFlow"):
        launch(in_a_loop, v)


def test_an_iterator_feeds_a_program():
    elements = iter(tf.data.Dataset.from_tensor_slices((np.float32([1, 2, 3]), a[:3])))

    @tf.function
    def program(iterator):
        x, n = next(iterator)
        return x * 2, n + 1

    with machine():
        strategy_results = [launch(program, elements) for _ in range(3)]
        with pytest.raises(tf.errors.OutOfRangeError):
            launch(program, elements)
    assert [(float(x), int(n)) for x, n in strategy_results] == [(2, 1), (4, 2), (6, 3)]


def test_a_function_of_the_host_gets_and_gives_values_of_its_types():
    def program(x):
        return tf.numpy_function(lambda v: (v + v.dtype.type(1), np.int32(3)), [x],
                                 [tf.float16, tf.int32])

    with machine():
        y, n = launch(tf.function(program), tf.constant([1.5], tf.float16))
    assert (y.numpy().tolist(), y.dtype, int(n)) == ([2.5], tf.float16, 3)
