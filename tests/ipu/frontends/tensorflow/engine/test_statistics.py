"""Metrics compute in binary32 unless the policy names them (differential: numpy's binary64)."""

from __future__ import annotations

import numpy as np
import pytest

from tests.ipu.frontends.tensorflow.framework import configured, ipu, machine, tf

from ipu.frontends.tensorflow.engine.statistics import statistics_of  # isort: skip



def data(n=4000):
    rng = np.random.default_rng(0)
    y = rng.integers(0, 4, n).astype(np.int32)
    x = (rng.normal(size=(n, 8)) + 2.2 * np.eye(4, 8)[y]).astype(np.float32)
    return x, y


class Errors(tf.keras.metrics.Metric):
    """A user's metric, made outside of a function: Keras wraps its update in a function."""

    def __init__(self):
        super().__init__(name="errors")
        self.sum = self.add_weight(name="sum", initializer="zeros")

    def update_state(self, y_true, y_pred, sample_weight=None):
        wrong = tf.argmax(y_pred, -1) != tf.cast(tf.reshape(y_true, [-1]), tf.int64)
        self.sum.assign_add(tf.reduce_sum(tf.cast(wrong, tf.float32)))

    def result(self):
        return self.sum


def trained(x, y, **choices):
    """Metrics of fit and evaluate, the logits after them, and the report."""
    with machine(count=True, **choices) as used:
        configured()
        with ipu.ipu_strategy.IPUStrategy().scope():
            tf.keras.utils.set_random_seed(3)
            model = tf.keras.Sequential([tf.keras.layers.Dense(4, name="head", input_shape=(8,))])
            loss = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
            model.compile(tf.keras.optimizers.SGD(0.1), loss, metrics=["accuracy", Errors()],
                          steps_per_execution=4)
            model.fit(x, y, batch_size=500, verbose=0)
            logits = model.predict(x, batch_size=500, verbose=0).astype(np.float64)
            told = model.evaluate(x, y, batch_size=10, verbose=0, return_dict=True)
        return told, logits, used.run.report()


def truth(logits, y):
    z = logits - logits.max(1, keepdims=True)
    losses = np.log(np.exp(z).sum(1)) - z[np.arange(len(y)), y]
    hits = logits.argmax(1) == y
    return losses.mean(), hits.mean(), len(y) - hits.sum()


def test_metrics_do_not_stand_still_in_narrow_formats():
    """Their sums of 4000 terms would end at 2048 in binary16."""
    x, y = data()
    told, logits, done = trained(x, y, policy="fp16")
    loss, accuracy, errors = truth(logits, y)
    assert told["accuracy"] == pytest.approx(accuracy, abs=1e-6)
    assert told["errors"] == errors
    assert told["loss"] == pytest.approx(loss, rel=1e-5)
    rows = {layer for layer in done["layers"] if layer.startswith("metrics/")}
    assert {"metrics/loss", "metrics/accuracy", "metrics/errors"} <= rows
    assert all(set(done["layers"][layer]) == {"evaluation"} for layer in rows)


def test_a_policy_that_names_a_metric_rules_it():
    x, y = data()
    told, logits, _ = trained(x, y, policy={"*": "fp16", "metrics/loss": "fp16"})
    total = np.float32(told["loss"] * len(y))
    assert total > 2048
    assert total == np.float16(total)
    assert told["errors"] == truth(logits, y)[2]


def test_variables_of_a_metric_are_those_that_it_writes():
    """Also where its update is a function; a variable that it only reads is none of it."""
    mean, w = tf.keras.metrics.Mean(name="m"), tf.Variable(2.0)

    @tf.function
    def inner(x):
        mean.update_state(x * w)

    @tf.function
    def program(x):
        inner(x)
        for _ in tf.range(2):
            mean.update_state(w)
        return mean.result()

    graph = program.get_concrete_function(tf.constant(1.0)).graph
    captured = {inner.name: id(outer) for outer, inner in graph.captures}
    held = statistics_of(graph)
    assert set(held.values()) == {"m"}
    assert {captured[graph.inputs[i].name] for i in held} == {id(v.handle) for v in mean.variables}
