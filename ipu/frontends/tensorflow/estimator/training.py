"""`tf.estimator`: the part of it that the documents' programs use.

Source    tensorflow/estimator, training.py.
"""

from __future__ import annotations

from typing import Any

from ipu.frontends.tensorflow.estimator.estimator import IPUEstimator
from ipu.frontends.tensorflow.estimator.run_config import RunConfig
from ipu.frontends.tensorflow.estimator.specs import EstimatorSpec, EvalSpec, ModeKeys, TrainSpec
from ipu.frontends.tensorflow.settings.notes import note

__all__ = [
    "EstimatorSpec", "EvalSpec", "ModeKeys", "RunConfig", "TrainSpec", "train_and_evaluate",
]  # fmt: skip


def train_and_evaluate(
    estimator: IPUEstimator, train_spec: TrainSpec, eval_spec: EvalSpec
) -> tuple[dict[str, Any], list[Any]]:
    """Train up to max_steps, then evaluate once; metrics, and exports, of which there are none.

    Raises    TypeError for another kind of estimator or spec; ValueError without max_steps.
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
    _note(eval_spec)
    estimator.train(
        train_spec.input_fn, hooks=train_spec.hooks, max_steps=train_spec.max_steps,
        saving_listeners=train_spec.saving_listeners,
    )  # fmt: skip
    metrics = estimator.evaluate(
        eval_spec.input_fn, steps=eval_spec.steps, hooks=eval_spec.hooks, name=eval_spec.name
    )
    return metrics, []


def _note(spec: EvalSpec) -> None:
    """Say what of a spec the simulation does not model."""
    for name in ("exporters", "start_delay_secs", "throttle_secs"):
        value = getattr(spec, name)
        if value != getattr(EvalSpec, name):
            note(f"{name}={value!r} is accepted, but one evaluation follows the training")
