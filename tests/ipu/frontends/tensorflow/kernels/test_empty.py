"""Tensors of no elements: shapes and values are TensorFlow's, forward and back (differential)."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from tests.ipu.frontends.tensorflow.framework import launch, machine, tf

moves = pytest.importorskip("ipu.frontends.tensorflow.kernels.moving.moves")

#: A function and the shapes of its tensors.
CASES = {
    "softmax of no numbers": (tf.nn.softmax, (3, 0)),
    "softmax of no rows": (tf.nn.softmax, (0, 3)),
    "log_softmax": (tf.nn.log_softmax, (0,)),
    "gather": (lambda x: tf.gather(x, [0, 0], axis=-1), (2, 0, 3)),
    "gather none": (lambda x: tf.gather(x, tf.zeros([0], tf.int32)), (2, 3)),
    "matmul without rows": (tf.matmul, (2, 0, 3), (2, 3, 4)),
    "matmul without columns": (tf.matmul, (2, 3, 4), (2, 4, 0)),
    "matmul without either": (tf.matmul, (2, 0, 3), (2, 3, 0)),
    "matmul without terms": (tf.matmul, (2, 2, 0), (2, 0, 3)),
    "matmul of nothing": (tf.matmul, (0, 2, 3), (0, 3, 2)),
    "conv2d": (lambda x, w: tf.nn.conv2d(x, w, 1, "SAME"), (0, 4, 4, 2), (3, 3, 2, 2)),
    "depthwise": (
        lambda x, w: tf.nn.depthwise_conv2d(x, w, [1, 1, 1, 1], "SAME"), (0, 4, 4, 2), (3, 3, 2, 1),
    ),
    "bias": (tf.nn.bias_add, (0, 2), (2,)),
    "add": (tf.add, (2, 0, 3), (2, 1, 3)),
    "max_pool": (lambda x: tf.nn.max_pool2d(x, 2, 2, "SAME"), (0, 4, 4, 2)),
    "top_k": (lambda x: tf.nn.top_k(x, 0)[0], (2, 3)),
    "mean": (lambda x: tf.reduce_mean(x, 1), (2, 0)),
    "sum": (lambda x: tf.reduce_sum(x, 1), (2, 0)),
    "product": (lambda x: tf.reduce_prod(x, 1), (2, 0)),
    "concat": (lambda x, y: tf.concat([x, y], 0), (0, 3), (2, 3)),
}
#: A result that TensorFlow leaves as its memory was; a sum of nothing is zero.
NOT_FILLED = {"depthwise": 2}


@pytest.mark.parametrize("name", CASES)
def test_results_and_gradients_are_tensorflows(name):
    function, *shapes = CASES[name]

    def compute(*tensors):
        with tf.GradientTape() as tape:
            tape.watch(tensors)
            y = function(*tensors)
        return [y, *map(tf.convert_to_tensor, tape.gradient(y, tensors))]

    tensors = [tf.ones(shape, tf.half) for shape in shapes]
    with machine():
        ours = launch(tf.function(compute), *tensors)
    for i, (one, other) in enumerate(zip(ours, compute(*tensors), strict=True)):
        assert (one.shape, one.dtype) == (other.shape, other.dtype)
        wanted = np.zeros(other.shape) if NOT_FILLED.get(name) == i else other.numpy()
        np.testing.assert_array_equal(one.numpy(), wanted)


def test_the_size_of_an_axis_is_inferred_as_by_tensorflow():
    shapes = itertools.product((0, 2, 3), repeat=2)
    asked = [a for n in (1, 2, 3) for a in itertools.product((-1, 0, 2, 6), repeat=n)]
    compared = 0
    for before, after in itertools.product(shapes, asked):
        x = np.zeros(before, np.float16)
        try:
            expected = tuple(tf.reshape(x, after).shape)
        except (tf.errors.InvalidArgumentError, ValueError):
            with pytest.raises(ValueError, match=r"reshape|one unknown"):
                x.reshape(moves._inferred(before, np.array(after)))
        else:
            compared += 0 in before
            assert x.reshape(moves._inferred(before, np.array(after))).shape == expected
    assert compared > 20
