"""`tf.estimator`: the part of it that the documents' programs use.

Source    tensorflow/estimator, training.py.
"""

from __future__ import annotations

from typing import Any

from ipu.frontends.tensorflow.estimator.estimator import IPUEstimator
from ipu.frontends.tensorflow.estimator.evaluations import EvaluatingListener
from ipu.frontends.tensorflow.estimator.exporters import Exporter
from ipu.frontends.tensorflow.estimator.run_config import RunConfig
from ipu.frontends.tensorflow.estimator.specs import EstimatorSpec, EvalSpec, ModeKeys, TrainSpec

__all__ = [
    "EstimatorSpec", "EvalSpec", "Exporter", "ModeKeys", "RunConfig", "TrainSpec",
    "train_and_evaluate",
]


def train_and_evaluate(
    estimator: IPUEstimator, train_spec: TrainSpec, eval_spec: EvalSpec
) -> tuple[dict[str, Any] | None, list[Any] | None]:
    """Train up to max_steps, and evaluate checkpoints on the way; what the last evaluation gave.

    A checkpoint is evaluated where it is saved, at most every throttle_secs, and the last one after
    the training. The result is its metrics and what its exporters returned; (None, None) where
    max_steps was reached before.

    Raises    TypeError for another kind of estimator or spec; ValueError without max_steps, and
              where no checkpoints are saved.
    """
    for value, kind, name in (
        (estimator, IPUEstimator, "estimator"),
        (train_spec, TrainSpec, "train_spec"),
        (eval_spec, EvalSpec, "eval_spec"),
    ):
        if not isinstance(value, kind):
            raise TypeError(f"`{name}` must have type `{kind.__name__}`, given {type(value)}")
    if train_spec.max_steps is None:
        raise ValueError("train_spec has no max_steps; a training without an end is not evaluated")
    estimator.check_evaluation(eval_spec.steps)
    evaluating = EvaluatingListener(
        estimator, eval_spec, train_spec.max_steps, estimator.training_workers
    )
    estimator.train(
        train_spec.input_fn, hooks=train_spec.hooks, max_steps=train_spec.max_steps,
        saving_listeners=[*(train_spec.saving_listeners or ()), evaluating],
    )
    return evaluating.metrics, evaluating.exports
