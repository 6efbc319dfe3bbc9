"""Losses: as TensorFlow in float32, as the primitives of ipu.learn in half (differential)."""

from __future__ import annotations

import numpy as np
import pytest

from fpsim import BINARY16
from ipu.learn import ops
from ipu.machine.device import Device
from tests.ipu.frontends.tensorflow.framework import launch, machine, tf
from tests.ipu.frontends.tensorflow.kernels.nodes import agree, half, numbers, on_machine

logits = numbers(6, 10)
labels = np.arange(6, dtype=np.int32)
shares = np.full((6, 10), 0.1, np.float32)


def sparse(a):
    return tf.nn.sparse_softmax_cross_entropy_with_logits(tf.constant(labels[: a.shape[0]]), a)


CASES = {
    "Softmax": (tf.nn.softmax, logits),
    "LogSoftmax": (tf.nn.log_softmax, logits),
    "SparseSoftmaxCrossEntropyWithLogits": (sparse, logits),
    "SoftmaxCrossEntropyWithLogits": (
        lambda a: tf.nn.softmax_cross_entropy_with_logits(tf.constant(shares), a), logits,
    ),
}  # fmt: skip


@pytest.mark.parametrize("node", CASES)
def test_float32_is_as_on_tensorflow(node):
    agree(node, *CASES[node])


@pytest.mark.parametrize(
    ("function", "primitive"), [(tf.nn.softmax, ops.softmax), (tf.nn.log_softmax, ops.log_softmax)]
)
def test_halves_are_those_of_the_primitive(function, primitive):
    a = half(6, 10)
    (result,), _ = on_machine(function, a)
    device = Device()
    y, _ = primitive.forward(device, device.from_host(a, BINARY16))
    np.testing.assert_array_equal(result.view(np.uint16), np.float16(y.values).view(np.uint16))


def test_the_loss_of_halves_is_that_of_the_primitive():
    """One row: the primitive's mean is its loss, and its gradient that of the node."""
    a = half(1, 10)

    def compute(a):
        with tf.GradientTape() as tape:
            tape.watch(a)
            loss = sparse(a)
        return loss, tape.gradient(loss, a)

    (loss, slope), _ = on_machine(compute, a)
    device = Device()
    y, saved = ops.softmax_cross_entropy.forward(
        device, device.from_host(a, BINARY16), labels=labels[:1]
    )
    rule = ops.softmax_cross_entropy.vjps[0]
    expected = rule(device, device.from_host(1.0, y.format), saved, labels=labels[:1])
    assert loss[0] == np.float16(y.values)
    np.testing.assert_array_equal(slope.view("u2"), np.float16(expected.values).view("u2"))


@pytest.mark.parametrize("label", [-1, 10])
def test_labels_of_no_class_are_refused(label):
    classes = tf.constant([label, 1])
    loss = tf.function(lambda a: tf.nn.sparse_softmax_cross_entropy_with_logits(classes, a))
    with machine(), pytest.raises(ValueError, match=f"takes index {label}; use 0 … 9"):
        launch(loss, tf.constant(logits[:2]))
