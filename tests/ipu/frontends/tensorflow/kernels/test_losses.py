"""Losses: as TensorFlow in float32, as the primitives of ipu.learn in half (differential)."""

from __future__ import annotations

import numpy as np
import pytest

from fpsim import BINARY16, BINARY32
from ipu import ops
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
}


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


def expected_rows(a, g, dense=None):
    """Losses of rows and their gradients times g: each row is the primitive's batch of one."""
    device = Device()
    for i in range(len(a)):
        row, share = (device.from_host(v[i : i + 1], BINARY16) for v in (a, g))
        if dense is None:
            primitive, options = ops.softmax_cross_entropy, {"labels": labels[i : i + 1]}
        else:
            primitive = ops.softmax_cross_entropy_dense
            wanted = device.from_host(dense[i : i + 1], BINARY16)
            options = {"labels": device.cast(wanted, BINARY32)}
        loss, saved = primitive.forward(device, row, **options)
        one = device.from_host(1.0, BINARY32)
        slope = primitive.vjps[0](device, one, (saved[0], BINARY32), **options)
        yield device, loss, slope, share


def raw(kind):
    """The node with halves in and out, without the casts of tf.nn."""
    node = getattr(tf.raw_ops, kind)

    def loss(a, wanted):
        return node(features=a, labels=wanted)[0]

    return loss


@pytest.mark.parametrize("is_dense", [False, True])
@pytest.mark.parametrize("is_node", [False, True])
def test_gradients_of_halves_are_those_of_the_primitive(is_dense, is_node):
    """tf.nn widens halves around its node: times g in binary32, then rounded. The node itself
    rounds its gradient to half, and the product with g is one more rounding."""
    a, g = half(6, 10), half(6, seed=3)
    dense = np.exp(half(6, 10, seed=4)).astype(np.float16) / np.float16(16) if is_dense else None
    wanted = tf.constant(labels if dense is None else dense)
    if is_node:
        loss = raw(f"{'' if is_dense else 'Sparse'}SoftmaxCrossEntropyWithLogits")
    elif is_dense:
        loss = lambda a, w: tf.nn.softmax_cross_entropy_with_logits(w, a)  # noqa: E731
    else:
        loss = lambda a, w: tf.nn.sparse_softmax_cross_entropy_with_logits(w, a)  # noqa: E731

    def compute(a, g):
        with tf.GradientTape() as tape:
            tape.watch(a)
            y = loss(a, wanted)
        return y, tape.gradient(y, a, output_gradients=g)

    (losses, slopes), _ = on_machine(compute, a, g)
    for i, (device, y, slope, share) in enumerate(expected_rows(a, g, dense)):
        if is_node:
            product = device.multiply(share, device.cast(slope, BINARY16))
        else:
            wide = device.multiply(device.cast(share, BINARY32), slope)
            product = device.cast(wide, BINARY16)
        assert losses[i].view("u2") == np.float16(y.values).view("u2")
        np.testing.assert_array_equal(
            slopes[i].view("u2"), np.float16(product.values).reshape(-1).view("u2")
        )


@pytest.mark.parametrize("label", [-1, 10])
def test_labels_of_no_class_are_refused(label):
    classes = tf.constant([label, 1])
    loss = tf.function(lambda a: tf.nn.sparse_softmax_cross_entropy_with_logits(classes, a))
    with machine(), pytest.raises(ValueError, match=f"takes index {label}; use 0 … 9"):
        launch(loss, tf.constant(logits[:2]))
