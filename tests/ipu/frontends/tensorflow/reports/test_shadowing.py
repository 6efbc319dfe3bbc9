"""Shadows of TensorFlow programs beside TensorFlow's own float64 (differential, law)."""

from __future__ import annotations

import numpy as np
import pytest

from ipu.run.motions import astray
from tests.ipu.frontends.tensorflow.framework import ipu, tf

from fpsim.tf import machine  # isort: skip
from ipu.frontends.tensorflow.operations.normalization import normalised  # isort: skip

STEPS, RATE = 3, np.float32(0.1)
RNG = np.random.default_rng(3)
START = RNG.normal(size=(6, 4)).astype(np.float32)
X = RNG.normal(size=(STEPS, 8, 6)).astype(np.float32)
Y = RNG.normal(size=(8, 4)).astype(np.float32)


def step_of(w, velocity, decay):
    """A step of a training by momentum, in the data type of its variables."""

    def step(x):
        with tf.GradientTape() as tape:
            with tf.name_scope("net/dense/"):
                h = tf.tanh(tf.matmul(x, w))
            loss = tf.reduce_mean(tf.square(h - tf.cast(Y, h.dtype)))
        (slope,) = tape.gradient(loss, [w])
        velocity.assign(tf.cast(decay, h.dtype) * velocity + slope)
        w.assign_sub(tf.cast(RATE, h.dtype) * velocity)
        return loss

    return step


def variables(dtype):
    w = tf.Variable(tf.cast(START, dtype), name="net/dense/kernel")
    return w, tf.Variable(tf.zeros_like(w), trainable=False, name="velocity")


def trained(policy, shadow=None):
    with machine(policy, count=True, unconfigured=True) as run:
        if shadow:
            run.shadow(shadow)
        w, velocity = variables(tf.float32)
        program = tf.function(step_of(w, velocity, np.float32(0.9)))
        losses = [
            float(ipu.ipu_strategy.IPUStrategyV1().run(program, [tf.constant(x)])) for x in X
        ]
    return losses, w.numpy(), run.report()["shadow"]


@pytest.mark.parametrize("policy", ["fp32", "fp16"])
def test_losses_of_the_shadow_are_those_of_tensorflow_in_float64(policy):
    """Also over launches, between which variables lie on the host in float32."""
    _, _, shadow = trained(policy, STEPS)
    step = step_of(*variables(tf.float64), np.float32(0.9))
    expected = [float(step(tf.cast(x, tf.float64))) for x in X]
    rows = shadow["losses"]
    first = 1e-12 if policy == "fp32" else 1e-3  # the data come in rounded
    np.testing.assert_allclose([row["shadow"] for row in rows], expected, rtol=first)
    assert [row["step"] for row in rows] == list(range(STEPS))
    assert shadow["rejoined"] == []


def test_composites_and_their_gradients_are_followed():
    """gelu and group norm are rules of the machine; beside them TensorFlow's own nodes."""

    def step_in(w, scale, shift):
        def step(x):
            with tf.GradientTape() as tape:
                h = ipu.nn_ops.gelu(tf.matmul(x, w))
                h = normalised(h, scale, shift, groups=2)
                loss = tf.reduce_mean(tf.square(h - tf.cast(Y, h.dtype)))
            weights = [w, scale, shift]
            for v, slope in zip(weights, tape.gradient(loss, weights), strict=True):
                v.assign_sub(tf.cast(RATE, h.dtype) * slope)
            return loss

        return tf.function(step)

    def weights(dtype):
        values = START, np.ones(4, np.float32), np.zeros(4, np.float32)
        return [tf.Variable(tf.cast(x, dtype), name=f"net/w{i}") for i, x in enumerate(values)]

    with machine("fp32", count=True, unconfigured=True) as run:
        run.shadow(STEPS)
        program = step_in(*weights(tf.float32))
        for x in X:
            ipu.ipu_strategy.IPUStrategyV1().run(program, [tf.constant(x)])
    shadow = run.report()["shadow"]
    exact = step_in(*weights(tf.float64))
    expected = [float(exact(tf.cast(x, tf.float64))) for x in X]
    np.testing.assert_allclose([row["shadow"] for row in shadow["losses"]], expected, rtol=1e-12)
    assert shadow["rejoined"] == []
    assert {"Gelu", "GeluGrad"} <= {row["operation"] for row in shadow["operations"]}


def test_it_moves_no_bit_and_tells_where_errors_are_born():
    losses, w, shadow = trained("fp16", 2)
    assert (losses, w.tolist()) == (trained("fp16")[0], trained("fp16")[1].tolist())
    (row,) = [r for r in shadow["operations"] if r["operation"] == "MatMul"
              and r["direction"] == "forward"]
    assert (row["layer"], row["calls"], row["elements"]) == ("net/dense", 2, 64)
    assert 2.0**-13 < row["born"] < 2.0**-11  # one rounding to binary16
    assert row["line"].startswith(__file__)
    assert len(shadow["losses"]) == 2


def test_a_variable_that_stands_still_is_told():
    """Terms of an average that binary16 absorbs: its shadow moves."""
    with machine("fp16", count=True, unconfigured=True) as run:
        run.shadow(6)
        w = tf.Variable(tf.zeros(3), name="net/w")
        average = tf.Variable(tf.ones(4), trainable=False, name="average")
        program = tf.function(
            lambda x: (w.assign_add(x[:3]), average.assign(average + x)) and tf.reduce_sum(x))
        for _ in range(6):
            ipu.ipu_strategy.IPUStrategyV1().run(program, [tf.constant(1e-4 * np.ones(4, "f"))])
    still, moving = run.report()["shadow"]["motions"]
    assert (still["shape"], still["steps"], still["arrived"]) == ([4], 6, 0.0)
    assert still["name"] == "average"
    assert (moving["name"], moving["shape"]) == ("net", [3])
    assert moving["arrived"] == pytest.approx(1.0, abs=1e-2)


def test_a_rate_by_its_schedule_is_no_sum():
    """What is computed anew in each step is off by one rounding, however little it moves."""
    with machine("fp16", count=True, unconfigured=True) as run:
        run.shadow(4)
        count = tf.Variable(0.0, trainable=False, name="count")
        rate = tf.Variable(0.5, trainable=False, name="rate")
        average = tf.Variable(0.5, trainable=False, name="average")
        w = tf.Variable(1.0, name="net/w")

        def step(x):
            rate.assign(0.5 - 1e-5 * count.assign_add(1.0))
            average.assign(0.9999 * average + 1e-5 * x)
            w.assign_sub(rate * x)
            return x + rate

        program = tf.function(step)
        for _ in range(4):
            ipu.ipu_strategy.IPUStrategyV1().run(program, [tf.constant(1.0)])
    report = run.report()
    sums = {row["name"]: row["is_sum"] for row in report["shadow"]["motions"]}
    assert sums == {"count": True, "rate": False, "average": True, "net": True}
    assert "rate" not in [row["name"] for row in astray(report)]


def test_slots_of_an_optimiser_are_states_and_averages_of_weights_are_none():
    with machine("fp16", count=True, unconfigured=True) as run:
        run.shadow(4)
        w, slot = tf.Variable(tf.ones(3), name="net/w"), tf.Variable(tf.zeros(3), trainable=False)
        average = tf.Variable(tf.ones([1, 3]), trainable=False)

        def step(x):
            with tf.GradientTape() as tape:
                loss = tf.reduce_sum(x * w)
            (slope,) = tape.gradient(loss, [w])
            slot.assign_add(0.5 * slope)
            w.assign_sub(0.25 * slot)
            average.assign_sub(0.125 * (average - w))
            return loss

        program = tf.function(step)
        for _ in range(4):
            ipu.ipu_strategy.IPUStrategyV1().run(program, [tf.constant([1.0, 2.0, 3.0])])
    motions = run.report()["shadow"]["motions"]
    kinds = {(row["name"], tuple(row["shape"])): row["is_state"] for row in motions}
    assert kinds == {("net", (3,)): False, ("", (3,)): True, ("", (1, 3)): False}


def test_wrong_kinds_of_shadows_are_refused():
    with pytest.raises(TypeError, match="no number of steps"):
        machine().shadow(True)
    with machine(unconfigured=True) as run:
        ipu.ipu_strategy.IPUStrategyV1().run(tf.function(lambda: tf.constant(1.0) + 1.0))
        with pytest.raises(RuntimeError, match="before the first launch"):
            run.shadow(1)


def test_elements_that_are_not_finite_are_left_out():
    """1/0 of one element, in an operation of two arrays."""
    with machine("fp16", count=True, unconfigured=True) as run:
        run.shadow(1)
        program = tf.function(lambda x, y: tf.reduce_sum(x / y))
        arrays = [tf.constant(np.float32(x)) for x in ([1.0, 1.0, 1.0], [3.0, 0.0, 7.0])]
        ipu.ipu_strategy.IPUStrategyV1().run(program, arrays)
    (row,) = [r for r in run.report()["shadow"]["operations"] if r["operation"] == "RealDiv"]
    assert (row["calls"], row["elements"], row["left_out"]) == (1, 3, 1)
    assert 0 < row["born"] < 2.0**-11


def test_an_exponential_of_a_distance_tells_the_sum_its_error_grew_in():
    places = [100 + tf.reshape(tf.range(float(n)), (n, 1)) / 3 for n in (8, 9)]

    def bumps(x, c):
        distance = tf.reduce_sum(x * x, 1, keepdims=True) + tf.reduce_sum(c * c, 1) - (
            2 * tf.matmul(x, c, transpose_b=True))
        return tf.exp(-distance / 2)

    with machine("fp16", count=True, unconfigured=True) as run:
        run.shadow(1)
        ipu.ipu_strategy.IPUStrategyV1().run(tf.function(bumps), places)
    rows = {row["operation"]: row for row in run.report()["shadow"]["operations"]}
    assert rows["Exp"]["grown"]["operation"] == "Sub"
    assert rows["Exp"]["grown"]["amplification"] > 1000
