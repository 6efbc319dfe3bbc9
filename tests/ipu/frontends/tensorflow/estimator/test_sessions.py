"""Summaries, checkpoints and hooks of an estimator's sessions (golden, law)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ipu.frontends.tensorflow.estimator.specs import EstimatorSpec
from tests.ipu.frontends.tensorflow.estimator.models import estimator, input_fn, v1
from tests.ipu.frontends.tensorflow.framework import machine, tf


def numbers(batch=1):
    """0, 1, 2 … as features and as labels."""
    pairs = tf.data.Dataset.range(10).map(lambda n: 2 * (tf.cast(n, tf.float32)[None],))
    return pairs.repeat().batch(batch, drop_remainder=True)


def summed(features, labels, mode):
    """The loss is the sum of the numbers; there is nothing to train."""
    loss = tf.reduce_sum(features + labels)
    metrics = {"mean": v1.metrics.mean(features)}
    return EstimatorSpec(
        mode, {"sum": features + labels}, loss, tf.identity(loss), eval_metric_ops=metrics
    )


def summaries(folder, tag):
    """Values of a tag in the events of a folder."""
    return [
        value.simple_value
        for file in folder.glob("*tfevents*")
        for event in v1.train.summary_iterator(str(file))
        for value in event.summary.value
        if value.tag == tag
    ]


@pytest.mark.source("graphcore/tensorflow, ipu_estimator_test.py")
@pytest.mark.parametrize(
    ("iterations", "batch", "losses"), [(1, 1, [0, 2, 4, 6, 8, 10]), (2, 2, [6, 22, 18])]
)
def test_the_mean_loss_of_a_launch_is_a_summary(tmp_path, iterations, batch, losses):
    line = estimator(tmp_path, summed, iterations=iterations)
    line.config = replace(line.config, save_summary_steps=1)
    with machine():
        line.train(lambda: numbers(batch), steps=6)
    assert summaries(tmp_path, "loss") == losses


def test_an_evaluation_writes_its_metrics_into_its_own_folder(tmp_path):
    line = estimator(tmp_path, summed)
    with machine():
        line.evaluate(numbers, steps=3)
        line.evaluate(numbers, steps=3, name="b")
    assert summaries(tmp_path / "eval", "mean") == summaries(tmp_path / "eval_b", "mean") == [1]
    assert summaries(tmp_path / "eval", "loss") == [2]


def test_labels_are_there_for_predictions_too(tmp_path):
    line = estimator(tmp_path, summed)
    with machine():
        rows = list(line.predict(numbers, num_predictions=3))
        assert [float(row["sum"][0]) for row in rows] == [0, 2, 4]
        with pytest.raises(ValueError, match="'b' is not a prediction of model_fn; use sum"):
            next(line.predict(numbers, predict_keys=["b"]))


class Runs(v1.train.SessionRunHook):
    """How often a session ran."""

    count = 0

    def after_run(self, run_context, run_values):
        """A launch has ended."""
        self.count += 1


def test_every_hook_is_called_once_in_a_launch(tmp_path):
    spec, hooks = [Runs() for _ in range(4)], [Runs() for _ in range(3)]

    def model(features, labels, mode):
        return replace(
            summed(features, labels, mode), training_hooks=[spec[0]], evaluation_hooks=[spec[1]],
            prediction_hooks=[spec[2]], training_chief_hooks=[spec[3]],
        )

    line = estimator(tmp_path, model)
    with machine():
        line.train(numbers, hooks=[hooks[0]], steps=3)
        line.evaluate(numbers, hooks=[hooks[1]], steps=2)
        list(line.predict(numbers, hooks=[hooks[2]], num_predictions=4))
    assert [hook.count for hook in hooks] == [3, 2, 4]
    assert [hook.count for hook in spec] == [3, 2, 4, 3]


class Saved(v1.train.CheckpointSaverListener):
    """Steps of the checkpoints."""

    def __init__(self):
        self.steps = []

    def after_save(self, session, global_step_value):
        """A checkpoint lies there."""
        self.steps.append(int(global_step_value))


def test_checkpoints_are_told_and_as_many_are_kept_as_asked_for(tmp_path):
    line, told = estimator(tmp_path), Saved()
    line.config = replace(line.config, save_checkpoints_steps=2, keep_checkpoint_max=2)
    with machine():
        line.train(input_fn, steps=6, saving_listeners=[told])
    assert told.steps == [0, 2, 4, 6]
    assert sorted(p.stem for p in tmp_path.glob("*.index")) == ["model.ckpt-4", "model.ckpt-6"]


def test_a_loss_is_one_number(tmp_path):
    def model(features, labels, mode):
        return replace(summed(features, labels, mode), loss=features[:, 0])

    with machine():
        one = estimator(tmp_path / "a", model).evaluate(numbers, steps=2)
        assert one["loss"] == 0.5
        with pytest.raises(ValueError, match="Loss must be scalar, given: Tensor"):
            estimator(tmp_path / "b", model).train(lambda: numbers(2), steps=1)


def test_variables_of_a_model_are_resources(tmp_path):
    def model(features, labels, mode):
        update = v1.get_variable("n", initializer=0.0).assign_add(1.0)
        return EstimatorSpec(mode, loss=tf.reduce_sum(features), train_op=update)

    v1.disable_resource_variables()
    try:
        with machine():
            line = estimator(tmp_path, model).train(numbers, steps=2)
    finally:
        v1.enable_resource_variables()
    assert line.get_variable_value("n") == 2


@pytest.mark.parametrize(
    ("most", "steps_left"), [(2, [5, 6]), (5, [2, 3, 4, 5, 6]), (None, range(7))]
)
def test_the_newest_checkpoints_are_kept(tmp_path, most, steps_left):
    """Of every step and of the start; None keeps all, as TensorFlow's Saver does."""
    line = estimator(tmp_path)
    line.config = replace(line.config, save_checkpoints_steps=1, keep_checkpoint_max=most)
    with machine():
        line.train(input_fn, steps=6)
        steps = sorted(
            int(file.stem.rpartition("-")[2]) for file in tmp_path.glob("model.ckpt-*.index")
        )
        assert steps == list(steps_left)
        assert line.latest_checkpoint().endswith("model.ckpt-6")
        line.train(input_fn, steps=1)  # goes on, and counts the earlier ones
    assert len(list(tmp_path.glob("model.ckpt-*.index"))) <= max(most or 9, 1)
