"""Directions of nodes: gradients, an optimiser's work, averages and metrics (golden)."""

from __future__ import annotations

from tests.ipu.frontends.tensorflow.framework import tf

from ipu.frontends.tensorflow.reports.directions import find_directions  # isort: skip
from ipu.frontends.tensorflow.engine.program import GraphProgram  # isort: skip


def directions_of(function, *specs, inherited=""):
    graph = tf.function(function).get_concrete_function(*specs).graph
    return find_directions(GraphProgram(graph), inherited)


def training():
    """A step of Momentum by hand, a metric, and a moving average of the input."""
    w, v, average, count = (tf.Variable(1.0) for _ in range(4))

    def program(x):
        rate = tf.cast(tf.constant(0.5, tf.half), tf.float32, name="rate")
        with tf.GradientTape() as tape:
            y = tf.multiply(w, x, name="y")
        slope = tape.gradient(y, w)
        v.assign(tf.add(0.9 * v, slope, name="velocity"))
        step = tf.multiply(rate, v.read_value(), name="step")
        w.assign_sub(step)
        average.assign_sub(tf.multiply(0.1, average - x, name="gap"))
        count.assign_add(x)
        return y

    return program


def test_an_optimiser_is_known_also_through_its_slots():
    directions = directions_of(training(), tf.TensorSpec([], tf.float32))
    assert directions.of["y"] == "forward"
    assert {directions.of[name] for name in ("velocity", "step", "rate", "gap")} == {"optimizer"}
    assert {"velocity", "step", "rate"} <= directions.optimiser
    assert "gap" not in directions.optimiser
    updates = [name for name in directions.of if name.startswith("Assign")]
    assert len([name for name in updates if name in directions.optimiser]) == 2
    assert len(updates) == 4


def test_functions_that_an_optimiser_calls_are_its_own():
    scalar = tf.TensorSpec([], tf.float32)
    directions = directions_of(lambda x: x + 1.0, scalar, inherited="optimizer")
    assert directions.of["add"] == "optimizer"
    assert "add" in directions.optimiser


def test_the_pass_that_only_a_statistic_reads_is_forward():
    """A metric's accumulation writes a variable from what the model computes."""
    w, total = tf.Variable(tf.ones([2, 2])), tf.Variable(0.0, trainable=False)

    def program(x):
        y = tf.matmul(x, w, name="hidden")
        error = tf.square(y - 1.0, name="error")
        total.assign_add(tf.reduce_mean(error, name="mean"))
        return tf.constant(0.0)

    directions = directions_of(program, tf.TensorSpec([1, 2], tf.float32))
    assert {directions.of[name] for name in ("hidden", "error", "mean")} == {"forward"}
    assert not directions.optimiser


def test_all_of_an_evaluation_is_one():
    directions = directions_of(training(), tf.TensorSpec([], tf.float32), inherited="evaluation")
    assert set(directions.of.values()) == {"evaluation"}
    assert not directions.optimiser


def test_what_reads_a_gradient_that_a_loop_returns_is_the_optimisers():
    w = tf.Variable(1.0)

    def program(x):
        total = tf.constant(0.0)
        for _ in tf.range(3):
            with tf.GradientTape() as tape:
                y = w * w * x
            total += tape.gradient(y, w)
        w.assign_sub(tf.multiply(total, 0.5, name="step"))
        return tf.identity(x, name="other")

    directions = directions_of(program, tf.TensorSpec([], tf.float32))
    assert directions.of["step"] == "optimizer"
    assert "step" in directions.optimiser
    assert directions.of["other"] == "forward"
