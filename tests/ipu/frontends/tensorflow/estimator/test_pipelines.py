"""Pipelines of estimators: the bits of pipelining_ops, messages (differential, golden)."""

from __future__ import annotations

import numpy as np
import pytest

from tests.ipu.frontends.tensorflow.estimator.models import X, Y, input_fn
from tests.ipu.frontends.tensorflow.framework import ipu, machine, tf

v1 = tf.compat.v1
Estimator = ipu.ipu_pipeline_estimator.IPUPipelineEstimator
Spec = ipu.ipu_pipeline_estimator.IPUPipelineEstimatorSpec
OUTPUT = ipu.pipelining_ops.OptimizerFunctionOutput


def weights():
    return v1.get_variable("w", [3, 1], tf.float32, v1.zeros_initializer(), use_resource=True)


def line(x, y):
    with v1.variable_scope("line", use_resource=True, reuse=v1.AUTO_REUSE):
        return tf.matmul(x, weights()), y


def loss_of(a, y):
    return tf.reduce_mean(tf.square(a - y))


def update(loss):
    return OUTPUT(v1.train.GradientDescentOptimizer(0.1), loss)


def model_fn(mode, params):
    stages = {"train": [line, loss_of], "eval": [line, lambda a, y: (a, y)],
              "infer": [line, lambda a, y: a]}

    def metrics(a, y):
        return {"loss": tf.reduce_mean(tf.square(a - y)),
                "error": v1.metrics.mean_absolute_error(y, a)}

    options = {"gradient_accumulation_count": 4, "eval_metrics_fn": metrics} | params
    return Spec(mode, stages[mode], optimizer_function=update, **options)


def estimator(folder, function=model_fn, *, ipus=2, shards=2, iterations=8, params=None):
    settings = ipu.config.IPUConfig()
    settings.auto_select_ipus = ipus
    run = ipu.ipu_run_config.IPURunConfig(
        iterations, settings, num_replicas=ipus // shards, num_shards=shards
    )
    config = ipu.ipu_run_config.RunConfig(run, tf_random_seed=1)
    return Estimator(function, model_dir=str(folder), config=config, params=params or {})


def test_the_loss_falls_and_all_three_modes_run(tmp_path):
    with machine():
        model = estimator(tmp_path)
        model.train(input_fn, steps=80)
        weight = model.get_variable_value("line/w")
        np.testing.assert_allclose(weight, [[1], [-2], [0.5]], atol=0.1)
        scores = model.evaluate(input_fn, steps=16)
        assert scores["global_step"] == 80
        gap = X @ weight - Y
        assert scores["loss"] == pytest.approx(np.mean(gap**2), abs=1e-6)
        assert scores["error"] == pytest.approx(np.mean(np.abs(gap)), abs=1e-6)
        rows = [row for row, _ in zip(model.predict(input_fn), range(8), strict=False)]
        np.testing.assert_allclose(np.ravel(rows), np.ravel(X[:8] @ weight), atol=1e-5)


@pytest.mark.parametrize(("method", "rate"), [("mean", 0.1), ("sum", 0.025)])
def test_weights_are_those_of_large_batches(tmp_path, method, rate):
    """Four mini-batches of four are a batch of 16; without a method it is the mean."""

    def of_rate(loss):
        return OUTPUT(v1.train.GradientDescentOptimizer(rate), loss)

    def function(mode):
        named = {} if method == "mean" else {"reduction_method": method}
        return Spec(mode, [line, loss_of], 4, optimizer_function=of_rate, **named)

    with machine(f32_denormals="ieee"):
        model = estimator(tmp_path, function)
        model.train(input_fn, steps=16)
        weight = model.get_variable_value("line/w")
    expected = np.zeros((3, 1))
    for i in range(4):
        x, y = X[16 * i : 16 * (i + 1)], Y[16 * i : 16 * (i + 1)]
        expected -= 0.1 * 2 * x.T @ (x @ expected - y) / 16
    np.testing.assert_allclose(weight, expected, atol=1e-6)


def test_replicas_take_their_mini_batches(tmp_path):
    def average(loss):
        inner = v1.train.GradientDescentOptimizer(0.1)
        return OUTPUT(ipu.optimizers.CrossReplicaOptimizer(inner), loss)

    def function(mode):
        return Spec(mode, [line, loss_of], 4, optimizer_function=average)

    with machine():
        model = estimator(tmp_path / "two", function, ipus=4)
        model.train(input_fn, steps=8)
        two = model.get_variable_value("line/w")
    with machine():
        one = estimator(tmp_path / "one")
        one.train(lambda: input_fn(8), steps=8)
        np.testing.assert_allclose(two, one.get_variable_value("line/w"), atol=1e-6)


@pytest.mark.source("graphcore/tensorflow, ipu_pipeline_estimator.py")
def test_what_does_not_go_together_is_refused(tmp_path):
    def trained(function=model_fn, **options):
        with machine():
            estimator(tmp_path, function, **options).train(input_fn, steps=8)

    for change, text in (
        ({"iterations": 2}, r"iterations_per_loop` \(got 2\) cannot be less than"),
        ({"params": {"gradient_accumulation_count": 3}}, r"\(got 8\) must be divisible by"),
        ({"params": {"accumulate_outfeed": True}}, "`accumulate_outfeed` pipeline keyword"),
        ({"params": {"gradient_accumulation_count": 0}}, "must contain `gradient_accumulation_c"),
        ({"ipus": 4, "shards": 4}, r"requires 2 devices, but `IPURunConfig.num_shards` was set t"),
    ):
        with pytest.raises(ValueError, match=text):
            trained(**change)
    with pytest.raises(ValueError, match="must not have `features` or `labels` arguments"):
        trained(lambda features, mode: None)
    with pytest.raises(TypeError, match="must return `IPUPipelineEstimatorSpec`"):
        trained(lambda mode: None)
    with pytest.raises(ValueError, match="must contain `optimizer_function` when training"):
        Spec("train", [line, loss_of], 4)
    with pytest.raises(ValueError, match="must contain `eval_metrics_fn` when evaluating"):
        Spec("eval", [line, loss_of], 4)
