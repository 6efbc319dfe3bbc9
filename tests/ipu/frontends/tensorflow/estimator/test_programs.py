"""Calls of the host, and what a training may not do (law, golden messages)."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

from ipu.frontends.tensorflow.estimator.programs import ON_HOST
from ipu.frontends.tensorflow.estimator.specs import EstimatorSpec, IPUEstimatorSpec, ModeKeys
from ipu.frontends.tensorflow.settings.notes import forget
from tests.ipu.frontends.tensorflow.estimator.models import (
    X,
    Y,
    estimator,
    input_fn,
    model_fn,
    predictions,
    v1,
)
from tests.ipu.frontends.tensorflow.framework import current, machine, session, tf


def host_model(features, labels, mode):
    """Gradients go to the host, which updates the weights there."""
    line = predictions(features)
    loss = tf.reduce_mean(tf.square(line - labels))
    if mode == ModeKeys.EVAL:
        metrics = lambda y, z: {"error": v1.metrics.mean_absolute_error(y, z)}  # noqa: E731
        return IPUEstimatorSpec(mode, loss=loss, eval_metrics=(metrics, [labels, line]))
    optimiser = v1.train.GradientDescentOptimizer(0.1)
    pairs = optimiser.compute_gradients(loss)
    variables = [v for _, v in pairs]

    def update(*gradients):
        return optimiser.apply_gradients(zip(gradients, variables, strict=True))

    call = (update, [g for g, _ in pairs])
    return IPUEstimatorSpec(mode, loss=loss, train_op=tf.identity(loss), host_call=call)


def test_a_host_call_says_what_is_not_modelled_and_what_it_moves(tmp_path):
    """12 bytes of gradient go out, 12 bytes of weights come back; the sentence comes once."""
    forget()
    with machine():
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            for folder in "ab":
                estimator(tmp_path / folder, host_model).train(input_fn, steps=1)
        used = current()
        assert used.run.report()["host_call"] == {"tensors": 1, "bytes_out": 12, "bytes_back": 12}
    assert [str(w.message) for w in caught if "host_call" in str(w.message)] == [ON_HOST]


def test_tensorflow_flushes_subnormal_numbers_on_the_host():
    """What the sentence says, of TensorFlow itself: an update of 2^-140 is lost."""
    with session() as opened:
        weight = v1.get_variable("w", initializer=np.float32([0.0]), use_resource=True)
        gradient = v1.placeholder(tf.float32, [1])
        update = v1.train.GradientDescentOptimizer(1.0).apply_gradients([(gradient, weight)])
        opened.run(v1.global_variables_initializer())
        opened.run(update, {gradient: np.float32([2.0**-140])})
        assert opened.run(weight)[0] == 0.0


@pytest.mark.source("S1-06", "S1-17")
@pytest.mark.filterwarnings("ignore:host_call")
def test_a_host_call_updates_as_the_machine_does(tmp_path):
    with machine():
        ours = estimator(tmp_path / "a", host_model).train(input_fn, steps=6)
        theirs = estimator(tmp_path / "b").train(input_fn, steps=6)
        a, b = (e.get_variable_value("line/w") for e in (ours, theirs))
        np.testing.assert_allclose(a, b, 0, 1e-6)
        result = ours.evaluate(input_fn, steps=2)
        with pytest.raises(ValueError, match="host_call is not allowed for iterations_per"):
            estimator(tmp_path / "c", host_model, iterations=2).train(input_fn, steps=2)
    assert result["error"] == pytest.approx(np.mean(abs(X[:8] @ a - Y[:8])), rel=1e-4)


def spec(**changes):
    """A model function whose spec has these changes."""

    def function(features, labels, mode, params):
        complete = model_fn(features, labels, mode, params)
        fields = {"mode": mode, "loss": complete.loss, "train_op": complete.train_op,
                  "eval_metric_ops": complete.eval_metric_ops}
        return IPUEstimatorSpec(**(fields | changes))

    return function


def test_evaluation_needs_metrics_of_one_kind(tmp_path):
    both = (lambda x: {}, [tf.constant(1.0).numpy()])
    with machine():
        with pytest.raises(ValueError, match="must contain either eval_metric_ops or eval_metrics"):
            estimator(tmp_path, spec(eval_metric_ops=None)).evaluate(input_fn, steps=1)
        with pytest.raises(ValueError, match="cannot contain both eval_metric_ops and eval_metric"):
            estimator(tmp_path, spec(eval_metrics=both)).evaluate(input_fn, steps=1)


def test_the_estimator_alone_counts_steps(tmp_path):
    def counts(features, labels, mode):
        line = predictions(features)
        loss = tf.reduce_mean(tf.square(line - labels))
        step = v1.train.get_global_step()
        train = v1.train.GradientDescentOptimizer(0.1).minimize(loss, global_step=step)
        return EstimatorSpec(mode, loss=loss, train_op=train)

    with machine(), pytest.raises(ValueError, match="Illegal increment of the `global_step`"):
        estimator(tmp_path, counts).train(input_fn, steps=1)
