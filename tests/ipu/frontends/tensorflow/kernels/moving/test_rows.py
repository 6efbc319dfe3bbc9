"""Rows by index: as TensorFlow in float32; sums of halves are rounded once (differential)."""

from __future__ import annotations

import numpy as np
import pytest

from tests.ipu.frontends.tensorflow.framework import launch, machine, tf
from tests.ipu.frontends.tensorflow.kernels.nodes import agree, half, numbers, on_machine

x, y = numbers(4, 3), numbers(4, 3, seed=1)
raw, math = tf.raw_ops, tf.math
IDS, HOLES = [0, 0, 2, 2], [2, -1, 0, 2]
table = tf.Variable(x)
CASES = {
    "GatherV2": (lambda a: tf.gather(a, [2, 0, 2], axis=1), x),
    "ResourceGather": (lambda a: tf.gather(table, [2, 0, 2]) * a[:3], x),
    "ScatterNd": (lambda a: tf.scatter_nd([[1], [3], [1], [0]], a, [5, 3]), x),
    "TensorScatterAdd": (
        lambda a, b: tf.tensor_scatter_nd_add(a, [[1, 2], [1, 2]], b[0, :2]),
        x,
        y,
    ),
    "TensorScatterSub": (lambda a, b: tf.tensor_scatter_nd_sub(a, [[1], [1]], b[:2]), x, y),
    "TensorScatterMax": (lambda a, b: tf.tensor_scatter_nd_max(a, [[1], [1]], b[:2]), x, y),
    "TensorScatterMin": (lambda a, b: tf.tensor_scatter_nd_min(a, [[1], [1]], b[:2]), x, y),
    "UnsortedSegmentSum": (lambda a: math.unsorted_segment_sum(a, HOLES, 4), x),
    "UnsortedSegmentProd": (lambda a: math.unsorted_segment_prod(a, HOLES, 4), y),
    "UnsortedSegmentMax": (lambda a: math.unsorted_segment_max(a, HOLES, 3), x),
    "UnsortedSegmentMin": (lambda a: math.unsorted_segment_min(a, HOLES, 3), x),
    "SegmentSum": (lambda a: math.segment_sum(a, IDS), x),
    "SegmentProd": (lambda a: math.segment_prod(a, IDS), x),
    "SegmentMean": (lambda a: math.segment_mean(a, IDS), x),
    "SegmentMax": (lambda a: math.segment_max(a, IDS), x),
    "SegmentMin": (lambda a: math.segment_min(a, IDS), x),
    "MirrorPadGrad": (lambda a: tf.pad(a, [[1, 0], [2, 1]], "REFLECT"), x),
    "TopKV2": (lambda a: tf.math.top_k(a, 2), x),
    "Bucketize": (lambda a: raw.Bucketize(input=a, boundaries=[-0.5, 0.0, 0.5]), x),
    "InTopKV2": (lambda a: math.in_top_k([0, 1, 2, 0], a, 2), x),
    "LowerBound": (lambda a: tf.searchsorted(tf.sort(a), a), x),
    "UpperBound": (lambda a: tf.searchsorted(tf.sort(a), a, "right"), x),
}
#: While it traces TensorFlow does not know how many segments there are.
NO_GRADIENT = {node for node in CASES if node.startswith("Segment")}


@pytest.mark.parametrize("node", CASES)
def test_float32_is_as_on_tensorflow(node):
    function, *arguments = CASES[node]
    agree(node, function, *arguments, gradients=node not in NO_GRADIENT)


@pytest.mark.parametrize(("axis", "batch_dims"), [(1, 1), (2, 1), (2, 2), (-1, -1)])
def test_batches_take_their_own_elements(axis, batch_dims):
    rows = np.random.default_rng(0).integers(0, 2, (2, 3, 2))
    agree("GatherV2", lambda a: tf.gather(a, rows, axis=axis, batch_dims=batch_dims),
          numbers(2, 3, 3, 2))


def test_each_batch_takes_one_element():
    """Indices whose only axis is the batch's."""
    agree("GatherV2", lambda a: tf.gather(a, [3, 0, 1], axis=1, batch_dims=1), numbers(3, 4))


def test_nothing_is_gathered_and_added():
    none = np.zeros((0, 3), np.float32)
    agree("UnsortedSegmentSum", lambda a: math.unsorted_segment_sum(a, tf.zeros([0], tf.int32), 4),
          none, gradients=False)
    agree("ScatterNd", lambda a: tf.scatter_nd(tf.zeros([0, 1], tf.int32), a, [4, 3]), none,
          gradients=False)
    agree("GatherV2", lambda a: tf.gather(a, tf.zeros([0, 2], tf.int32), batch_dims=1), none,
          gradients=False)


@pytest.mark.parametrize("node", ["GatherV2", "TopKV2", "TensorScatterMax", "UnsortedSegmentMax"])
def test_halves_are_chosen_alike(node):
    function, *arguments = CASES[node]
    agree(node, function, *(half(*a.shape) for a in arguments), gradients=False, tolerance=0)


def test_integers_are_sorted_alike():
    values = np.int32([[3, -2147483648, 3, 2147483647]])
    agree("TopKV2", lambda a: tf.math.top_k(a, 4), values, gradients=False)


def test_gradients_of_rows_are_added_in_binary32_and_rounded_once():
    a, rows = half(300, 2), np.zeros(300, np.int32)
    (result,), _ = on_machine(lambda v: tf.math.unsorted_segment_sum(v, rows, 1), a)
    total = np.zeros(2, np.float32)
    for row in a:
        total += row
    np.testing.assert_array_equal(result[0], total.astype(np.float16))


@pytest.mark.parametrize("index", [-1, 4])
def test_rows_that_are_not_there_are_refused(index):
    rows, weights = tf.constant([0, index]), tf.Variable(x)
    for function in (lambda i: tf.gather(x, i), lambda i: tf.gather(weights, i)):
        with machine(), pytest.raises(ValueError, match=f"takes index {index}; use 0 … 3"):
            launch(tf.function(function), rows)
