"""Losses that TensorFlow does not compute, from what the machine did (differential: TensorFlow)."""

from __future__ import annotations

import numpy as np
import pytest

from tests.ipu.frontends.tensorflow.framework import launch, machine, tf

from ipu.run.text import why_no_loss  # isort: skip
from ipu.frontends.tensorflow.engine.unread import formula_of  # isort: skip


X = np.float32([[1.0, -2.0, 3.0], [0.5, 0.25, 4.0]])

LOSSES = {
    "three times": lambda y: 3.0 * tf.reduce_mean(tf.square(y)),
    "a thousandth": lambda y: tf.reduce_sum(y * y) / 1000.0,
    "a sum of two": lambda y: tf.reduce_mean(y) + 0.1 * tf.nn.l2_loss(y),
    "by rows": lambda y: tf.reduce_sum(tf.reduce_mean(y * y, axis=-1, keepdims=True) - 1.0) * -0.3,
    "several": lambda y: tf.add_n([tf.nn.l2_loss(y), tf.reduce_mean(y), -tf.reduce_sum(2.0 * y)]),
    "none where 0": lambda y: tf.math.divide_no_nan(tf.nn.l2_loss(y), 4.0),
}


def training(loss_of):
    w = tf.Variable(np.float32([[0.5, 1.0], [0.25, -1.0], [1.0, 0.125]]), name="net/w")

    @tf.function
    def step(x):
        with tf.GradientTape() as tape:
            loss = loss_of(tf.matmul(x, w))
        w.assign_sub(0.0 * tape.gradient(loss, w))
        return tf.constant(0.0)

    return step, w


@pytest.mark.parametrize("name", LOSSES)
def test_a_loss_that_nothing_reads_is_told(name):
    step, w = training(LOSSES[name])
    expected = float(LOSSES[name](tf.matmul(tf.constant(X), w)))
    with machine(count=True) as used:
        for _ in range(2):
            launch(step, tf.constant(X))
        told = used.run.report()
    assert told["losses"] == pytest.approx([expected] * 2, rel=1e-6)
    assert told["unread"] == []
    assert why_no_loss(told) == ""


def test_one_that_cannot_be_found_has_a_reason():
    step, _ = training(lambda y: tf.reduce_sum(y) * 3.0)  # no gradient reads y: it is not computed
    with machine(count=True) as used:
        launch(step, tf.constant(X))
        told = used.run.report()
    assert told["losses"] == []
    assert "nothing reads" in why_no_loss(told)
    assert "no losses: nothing reads" in str(told)
    w = tf.Variable([1.0])

    @tf.function
    def without_a_loss():
        w.assign_sub([0.5])

    with machine(count=True) as used:
        launch(without_a_loss)
        assert "no backward pass begins" in why_no_loss(used.run.report())


def test_a_formula_needs_all_that_leads_to_it():
    graph = tf.Graph()
    with graph.as_default():
        x = tf.compat.v1.placeholder(tf.float32, [2])
        y = tf.exp(x)
        z = tf.reduce_sum(y) * 2.0
    assert formula_of(z, set()) is None
    formula = formula_of(z, {y.op.name})
    assert formula.leaves == ((y.op.name, 0),)
    assert formula.value({(y.op.name, 0): np.array([1.0, 2.5])}) == 7.0
