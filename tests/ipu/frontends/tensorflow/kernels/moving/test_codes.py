"""Moves of codes: as TensorFlow for every type of tensor, bit by bit (differential)."""

from __future__ import annotations

import numpy as np
import pytest

from tests.ipu.frontends.tensorflow.framework import tf
from tests.ipu.frontends.tensorflow.kernels.nodes import agree, half, numbers, on_machine

x, images = numbers(4, 3), numbers(2, 4, 6, 2)
square, blocks = numbers(3, 3), numbers(1, 2, 2, 4)
raw = tf.raw_ops
CASES = {
    "Roll": (lambda a: tf.roll(a, [1, -1], [0, 1]), x),
    "ReverseSequence": (lambda a: tf.reverse_sequence(a, [1, 2, 0, 3], 1), x),
    "EnsureShape": (lambda a: tf.ensure_shape(a, [4, None]), x),
    "SpaceToDepth": (lambda a: tf.nn.space_to_depth(a, 2), images),
    "DepthToSpace": (lambda a: tf.nn.depth_to_space(a, 2), blocks),
    "SpaceToBatchND": (lambda a: tf.space_to_batch(a, [2, 2], [[1, 1], [0, 0]]), images),
    "BatchToSpaceND": (lambda a: tf.batch_to_space(a, [2, 1], [[0, 1], [0, 0]]), images),
    "MatrixDiagPartV3": (tf.linalg.diag_part, square),
    "MatrixDiagV3": (tf.linalg.diag, x),
    "MatrixSetDiagV3": (lambda a: tf.linalg.set_diag(a, a[0]), square),
    "MatrixBandPart": (lambda a: tf.linalg.band_part(a, -1, 0), square),
    "GatherNd": (lambda a: tf.gather_nd(a, [[2, 1], [0, 0], [2, 2]]), x),
    "ExtractImagePatches": (
        lambda a: tf.image.extract_patches(a, [1, 2, 2, 1], [1, 1, 2, 1], [1] * 4, "SAME"), images),
    "ResizeNearestNeighbor": (lambda a: tf.image.resize(a, [3, 9], "nearest"), images),
    "TensorScatterUpdate": (lambda a: tf.tensor_scatter_nd_update(a, [[1], [3]], a[:2]), x),
    "DynamicStitch": (lambda a: tf.dynamic_stitch([[0, 2], [1, 3]], [a[2:], a[:2]]), x),
    "ParallelDynamicStitch": (
        lambda a: raw.ParallelDynamicStitch(indices=[[0, 2], [1, 3]], data=[a[2:], a[:2]]), x),
    "DynamicPartition": (lambda a: tf.dynamic_partition(a, [0, 1, 0, 1], 2), x),
}
#: Of the last two TensorFlow does not know shapes while it traces.
NO_GRADIENT = {"ParallelDynamicStitch", "DynamicPartition", "ResizeNearestNeighbor"}


@pytest.mark.parametrize("node", CASES)
def test_float32_is_as_on_tensorflow(node):
    function, a = CASES[node]
    agree(node, function, a, gradients=node not in NO_GRADIENT)


@pytest.mark.parametrize("node", sorted(set(CASES) - {"MatrixSetDiagV3"}))
def test_halves_move_alike(node):
    function, a = CASES[node]
    agree(node, function, half(*a.shape), gradients=False, tolerance=0)


def test_no_bit_changes():
    """Subnormals, a NaN and the sign of zero pass; the machine raises nothing."""
    codes = np.uint32([[1, 0x80000000, 0x7FC00001], [0x00400000, 0xFF800000, 0x80000001]])
    (result,), used = on_machine(lambda a: tf.roll(a, 1, 1), codes.view(np.float32))
    np.testing.assert_array_equal(result.view(np.uint32), np.roll(codes, 1, 1))
    assert not used.status.inv
