"""train_and_evaluate: as TensorFlow's local mode (law, golden messages)."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from ipu.frontends.tensorflow.estimator.training import (
    EstimatorSpec,
    EvalSpec,
    TrainSpec,
    train_and_evaluate,
)
from tests.ipu.frontends.tensorflow.estimator.models import estimator, input_fn, model_fn, v1
from tests.ipu.frontends.tensorflow.framework import current, machine, tf


class Evaluations(v1.train.SessionRunHook):
    """Global steps of the evaluations that a hook sees."""

    def __init__(self):
        self.steps = []

    def end(self, session):
        """An evaluation has ended."""
        self.steps.append(int(session.run(v1.train.get_global_step())))


def saving(folder, every, function=model_fn, **options):
    """An estimator that writes a checkpoint after so many steps."""
    line = estimator(folder, function, **options)
    line.config = replace(line.config, save_checkpoints_steps=every)
    return line


@pytest.mark.source("tensorflow/estimator, training.py: run_local")
@pytest.mark.parametrize(
    ("throttle", "every", "steps"),
    [
        (0, 2, [2, 4, 6]), (10_000, 2, [2, 6]), (600, None, [6]),
        pytest.param(0, 4, [4, 6], marks=pytest.mark.tier("full")),
    ],
)
def test_a_checkpoint_is_evaluated_unless_the_last_evaluation_was_just_now(
    tmp_path, throttle, every, steps
):
    """The first one is, whatever throttle_secs says, and the last one."""
    evaluations = Evaluations()
    spec = EvalSpec(input_fn, 2, hooks=[evaluations], throttle_secs=throttle)
    with machine():
        line = saving(tmp_path, every)
        metrics, _ = train_and_evaluate(line, TrainSpec(input_fn, 6), spec)
    assert evaluations.steps == steps
    assert metrics["global_step"] == 6


def halves(features, labels, mode):
    """A line in half precision."""
    x, y = (tf.cast(array, tf.half) for array in (features, labels))
    w = v1.get_variable("w", [3, 1], tf.half, v1.zeros_initializer(), use_resource=True)
    loss = tf.reduce_mean(tf.square(tf.matmul(x, w) - y))
    metrics = {"loss_of_batch": v1.metrics.mean(tf.cast(loss, tf.float32))}
    train = v1.train.GradientDescentOptimizer(0.01).minimize(loss)
    return EstimatorSpec(mode, loss=loss, train_op=train, eval_metric_ops=metrics)


def trained(folder, seed=0, throttle=0, is_configured=True):
    """The weights of an estimator of halves, and the steps of its evaluations."""
    evaluations = Evaluations()
    with machine(sr=True, seed=seed):
        line = saving(folder, 2, halves, iterations=2)
        if not is_configured:
            run = replace(line.config.ipu_run_config, ipu_options=None)
            line.config = replace(line.config, ipu_run_config=run)
        if throttle is None:
            line.train(input_fn, max_steps=6)
        else:
            spec = EvalSpec(input_fn, 2, hooks=[evaluations], throttle_secs=throttle)
            train_and_evaluate(line, TrainSpec(input_fn, 6), spec)
        return line.get_variable_value("w").tobytes(), evaluations.steps


@pytest.mark.parametrize(
    "is_configured", [True, pytest.param(False, marks=pytest.mark.tier("full"))]
)
def test_no_bit_of_a_training_depends_on_evaluations(tmp_path, is_configured):
    """Stochastic rounding draws by place: an evaluation takes no place of the training."""
    often, steps = trained(tmp_path / "often", is_configured=is_configured)
    alone, none = trained(tmp_path / "alone", throttle=None, is_configured=is_configured)
    assert (steps, none) == ([2, 4, 6], [])
    assert often == alone


@pytest.mark.tier("full")
def test_the_time_of_evaluations_changes_no_bit_and_the_seed_does(tmp_path):
    often, _ = trained(tmp_path / "often")
    rarely, steps = trained(tmp_path / "rarely", throttle=10_000)
    assert steps == [2, 6]
    assert often == rarely
    assert often != trained(tmp_path / "seed", seed=1)[0]


@pytest.mark.source("S1-20")
def test_what_comes_back_is_of_the_last_checkpoint(tmp_path):
    """An evaluation depends on its checkpoint alone."""
    with machine(sr=True):
        line = saving(tmp_path, 2, halves)
        spec = EvalSpec(input_fn, 2, throttle_secs=0)
        metrics, exports = train_and_evaluate(line, TrainSpec(input_fn, 4), spec)
        assert metrics == line.evaluate(input_fn, steps=2)
    assert (metrics["global_step"], exports) == (4, [])


def test_the_report_counts_trainings_and_evaluations(tmp_path):
    with machine(count=True):
        line = saving(tmp_path, 2, iterations=2)
        spec = EvalSpec(input_fn, 4, throttle_secs=0)
        train_and_evaluate(line, TrainSpec(input_fn, 4), spec)
        used = current()
        assert (used.launches, used.step, used.evaluations) == (2 + 2 * 2, 4, 2 * 4)
        assert len(used.run.recorder.losses) == 4
        assert set(used.account.layers(used.device.counts)) >= {"line", "optimizer"}


class Kept(tf.estimator.Exporter):
    """An exporter that notes what it is called with."""

    def __init__(self, name):
        self._name, self.calls = name, []

    @property
    def name(self):
        """Of the folder."""
        return self._name

    def export(self, estimator, export_path, checkpoint_path, eval_result, is_the_final_export):
        """Export a checkpoint."""
        assert np.isfinite(eval_result["loss"])
        self.calls.append((checkpoint_path, is_the_final_export))
        return export_path


def test_exporters_follow_each_evaluation(tmp_path):
    exporters = [Kept("a"), Kept("b")]
    spec = EvalSpec(input_fn, 2, exporters=exporters, throttle_secs=0)
    with machine():
        _, exports = train_and_evaluate(saving(tmp_path, 2), TrainSpec(input_fn, 4), spec)
    calls = [(str(tmp_path / f"model.ckpt-{step}"), step == 4) for step in (2, 4)]
    assert exporters[0].calls == exporters[1].calls == calls
    assert exports == [str(tmp_path / "export" / name) for name in "ab"]


def test_a_training_that_has_ended_is_not_evaluated_again(tmp_path):
    train, spec = TrainSpec(input_fn, 4), EvalSpec(input_fn, 2)
    with machine():
        train_and_evaluate(estimator(tmp_path), train, spec)
        assert train_and_evaluate(estimator(tmp_path), train, spec) == (None, None)


def test_what_a_training_is_not_evaluated_with(tmp_path):
    line, train, spec = estimator(tmp_path), TrainSpec(input_fn, 4), EvalSpec(input_fn, 4)
    with pytest.raises(TypeError, match="`train_spec` must have type `TrainSpec`"):
        train_and_evaluate(line, None, spec)
    with pytest.raises(ValueError, match="has no max_steps"):
        train_and_evaluate(line, TrainSpec(input_fn), spec)
    with pytest.raises(ValueError, match="One of `num_steps` or"):
        train_and_evaluate(line, train, EvalSpec(input_fn, steps=None))
    with pytest.raises(ValueError, match=r"steps \(6\) must be a multiple of"):
        train_and_evaluate(estimator(tmp_path, iterations=4), train, EvalSpec(input_fn, 6))
    line.config = replace(line.config, save_checkpoints_secs=None)
    with machine(), pytest.raises(ValueError, match="There should be a CheckpointSaverHook to use"):
        train_and_evaluate(line, train, spec)
    assert not list(tmp_path.glob("*"))
