"""Nodes of the host: integers as TensorFlow's kernels, iterators, queues (differential)."""

from __future__ import annotations

import numpy as np
import pytest

from tests.ipu.frontends.tensorflow.framework import launch, machine, tf
from tests.ipu.frontends.tensorflow.kernels.nodes import agree

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
}


@pytest.mark.parametrize("node", CASES)
def test_integers_are_as_on_tensorflow(node):
    agree(node, *CASES[node], gradients=False)


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
                                 [tf.float16, tf.int32])  # fmt: skip

    with machine():
        y, n = launch(tf.function(program), tf.constant([1.5], tf.float16))
    assert (y.numpy().tolist(), y.dtype, int(n)) == ([2.5], tf.float16, 3)
