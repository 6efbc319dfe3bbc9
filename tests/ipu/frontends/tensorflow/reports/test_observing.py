"""What a machine that counts is told: kinds, losses and scales, updates, weights (golden, law)."""

from __future__ import annotations

import numpy as np
import pytest

from ipu.run.account import KINDS
from tests.ipu.frontends.tensorflow.framework import launch, machine, tf


def step(scale=None, rate=0.25):
    """A training step of one layer, its loss multiplied by a scale."""
    with tf.name_scope("net/dense/"):
        w = tf.Variable(np.full((4, 2), 0.5, np.float32), name="kernel")

    def program(x):
        with tf.GradientTape() as tape:
            with tf.name_scope("net/dense/"):
                y = tf.matmul(x, w)
            loss = tf.reduce_mean(y * y)
            scaled = loss if scale is None else loss * scale
        (slope,) = tape.gradient(scaled, [w])
        w.assign_sub(rate * slope)
        return scaled if scale in (0.5, 3.0) else loss

    return tf.function(program), w


def run(program, x=((1.0, 2.0, 3.0, 4.0),), **choices):
    with machine(count=True, **choices) as used:
        for _ in range(2):
            launch(program, tf.constant(np.float32(x)))
        return used.run.report(), used


def test_layers_losses_updates_and_weights_have_their_names():
    program, w = step(rate=1e-6)
    told, _ = run(program, policy="f16")
    assert told["losses"] == [25.0, 25.0]
    assert told["steps"] == 2
    assert list(told["layers"]["net/dense"]) == ["forward", "backward"]
    assert told["layers"]["optimizer"]["optimizer"]["results"] == 2 * 2 * 8
    row = told["swallowed"]["net/dense"]
    assert (row["nonzero"], row["swallowed"]) == (16, 16)  # 5e-6 to 2e-5 are lost at 0.5
    (weights,) = told["exponents"]["weights"]
    assert (weights["layer"], weights["format"], weights["counts"]) == (
        "net/dense", "binary16", {-1: 8}
    )
    assert np.all(w.numpy() == 0.5)
    assert {row["layer"] for row in told["exponents"]["gradients"]} >= {"net/dense", "Mean"}


def test_updates_of_some_rows_are_counted_beside_all():
    """As of an embedding, whose gradient has rows of its own; one row comes twice."""
    w = tf.Variable(np.ones((4, 2), np.float32), name="table/w")

    def program(x):
        w.scatter_add(tf.IndexedSlices(tf.stack([x[0, :2], x[0, 2:], x[0, 2:]]), [1, 3, 3]))
        return tf.reduce_sum(x)

    told, _ = run(tf.function(program), ((2e-4, 0.5, 0.25, 0.5),), policy="f16")
    row = told["swallowed"]["table"]
    assert (row["nonzero"], row["swallowed"]) == (8, 2)
    assert w.numpy().tolist() == [[1, 1], [1, 2], [1, 1], [2, 3]]


@pytest.mark.parametrize(("scale", "shown"), [(None, 1), (64.0, 64), (0.5, 1), (3.0, 1)])
def test_a_power_of_two_above_one_is_the_loss_scale(scale, shown):
    program, _ = step(scale, rate=0.0)
    told, used = run(program, policy="f16")
    assert used.run.recorder.scale == shown
    assert told["loss_scale"]["present"] == shown
    assert told["losses"] == [25.0 * (1 if scale is None else scale / shown)] * 2


def test_operations_have_kinds_and_none_is_native():
    told, _ = run(step()[0])
    assert told["native"] == 0
    assert all(told["operations"][kind] for kind in KINDS if kind not in ("host", "integer"))
    program = tf.function(lambda x: tf.sin(x))
    told, _ = run(program)
    assert told["host"]["operations"] == {"Sin": {"calls": 2, "elements": 8}}
    assert told["host"]["share"] == 1


def test_a_constant_of_the_optimiser_that_does_not_fit_is_told():
    w = tf.Variable(tf.ones(2, tf.half), name="layer/w")

    def program(x):
        with tf.GradientTape() as tape:
            y = tf.reduce_sum(w * tf.cast(x, tf.half))
        (slope,) = tape.gradient(y, [w])
        w.assign_sub(slope * tf.cast(tf.constant(1e-9), tf.half))

    told, _ = run(tf.function(program), x=(1.0, 2.0))
    (row,) = told["constants"]
    assert (row["layer"], row["direction"], row["becomes"]) == ("optimizer", "optimizer", "zero")


def test_the_first_exception_has_its_step_and_layer():
    w = tf.Variable(1.0)

    @tf.function
    def program(x):
        w.assign(x[0])
        return tf.cast(x, tf.half) * tf.cast(x, tf.half)

    with machine(count=True) as used:
        for value in (1.0, 300.0, 300.0):
            launch(program, tf.constant([value]))
        (row,) = used.run.report()["first"]
    assert (row["flag"], row["step"], row["operation"]) == ("OVERFLOW", 1, "multiply")


def test_an_observed_run_has_the_same_bits():
    results = []
    for count in (False, True):
        program, w = step(rate=0.01)
        with machine(policy="f16", sr=True, count=count):
            launch(program, tf.constant(np.float32([[0.1, 0.2, 0.3, 0.4]])))
        results.append(w.numpy())
    assert np.array_equal(*results)


def test_nothing_counts_while_the_loss_is_not_finite():
    """The flags stay in the status register; counting resumes with a finite loss."""
    w = tf.Variable(np.float32([1.0, 2.0]), name="net/w")

    @tf.function
    def program(x):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(tf.square(w * x))
        w.assign_sub(0.0 * tf.where(x == x, tape.gradient(loss, w), 0.0))
        return loss

    def rows(xs):
        with machine(count=True) as used:
            for x in xs:
                launch(program, tf.constant([x, x]))
            told = used.run.report()
        return told, sum(r["INVALID"] for row in told["layers"].values() for r in row.values())

    finite, none = rows([1.0, 1.0])
    once, first = rows([1.0, np.nan, 1.0])
    often, same = rows([1.0, *[np.nan] * 5, 1.0, 1.0])
    assert none == 0
    assert first > 0
    forward = once["layers"]["Sum"]["forward"]["INVALID"]
    assert same - first < 5 * forward * len(once["layers"])
    assert same == first  # births count once, what follows them not
    assert (finite["uncounted"], once["uncounted"], often["uncounted"]) == (0, 1, 5)
    assert "5 backward passes began at a loss that is not finite" in str(often)
    assert "INV 0x1" in often["status"]
    results = often["layers"]["Sum"]["forward"]["results"]
    assert results == once["layers"]["Sum"]["forward"]["results"] + 1


def test_constants_that_do_not_fit_are_told_once_with_the_users_line():
    """Numbers, masks, casts of numbers and learning rates."""
    rate = tf.Variable(1e-9, trainable=False, name="learning_rate")
    w = tf.Variable([1.0, 2.0], name="net/w")
    mask = np.float32([0.0, -1e9])

    @tf.function
    def program(x):
        with tf.GradientTape() as tape:
            with tf.name_scope("net"):
                y = w * x + mask + 1e-8
                y += tf.cast(tf.cast(tf.constant(3e-6), tf.half), tf.float32)
            loss = tf.reduce_sum(y)
        w.assign_sub(rate * tape.gradient(loss, w))
        return loss

    with machine(policy="f16", count=True) as used:
        for _ in range(3):
            launch(program, tf.constant(1.0))
        told = used.run.report()
    rows = {(row["value"], row["becomes"]): row for row in told["constants"]}
    lines = [key for key, row in rows.items() if f"{__file__}:" in row["line"]]
    assert (float(np.float32(-1e9)), "overflow") in lines
    assert any(becomes == "zero" for _, becomes in lines)
    assert any(becomes == "subnormal" for _, becomes in lines)
    (held,) = [row for row in told["constants"] if row["line"] == "variable learning_rate"]
    assert (held["becomes"], held["times"]) == ("zero", 3)
    assert len(rows) == len(told["constants"])
    assert __file__ in str(told)
