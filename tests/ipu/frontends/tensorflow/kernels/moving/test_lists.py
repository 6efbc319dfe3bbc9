"""Lists of tensors: loops that collect, their gradients, recurrent layers (differential)."""

from __future__ import annotations

import numpy as np
import pytest

from ipu.frontends.tensorflow.kernels.moving.lists import TensorList
from tests.ipu.frontends.tensorflow.framework import launch, machine, tf
from tests.ipu.frontends.tensorflow.kernels.nodes import agree, numbers

x = numbers(4, 3)
raw, layers = tf.raw_ops, tf.keras.layers


def squares(a):
    return tf.map_fn(lambda row: row * row, a)


def powers(a):
    return tf.while_loop(lambda i, p: i < 3, lambda i, p: (i + 1, p * a), (0, a))[1]


def array(a, write=(2, 0)):
    """An array of three rows; the middle one is never written."""
    rows = tf.TensorArray(tf.float32, 3, element_shape=[3])
    for i in write:
        rows = rows.write(i, a[i])
    return rows


def pieces(a):
    """Three elements of other lengths."""
    return tf.TensorArray(tf.float32, 3, infer_shape=False).split(a, [2, 0, a.shape[0] - 2])


def rows(a):
    """What is concatenated keeps its shape, which TensorFlow does not know."""
    return tf.reshape(pieces(a).concat(), a.shape)


#: Without a gradient in TensorFlow.
UNDIFFERENTIATED = ("TensorListScatterV2", "TensorListConcat", "TensorListResize")

CASES = {
    "TensorListReserve": (squares, x),
    "TensorListFromTensor": (squares, x),
    "TensorListGetItem": (squares, x),
    "TensorListSetItem": (squares, x),
    "TensorListStack": (lambda a: array(a).stack(), x),
    "EmptyTensorList": (powers, x),
    "TensorListPushBack": (powers, x),
    "TensorListPopBack": (powers, x),
    "TensorListLength": (squares, x),
    "TensorListElementShape": (squares, x),
    "TensorListGather": (lambda a: array(a).gather([2, 1, 2]), x),
    "TensorListScatterIntoExistingList": (
        lambda a: array(a, ()).scatter([2, 0], a[:2]).stack(), x),
    "TensorListSplit": (rows, x),
    "TensorListConcatV2": (rows, x),
    "TensorListConcat": (lambda a: raw.TensorListConcat(
        input_handle=raw.TensorListFromTensor(tensor=a, element_shape=[3]),
        element_dtype=tf.float32, element_shape=[3])[0], x),
    "TensorListResize": (lambda a: raw.TensorListStack(input_handle=raw.TensorListResize(
        input_handle=raw.TensorListFromTensor(tensor=a, element_shape=[3]), size=6),
        element_shape=[3], element_dtype=tf.float32), x),
    "TensorListScatterV2": (lambda a: raw.TensorListStack(
        input_handle=raw.TensorListScatterV2(
            tensor=a[:2], indices=[2, 0], element_shape=[3], num_elements=4),
        element_shape=[3], element_dtype=tf.float32), x),
}


@pytest.mark.parametrize("node", CASES)
def test_float32_is_as_on_tensorflow(node):
    agree(node, *CASES[node], gradients=node not in UNDIFFERENTIATED)


def test_lengths_are_those_of_the_rows():
    def split(a):
        parts = raw.TensorListSplit(tensor=a, element_shape=[-1, 3], lengths=np.int64([1, 9]))
        return raw.TensorListLength(input_handle=parts)

    with machine(), pytest.raises(ValueError, match=r"splits \d+ rows into \[1, 9\]; use lengths"):
        launch(tf.function(split), tf.constant(x))


def test_a_list_grows_at_its_end_alone():
    assert TensorList((), ()).put(0, 1).put(1, 2).put(0, 3).items == (3, 2)
    with pytest.raises(ValueError, match="a list of 0 tensors has no element 1"):
        TensorList((), ()).put(1, 5)


@pytest.mark.parametrize("kind", ["SimpleRNN", "LSTM", "GRU"])
def test_recurrent_layers_train(kind):
    layer = getattr(layers, kind)(3, return_sequences=True)
    sequences = tf.constant(numbers(2, 4, 3))
    layer(sequences)

    @tf.function
    def step(a):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(layer(a) ** 2)
        return [loss, *tape.gradient(loss, layer.trainable_variables)]

    expected = step(sequences)
    with machine(f32_denormals="ieee"):
        for ours, theirs in zip(launch(step, sequences), expected, strict=True):
            np.testing.assert_allclose(ours, theirs, rtol=2e-6, atol=2e-6)
