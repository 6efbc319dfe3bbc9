"""Estimators train, evaluate, predict and go on (differential with binary64; golden messages)."""

from __future__ import annotations

import numpy as np
import pytest

from ipu.frontends.tensorflow.estimator.estimator import IPUEstimator
from ipu.frontends.tensorflow.training.cross_replica import CrossReplicaOptimizer
from tests.ipu.frontends.tensorflow.estimator.models import X, Y, estimator, input_fn, model_fn
from tests.ipu.frontends.tensorflow.framework import current, ipu, machine

RUN = ipu.ipu_run_config.RunConfig


def weights(steps, rows=4):
    """Of SGD in binary64."""
    w = np.zeros((3, 1))
    for n in range(steps):
        indices = np.arange(n * rows, (n + 1) * rows) % len(X)
        w -= 0.1 * 2 / rows * X[indices].T @ (X[indices] @ w - Y[indices])
    return w


def test_steps_add_up_and_checkpoints_resume(tmp_path):
    with machine():
        line = estimator(tmp_path, iterations=4)
        line.train(input_fn, steps=8)
        again = estimator(tmp_path, iterations=4)
        again.train(input_fn, steps=8)
        assert again.get_variable_value("global_step") == 16
        assert set(again.get_variable_names()) == {"global_step", "line/w"}
        halves = weights(8)
        np.testing.assert_allclose(line.get_variable_value("line/w").shape, (3, 1))
        again.train(input_fn, max_steps=16)
    assert abs(again.get_variable_value("line/w") - halves).max() > 1e-3


@pytest.mark.source("S1-16")
@pytest.mark.parametrize("iterations", [1, 4])
def test_a_training_is_that_of_binary64(tmp_path, iterations):
    with machine():
        line = estimator(tmp_path, iterations=iterations).train(input_fn, steps=8)
        np.testing.assert_allclose(line.get_variable_value("line/w"), weights(8), 0, 2e-6)
        result = line.evaluate(input_fn, steps=4)
        actual = list(line.predict(input_fn, num_predictions=6))
        batches = line.predict(input_fn, ["line"], yield_single_examples=False, num_predictions=2)
        shapes = [{key: value.shape for key, value in batch.items()} for batch in batches]
    w = weights(8)
    error = X[:16] @ w - Y[:16]
    assert result["global_step"] == 8
    assert result["loss"] == pytest.approx(np.mean(error**2), rel=1e-4)
    assert result["error"] == pytest.approx(np.mean(abs(error)), rel=1e-4)
    np.testing.assert_allclose([row["line"] for row in actual], X[:6] @ w, 0, 1e-5)
    np.testing.assert_allclose([row["twice"] for row in actual], 2 * (X[:6] @ w), 0, 1e-5)
    assert shapes == [{"line": (4, 1)}, {"line": (4, 1)}]


def test_replicas_share_a_batch(tmp_path):
    params = {"wrap": CrossReplicaOptimizer}
    with machine():
        line = estimator(tmp_path, ipus=2, iterations=2, params=params, train_batch_size=8)

        def batches(params):
            assert params["batch_size"] == 4
            return input_fn(params["batch_size"])

        line.train(batches, steps=4)
        np.testing.assert_allclose(line.get_variable_value("line/w"), weights(4, 8), 0, 2e-6)
        rows = [row["line"] for row in line.predict(input_fn, num_predictions=9)]
        np.testing.assert_allclose(rows, X[:9] @ weights(4, 8), 0, 1e-5)
        with pytest.raises(ValueError, match="no IpuCrossReplicaSum or IpuCrossReplicaMean"):
            estimator(tmp_path / "b", ipus=2).train(input_fn, steps=1)
        with pytest.raises(ValueError, match=r"must have params argument to receive"):
            line.train(input_fn, steps=2)


def test_what_an_estimator_is_not_made_with(tmp_path):
    with pytest.raises(ValueError, match="`config` must be provided with type"):
        IPUEstimator(model_fn, config=None)
    with pytest.raises(ValueError, match="`params` is expected to be of type `dict`"):
        IPUEstimator(model_fn, config=RUN(), params=[1])
    with pytest.raises(ValueError, match=r"\['input_fn'\] are reserved keys but existed"):
        IPUEstimator(model_fn, config=RUN(), params={"input_fn": 1})
    with pytest.raises(ValueError, match="batch_size cannot be passed in params when a batch"):
        IPUEstimator(model_fn, config=RUN(), params={"batch_size": 1}, eval_batch_size=2)
    with pytest.raises(ValueError, match=r"train_batch_size \(got 0\) must be positive"):
        IPUEstimator(model_fn, config=RUN(), train_batch_size=0)
    with pytest.raises(ValueError, match=r"\(got 5\) must be divisible by .* \(1 \* 2\)"):
        estimator(tmp_path, ipus=2, train_batch_size=5)
    run = ipu.ipu_run_config.IPURunConfig(2)
    with pytest.raises(NotImplementedError, match=r"iterations_per_loop > 1 \(got 2\) not support"):
        IPUEstimator(model_fn, config=RUN(run, train_distribute=object()))


def test_steps_are_whole_launches(tmp_path):
    line = estimator(tmp_path, iterations=4)
    with pytest.raises(ValueError, match=r"steps \(6\) must be a multiple of .* \(4\)"):
        line.train(input_fn, steps=6)
    with pytest.raises(ValueError, match=r"steps \(6\) must be a multiple of"):
        line.evaluate(input_fn, steps=6)
    with pytest.raises(ValueError, match="One of `num_steps` or `final_step` must be specified"):
        line.evaluate(input_fn)


def test_shards_leave_fewer_replicas(tmp_path):
    """Four IPUs of two shards are two replicas: a batch is dealt to two."""
    settings = ipu.config.IPUConfig()
    settings.auto_select_ipus = 4
    run = ipu.ipu_run_config.IPURunConfig(1, settings, num_replicas=2, num_shards=2)
    with machine():
        line = IPUEstimator(
            model_fn, str(tmp_path), RUN(run, tf_random_seed=1),
            {"wrap": CrossReplicaOptimizer},
        )
        line.train(input_fn, steps=1)
        assert current().replicas == 2
    np.testing.assert_allclose(line.get_variable_value("line/w"), weights(1, 8), atol=1e-6)
