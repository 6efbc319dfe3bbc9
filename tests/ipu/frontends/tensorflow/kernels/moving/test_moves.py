"""Moves: values as on TensorFlow, for every type of tensor, bit by bit (differential)."""

from __future__ import annotations

import numpy as np
import pytest

from tests.ipu.frontends.tensorflow.framework import tf
from tests.ipu.frontends.tensorflow.kernels.nodes import agree, half, numbers

x, y = numbers(4, 3, 5), numbers(4, 3, 5, seed=1)
raw = tf.raw_ops
where = x > 0

CASES = {
    "Reshape": (lambda a: tf.reshape(a, [2, -1]), x),
    "ExpandDims": (lambda a: tf.expand_dims(a, -2), x),
    "Squeeze": (lambda a: tf.squeeze(a, 1), x[:, :1]),
    "Transpose": (lambda a: tf.transpose(a, [2, 0, 1]), x),
    "Tile": (lambda a: tf.tile(a, [1, 2, 1]), x),
    "BroadcastTo": (lambda a: tf.broadcast_to(a, [2, 4, 3, 5]), x),
    "ReverseV2": (lambda a: tf.reverse(a, [0, 2]), x),
    "Fill": (lambda a: a * raw.Fill(dims=tf.shape(a), value=tf.reduce_max(a)), x),
    "ZerosLike": (lambda a: a + raw.ZerosLike(x=a), x),
    "OnesLike": (lambda a: a * raw.OnesLike(x=a), x),
    "Pack": (lambda a, b: tf.stack([a, b], 1), x, y),
    "Unpack": (lambda a: tf.unstack(a, axis=1)[1], x),
    "ConcatV2": (lambda a, b: tf.concat([a, b], -1), x, y),
    "Split": (lambda a: tf.split(a, 2, 0)[1], x),
    "SplitV": (lambda a: tf.split(a, [1, -1], 2)[1], x),
    "Slice": (lambda a: tf.slice(a, [1, 0, 2], [2, -1, 3]), x),
    "StridedSlice": (lambda a: a[1:, ::2, -1], x),
    "StridedSliceGrad": (lambda a: a[..., tf.newaxis, ::-2], x),
    "Pad": (lambda a: tf.pad(a, [[1, 0], [0, 2], [1, 1]]), x),
    "PadV2": (lambda a: tf.pad(a, [[1, 0], [0, 2], [1, 1]], constant_values=2.5), x),
    "MirrorPad": (lambda a: tf.pad(a, [[1, 0], [0, 2], [1, 1]], "REFLECT"), x),
    "Shape": (lambda a: raw.Shape(input=a), x),
    "ShapeN": (lambda a, b: raw.ShapeN(input=[a, b]), x, y[0]),
    "Size": (lambda a: raw.Size(input=a), x),
    "Rank": (lambda a: raw.Rank(input=a), x),
    "SelectV2": (lambda a, b: tf.where(tf.constant(where), a, b), x, y),
    "Select": (lambda a, b: raw.Select(condition=tf.constant(where[:, 0, 0]), x=a, y=b), x, y),
    "OneHot": (lambda a: a[:, 0] * tf.one_hot([1, 0, 4, -1], 5), x),
}
NO_GRADIENT = {"ShapeN", "Size", "Rank", "Shape", "MirrorPad"}


@pytest.mark.parametrize("node", CASES)
def test_float32_is_as_on_tensorflow(node):
    function, *arguments = CASES[node]
    agree(node, function, *arguments, gradients=node not in NO_GRADIENT, tolerance=1e-7)


@pytest.mark.parametrize(
    "node", sorted(set(CASES) - {"OneHot", "Fill", "PadV2", "StridedSliceGrad"})
)
def test_halves_and_integers_move_alike(node):
    function, *arguments = CASES[node]
    halves = [half(*v.shape, seed=i) for i, v in enumerate(arguments)]
    agree(node, function, *halves, gradients=False, tolerance=0)
    integers = [(v * 10).astype(np.int32) for v in arguments]
    agree(node, function, *integers, gradients=False)


@pytest.mark.parametrize("values", [x[0, 0], np.arange(5, dtype=np.int32)])
def test_elements_of_a_vector_are_scalars(values):
    """Stacked again they are the vector."""
    agree("Unpack", lambda a: tf.stack(tf.unstack(a)), values, gradients=False, tolerance=0)
