"""Loss, scale and root gradient are binary32 under a policy (differential: fractions by hand)."""

from __future__ import annotations

import numpy as np
import pytest

from fpsim import BINARY16, BINARY32
from tests.ipu.frontends.tensorflow.framework import configured, launch, machine, tf

from ipu.frontends.tensorflow.engine.launch import launching_functions  # isort: skip
from ipu.frontends.tensorflow.engine.losses import find_losses, unscaling, wide_nodes  # isort: skip
from ipu.frontends.tensorflow.engine.program import program_of  # isort: skip
from ipu.frontends.tensorflow.engine.trace import tracing  # isort: skip


LABELS = np.int32([0, 2, 1, 2])
X = np.float32([[1, 0], [0, 1], [1, 1], [-1, 2]]) / 16


def step(scale=1.0, kind=tf.float32, weight=0.5, divides=True, held=tf.Variable):
    """One step of softmax regression; it returns the loss, and the scaled gradient."""
    w = tf.Variable(np.full((2, 3), weight, np.float32), name="head/kernel")
    held = held(scale, name="scale") if scale is not None else None

    def loss_of(x):
        logits = tf.matmul(tf.cast(x, kind), tf.cast(w, kind))
        losses = tf.nn.sparse_softmax_cross_entropy_with_logits(LABELS, logits)
        return tf.reduce_mean(losses)

    @tf.function
    def program(x):
        with tf.GradientTape() as tape:
            loss = loss_of(x)
            scaled = loss if held is None else loss * tf.cast(held, kind)
        slope = tape.gradient(scaled, w)
        if divides and held is not None:
            slope = slope * (1.0 / held)
        w.assign_sub(slope)
        return loss, slope

    return program, w


def test_the_first_rounding_is_that_of_the_gradient_of_the_logits():
    """A scale above binary16's largest number changes nothing but the exponent."""
    for scale in (1.0, 2.0**18):
        program, _ = step(scale, divides=False)
        with machine(policy="fp16"):
            used = configured(nanoo=True)
            loss, slope = launch(program, tf.constant(X))
            half, wide = used.device.context(BINARY16), used.device.context(BINARY32)
        slopes = np.full((4, 3), 1 / 3, np.float32)  # softmax of equal logits, in binary32
        slopes[np.arange(4), LABELS] -= np.float32(1)
        rounded = half.array((slopes * np.float32(0.25) * np.float32(scale)).astype(np.float64))
        expected = half.array(X.T.astype(np.float64) @ rounded.values)
        assert np.array_equal(slope.numpy(), expected.values)
        assert float(loss) == pytest.approx(np.log(3), rel=1e-7)
        assert float(loss) == wide.array(float(loss)).values


@pytest.mark.parametrize("held", [tf.Variable, tf.constant])
def test_a_scale_stays_binary32_and_gradients_keep_their_format(held):
    """262144 is infinite in binary16; after division the gradient is what it was without."""
    results = []
    for scale in (None, 2.0**18):
        program, w = step(scale, held=held)
        with machine(policy="fp16", count=True):
            used = configured(nanoo=True)
            _, slope = launch(program, tf.constant(X))
            told = used.run.report()
        results.append((slope.numpy(), w.numpy()))
    assert told["loss_scale"]["present"] == 2.0**18
    assert told["losses"] == pytest.approx([np.log(3)])
    for plain, scaled in zip(*results, strict=True):
        assert np.isfinite(scaled).all()
        np.testing.assert_allclose(scaled, plain, rtol=2**-10)
    assert np.array_equal(results[1][0], np.float16(results[1][0]))


def test_a_loss_of_the_programs_own_halves_bounds_the_scale():
    """The root 1 and the loss are numbers of binary16: 32768 is the last scale that it has."""
    program, _ = step(None, tf.half, weight=0.0)
    with machine(count=True):
        used = configured(nanoo=True)
        launch(program, tf.constant(X))
        scales = used.run.report()["loss_scale"]
        assert (scales["highest_safe"], scales["limited_by"]) == (2.0**15, "loss")
    for scale in (2.0**15, 2.0**16):
        program, w = step(scale, tf.half, weight=0.0)
        with machine(count=True):
            used = configured(nanoo=True)
            launch(program, tf.constant(X))
            told = used.run.report()
            assert told["loss_scale"]["present"] == scale
            text = str(used.run.advice(told))
        assert np.isfinite(w.numpy()).all() == (scale == 2.0**15)
    assert "Lower the loss scale to 32768" in text
    assert f"the present scale of {scale:g}" in text


@pytest.mark.parametrize("value", [300.0, 7.0])
def test_the_loss_times_its_scale_bounds_it_too(value):
    w = tf.Variable([np.float16(np.sqrt(value))])

    @tf.function
    def program():
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(tf.square(w))
        w.assign_sub(0 * tape.gradient(loss, w))

    with machine(count=True) as used:
        launch(program)
        scales = used.run.report()["loss_scale"]
    assert value * scales["highest_safe"] < 65520 <= value * 2 * scales["highest_safe"]


def graph_of(program):
    with tracing(), launching_functions():
        return program.get_concrete_function(tf.constant(X)).graph


def test_what_is_binary32():
    program, _ = step(2.0)
    (inner,) = [graph_of(program)]
    nodes = program_of(inner)
    (loss,) = find_losses(inner)
    assert (loss.tensor.op.type, loss.product is not None) == ("Mean", True)
    wide, edges = wide_nodes(nodes)
    types = {node.type for node in nodes.nodes if node.name in wide}
    assert {"Mean", "Mul", "SparseSoftmaxCrossEntropyWithLogits"} <= types
    assert "MatMul" not in types
    assert len(edges) == 1
    scales, (divided,) = unscaling(nodes)
    assert {inner.get_operation_by_name(name).type for name in scales} >= {"RealDiv"}
    assert inner.get_operation_by_name(divided).type == "Mul"


def test_numbers_without_a_sum_are_layers_of_their_own():
    """A model of single numbers computes in its policy."""
    w = tf.Variable(0.3)

    @tf.function
    def program(x):
        with tf.GradientTape() as tape:
            loss = w * x
        w.assign_sub(tape.gradient(loss, w))
        return loss

    with machine(policy="fp16"):
        assert float(launch(program, tf.constant(0.7))) == float(
            np.float16(np.float16(0.3) * np.float16(0.7))
        )


@pytest.mark.parametrize("scale", [1.0, 4.0])
def test_the_root_of_a_small_loss_bounds_the_scale(scale):
    """A loss of 0.01 may be multiplied by 2^22, and 65536 is no number of binary16."""
    w = tf.Variable([np.float16(0.1)])

    @tf.function
    def program(x):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(tf.square(w))
            scaled = loss if scale == 1 else loss * x
        w.assign_sub(0 * tape.gradient(scaled, w))
        return loss

    with machine(count=True) as used:
        launch(program, tf.constant(scale, tf.half))
        scales = used.run.report()["loss_scale"]
    assert (scales["present"], scales["highest_safe"]) == (scale, 2.0**15)


def test_all_readers_of_the_first_gradient_get_the_same_rounding():
    """Of one example of ones the gradients of weight and bias are that of the logits."""
    bias = tf.Variable(np.linspace(-1, 1, 64, dtype=np.float32), name="head/bias")
    w = tf.Variable(np.zeros((1, 64), np.float32), name="head/kernel")

    @tf.function
    def program(x):
        with tf.GradientTape() as tape:
            logits = tf.nn.bias_add(tf.matmul(x, w), bias)
            loss = tf.reduce_sum(tf.nn.sparse_softmax_cross_entropy_with_logits([3], logits))
        to_w, to_bias = tape.gradient(loss, [w, bias])
        w.assign_sub(0.0 * to_w)
        return to_w[0], to_bias

    for seed in range(3):
        with machine(policy="fp16", sr=True, seed=seed):
            to_w, to_bias = launch(program, tf.ones([1, 1]))
        assert np.array_equal(to_w.numpy(), to_bias.numpy())
