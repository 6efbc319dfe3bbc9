"""Products: as TensorFlow in float32, as the primitives of ipu.learn in half (differential)."""

from __future__ import annotations

import numpy as np
import pytest

from fpsim import BINARY16
from ipu import ops
from ipu.machine.device import Device
from tests.ipu.frontends.tensorflow.framework import launch, machine, tf
from tests.ipu.frontends.tensorflow.kernels.nodes import agree, half, numbers, on_machine

images, kernel = numbers(2, 6, 6, 4), numbers(3, 3, 4, 8, seed=1)


def conv(a, w, **options):
    return tf.nn.conv2d(a, w, **{"strides": 1, "padding": "SAME"} | options)


def depthwise(a, w, strides=1):
    return tf.nn.depthwise_conv2d(a, w, [1, strides, strides, 1], "SAME")


filters = numbers(3, 3, 4, 2, seed=1)

CASES = {
    "MatMul": (tf.matmul, numbers(5, 7), numbers(7, 3, seed=1)),
    "BatchMatMulV2": (tf.matmul, numbers(2, 5, 7), numbers(2, 7, 3, seed=1)),
    "Conv2D": (conv, images, kernel),
    "Conv2DBackpropInput": (lambda a, w: conv(a, w, strides=2), images, kernel),
    "Conv2DBackpropFilter": (lambda a, w: conv(a, w, padding="VALID"), images, kernel),
    "DepthwiseConv2dNative": (depthwise, images, filters),
    "DepthwiseConv2dNativeBackpropInput": (lambda a, w: depthwise(a, w, 2), images, filters),
    "DepthwiseConv2dNativeBackpropFilter": (lambda a, w: depthwise(a, w, 2), images, filters),
    "BiasAdd": (tf.nn.bias_add, images, numbers(4)),
    "BiasAddGrad": (tf.nn.bias_add, images, numbers(4)),
}


@pytest.mark.parametrize("node", CASES)
def test_float32_is_as_on_tensorflow(node):
    agree(node, *CASES[node])


@pytest.mark.parametrize(
    ("padding", "dilations"),
    [("VALID", (2, 2)), ("SAME", (2, 1)), ("SAME", (1, 3)),
     ([[0, 0], [1, 0], [2, 3], [0, 0]], (2, 3))],
)
def test_dilated_convolutions_are_as_on_tensorflow(padding, dilations):
    """TensorFlow has the gradient on some processors alone: its kernel is filled with zeros."""

    def dilated(a, w):
        return tf.nn.conv2d(a, w, 1, padding, dilations=dilations)

    def filled(a, w):
        (rows, columns, *channels), (down, across) = w.shape, dilations
        apart = tf.reshape(w, (rows, 1, columns, 1, *channels))
        apart = tf.pad(apart, [(0, 0), (0, down - 1), (0, 0), (0, across - 1), (0, 0), (0, 0)])
        whole = tf.reshape(apart, (rows * down, columns * across, *channels))
        whole = whole[: (rows - 1) * down + 1, : (columns - 1) * across + 1]
        return tf.nn.conv2d(a, whole, 1, padding)

    agree("Conv2D", dilated, numbers(2, 8, 9, 2), numbers(2, 3, 2, 4, seed=1), reference=filled)


@pytest.mark.parametrize(("strides", "dilations"), [(2, 2), ((2, 1), (3, 2)), (3, (2, 4))])
@pytest.mark.parametrize("padding", ["SAME", "VALID"])
def test_strided_dilated_convolutions_are_as_on_tensorflow(padding, strides, dilations):
    def dilated(a, w):
        return tf.nn.conv2d(a, w, strides, padding, dilations=dilations)

    agree("Conv2D", dilated, numbers(2, 9, 9, 2), numbers(2, 3, 2, 4, seed=1), gradients=False)


def test_a_bias_of_channels_that_come_first():
    images_first = numbers(2, 4, 3, 5)
    for node in ("BiasAdd", "BiasAddGrad"):
        agree(node, lambda a, b: tf.nn.bias_add(a, b, "NCHW"), images_first, numbers(4))


@pytest.mark.parametrize(
    ("function", "arguments"),
    [
        (lambda a, b: tf.matmul(a, b, transpose_a=True), (numbers(7, 5), numbers(7, 3))),
        (lambda a, b: tf.matmul(a, b, transpose_b=True), (numbers(5, 7), numbers(3, 7))),
        (lambda a, w: conv(a, w), (images, numbers(3, 3, 2, 8))),
        (lambda a, w: conv(a, w, padding=[[0, 0], [2, 1], [0, 2], [0, 0]]), (images, kernel)),
    ],
    ids=["left turned", "right turned", "two groups", "explicit padding"],
)
def test_options(function, arguments):
    node = "MatMul" if arguments[0].ndim == 2 else "Conv2D"
    has_gradient = arguments[1].shape != (3, 3, 2, 8)  # TensorFlow has none for groups here
    agree(node, function, *arguments, gradients=has_gradient)


def test_a_batch_is_broadcast():
    agree("BatchMatMulV2", tf.matmul, numbers(2, 1, 5, 7), numbers(3, 7, 2), gradients=False)


def bits(array):
    return np.asarray(array, np.float16).view(np.uint16)


def test_a_product_of_halves_is_that_of_the_primitive():
    a, b = half(5, 40), half(40, 3, seed=1)
    (result,), used = on_machine(tf.matmul, a, b)
    device = used.device
    left, right = (device.from_host(v, BINARY16) for v in (a, b))
    np.testing.assert_array_equal(
        bits(result), bits(ops.matmul.forward(device, left, right)[0].values)
    )


def test_a_convolution_of_halves_and_its_gradients_are_those_of_the_primitive():
    a, w, g = half(2, 6, 6, 4), half(3, 3, 4, 8, seed=1), half(2, 6, 6, 8, seed=2)

    def compute(a, w, g):
        with tf.GradientTape() as tape:
            tape.watch([a, w])
            y = conv(a, w)
        return y, *tape.gradient(y, [a, w], output_gradients=g)

    results, _ = on_machine(compute, a, w, g)
    device = Device()
    x, kernel, slope = (device.from_host(v, BINARY16) for v in (a, w, g))
    y, saved = ops.conv2d.forward(device, x, kernel)
    expected = [y, *(rule(device, slope, saved) for rule in ops.conv2d.vjps)]
    for ours, theirs in zip(results, expected, strict=True):
        np.testing.assert_array_equal(bits(ours), bits(theirs.values))


def test_what_the_machine_has_not_is_refused_before_anything_runs():
    """TensorFlow itself computes it."""
    sentence = (r"^node \S*Conv2D has data_format=NCHW; the machine takes NHWC; "
                r"it was built at .*\.py:\d+$")
    program = tf.function(lambda a, w: conv(a, w, data_format="NCHW"))
    with machine() as used, pytest.raises(NotImplementedError, match=sentence):
        launch(program, images.transpose(0, 3, 1, 2), kernel)
    assert used.launches == 0


def test_a_depthwise_convolution_of_halves_is_one_convolution_for_each_channel():
    a, w = half(2, 5, 5, 3), half(3, 3, 3, 2, seed=1)
    (result,), _ = on_machine(depthwise, a, w)
    for channel in range(3):
        one = slice(channel, channel + 1)
        (alone,), _ = on_machine(conv, np.ascontiguousarray(a[..., one]), w[:, :, one])
        assert np.array_equal(result[..., 2 * channel : 2 * channel + 2], alone)
