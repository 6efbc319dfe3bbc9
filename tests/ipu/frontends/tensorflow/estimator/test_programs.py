"""Calls of the host, and what a training may not do (law, golden messages)."""

from __future__ import annotations

import functools
import threading
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


def host_momentum(features, labels, mode):
    """As `host_model`, with momentum."""
    return host_model(features, labels, mode, v1.train.MomentumOptimizer(0.1, 0.9))


def host_model(features, labels, mode, optimiser=None):
    """Gradients go to the host, which updates the weights there."""
    line = predictions(features)
    loss = tf.reduce_mean(tf.square(line - labels))
    if mode == ModeKeys.EVAL:
        metrics = lambda y, z: {"error": v1.metrics.mean_absolute_error(y, z)}  # noqa: E731
        return IPUEstimatorSpec(mode, loss=loss, eval_metrics=(metrics, [labels, line]))
    optimiser = optimiser or v1.train.GradientDescentOptimizer(0.1)
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


def two_layers(arrived):
    """A model whose host call tells `arrived` of each gradient, by the name of its variable."""

    def model(features, labels, mode):
        with v1.variable_scope("net", use_resource=True):
            start = v1.constant_initializer(0.5)
            first = v1.get_variable("first", [3, 4], initializer=start)
            second = v1.get_variable("second", [4, 1], initializer=start)
        loss = tf.reduce_mean(tf.square(features @ first @ second - labels))
        optimiser = v1.train.GradientDescentOptimizer(0.01)
        pairs = optimiser.compute_gradients(loss, [first, second])

        def told(gradient, variable):
            tell = functools.partial(arrived, variable.op.name)
            result = tf.numpy_function(tell, [gradient], tf.float32)
            result.set_shape(gradient.shape)
            return result, variable

        def update(*gradients):
            pairs = zip(gradients, [first, second], strict=True)
            return optimiser.apply_gradients([told(*pair) for pair in pairs])

        call = (update, [g for g, _ in pairs])
        return IPUEstimatorSpec(mode, loss=loss, train_op=tf.identity(loss), host_call=call)

    return model


@pytest.mark.source("S1-07")
@pytest.mark.filterwarnings("ignore:host_call")
def test_gradients_reach_the_host_layer_by_layer_while_the_backward_pass_goes_on(tmp_path):
    """The first layer's part of it waits for the host to have the second layer's gradient."""
    arrivals, is_there = [], threading.Event()

    def arrived(name, gradient):
        arrivals.append(name)
        if name == "net/second":
            is_there.set()
        return gradient

    def see(event):
        if event.direction == "backward" and event.array.shape == (3, 4):
            assert is_there.wait(120), "no gradient left before the backward pass was over"
            assert arrivals[-1] == "net/second"
            is_there.clear()

    with machine():
        training = estimator(tmp_path, two_layers(arrived))
        current().run.watch(see)
        training.train(input_fn, steps=3)
        report = current().run.report()
    assert arrivals == ["net/second", "net/first"] * 3
    account = report["overlap"]["account"]
    first, last = account["left"].values()
    assert 0 < first < last == account["computed"]
    assert 0 < account["hidden"] < account["communicated"]
    assert list(report["overlap"]["host"]["left"]) == list(account["left"])
    assert any(line.startswith("host_call: 2 tensors leave as they") for line in report["plan"])


@pytest.mark.filterwarnings("ignore:host_call")
def test_an_error_of_a_program_whose_gradients_leave_ends_the_training(tmp_path):
    def see(event):
        raise ArithmeticError("the line is bent")

    with machine():
        training = estimator(tmp_path, two_layers(lambda name, gradient: gradient))
        current().run.watch(see)
        with pytest.raises(ArithmeticError, match="the line is bent"):
            training.train(input_fn, steps=1)


def device_model(features, labels, mode):
    """Momentum on the machine, whose state lies beside the weights there."""
    line = predictions(features)
    loss = tf.reduce_mean(tf.square(line - labels))
    step = v1.train.MomentumOptimizer(0.1, 0.9).minimize(loss)
    return IPUEstimatorSpec(mode, loss=loss, train_op=step)


@pytest.mark.source("S1-11")
@pytest.mark.filterwarnings("ignore:host_call")
def test_the_state_of_an_update_on_the_host_takes_no_bytes_of_the_device(tmp_path):
    """With `host_call` the slots are TensorFlow's; without, the machine holds 12 bytes of them."""

    def state(model, folder):
        with machine():
            estimator(tmp_path / folder, model).train(input_fn, steps=1)
            (costs,) = current().run.costs
        return [(f.parameter_bytes, f.state_bytes) for f in costs.figures]

    assert state(device_model, "a") == [(12, 12)]
    assert state(host_momentum, "b") == [(12, 0)]


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
