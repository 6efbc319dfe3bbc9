"""Resized images: as TensorFlow in float32, rounded once in half (differential)."""

from __future__ import annotations

import numpy as np
import pytest

from tests.ipu.frontends.tensorflow.framework import tf
from tests.ipu.frontends.tensorflow.kernels.nodes import agree, half, numbers, on_machine

images = numbers(2, 4, 5, 2)
v1 = tf.compat.v1.image


def resized(method, size=(7, 3)):
    return lambda a: tf.image.resize(a, size, method)


CASES = {
    "ResizeBilinear": (resized("bilinear"), images),
    "ResizeBilinearGrad": (resized("bilinear"), images),
    "ResizeBicubic": (resized("bicubic"), images),
    "ResizeBicubicGrad": (resized("bicubic"), images),
    "ResizeArea": (resized("area"), images),
    "ResizeNearestNeighborGrad": (resized("nearest"), images),
}


@pytest.mark.parametrize("node", CASES)
def test_float32_is_as_on_tensorflow(node):
    agree(node, *CASES[node], gradients=node != "ResizeArea")


@pytest.mark.parametrize("function", [v1.resize_bilinear, v1.resize_nearest_neighbor])
@pytest.mark.parametrize("align", [False, True])
def test_corners_are_where_the_node_has_them(function, align):
    agree("ResizeBilinear" if function is v1.resize_bilinear else "ResizeNearestNeighbor",
          lambda a: function(a, [7, 3], align_corners=align), images)


def test_gradients_of_halves_are_summed_in_binary32_and_rounded_once():
    """Each element of a row of one has n neighbours with weight 1."""

    def slope(a, g):
        return tf.raw_ops.ResizeNearestNeighborGrad(
            grads=g, size=[1, 1], align_corners=False, half_pixel_centers=True
        )

    g = half(1, 40, 1, 1)
    (result,), _ = on_machine(slope, half(1, 1, 1, 1), g)
    total = np.float32(0)
    for value in g.ravel():
        total += np.float32(value)
    assert result.ravel()[0] == np.float16(total)
