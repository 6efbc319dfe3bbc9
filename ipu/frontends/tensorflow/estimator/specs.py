"""What model functions return and what `train_and_evaluate` takes.

Source    tensorflow/estimator, model_fn.py and training.py; graphcore/tensorflow,
          tensorflow/python/ipu/ipu_estimator.py: fields, checks and messages.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from ipu.frontends.tensorflow.estimator.exporters import checked_exporters

__all__ = ["EstimatorSpec", "EvalSpec", "IPUEstimatorSpec", "ModeKeys", "TrainSpec"]


class ModeKeys:
    """What a model function is called for."""

    TRAIN = "train"
    EVAL = "eval"
    PREDICT = "infer"


_MODES = (ModeKeys.TRAIN, ModeKeys.EVAL, ModeKeys.PREDICT)

Call = tuple[Callable[..., Any], Any]


@dataclass(frozen=True)
class EstimatorSpec:
    """What a model function builds for a mode.

    eval_metric_ops    by name: (value, update), computed on the machine.

    Raises             ValueError for a mode that is none, and where the mode lacks something.

    >>> EstimatorSpec(ModeKeys.TRAIN, loss=0.0)
    Traceback (most recent call last):
    ...
    ValueError: Missing train_op.
    """

    mode: str
    predictions: Any = None
    loss: Any = None
    train_op: Any = None
    eval_metric_ops: Mapping[str, tuple[Any, Any]] | None = None
    export_outputs: Any = None
    training_chief_hooks: Sequence[Any] | None = None
    training_hooks: Sequence[Any] | None = None
    scaffold: Any = None
    evaluation_hooks: Sequence[Any] | None = None
    prediction_hooks: Sequence[Any] | None = None

    def __post_init__(self) -> None:
        _check(self)


@dataclass(frozen=True)
class IPUEstimatorSpec:
    """As `EstimatorSpec`, with calls of the host.

    eval_metrics    (function, tensors): the function computes metrics on the host.
    host_call       (function, tensors): called on the host once in every training step.
    """

    mode: str
    predictions: Any = None
    loss: Any = None
    train_op: Any = None
    eval_metric_ops: Mapping[str, tuple[Any, Any]] | None = None
    eval_metrics: Call | None = None
    host_call: Call | None = None
    training_hooks: Sequence[Any] | None = None
    evaluation_hooks: Sequence[Any] | None = None
    prediction_hooks: Sequence[Any] | None = None

    def __post_init__(self) -> None:
        _check(self)
        _check_call(self.host_call, "host_call", (list,))
        _check_call(self.eval_metrics, "eval_metrics", (list, dict))


def _check(spec: EstimatorSpec | IPUEstimatorSpec) -> None:
    if spec.mode not in _MODES:
        raise ValueError(f"mode={spec.mode!r} is not one of ModeKeys: {', '.join(_MODES)}")
    if spec.mode != ModeKeys.PREDICT and spec.loss is None:
        raise ValueError("Missing loss.")
    if spec.mode == ModeKeys.TRAIN and spec.train_op is None:
        raise ValueError("Missing train_op.")
    if spec.mode == ModeKeys.PREDICT and spec.predictions is None:
        raise ValueError("Missing predictions.")


def _check_call(call: Any, name: str, kinds: tuple[type, ...]) -> None:
    if call is None:
        return
    if not isinstance(call, tuple):
        raise TypeError(f"`{name}` must be a tuple")
    if len(call) != 2:
        raise ValueError(f"`{name}` must have two elements")
    if not callable(call[0]):
        raise TypeError(f"first element in `{name}` must be callable")
    if not isinstance(call[1], kinds):
        words = " or ".join(kind.__name__ for kind in kinds)
        raise TypeError(f"second element in `{name}` must be a {words}")


@dataclass(frozen=True)
class TrainSpec:
    """What to train with, up to how many steps in all.

    saving_listeners    told of the checkpoints.
    """

    input_fn: Callable[..., Any]
    max_steps: int | None = None
    hooks: Sequence[Any] | None = ()
    saving_listeners: Sequence[Any] | None = ()

    def __post_init__(self) -> None:
        _check_input(self.input_fn)
        if self.max_steps is not None and self.max_steps <= 0:
            raise ValueError(f"Must specify max_steps > 0, given: {self.max_steps}")
        train = tf.compat.v1.train
        for name, kind in (
            ("hooks", train.SessionRunHook), ("saving_listeners", train.CheckpointSaverListener),
        ):
            object.__setattr__(self, name, _all_of(getattr(self, name), kind, name))


@dataclass(frozen=True)
class EvalSpec:
    """What to evaluate checkpoints with, for how many steps, and how often at most.

    name                of the evaluation: its summary lies in eval_NAME/.
    exporters           called after each evaluation; `exporters.Exporter`.
    throttle_secs       at least from the beginning of one evaluation to the next one.
    start_delay_secs    is read: in one process evaluations wait for no other one.
    """

    input_fn: Callable[..., Any]
    steps: int | None = 100
    name: str | None = None
    hooks: Sequence[Any] | None = ()
    exporters: Any = ()
    start_delay_secs: float = 120
    throttle_secs: float = 600

    def __post_init__(self) -> None:
        _check_input(self.input_fn)
        if self.steps is not None and self.steps <= 0:
            raise ValueError(f"Must specify steps > 0, given: {self.steps}")
        if self.name is not None and not isinstance(self.name, str):
            raise TypeError(f"`name` must be string, given: {self.name}")
        hooks = _all_of(self.hooks, tf.compat.v1.train.SessionRunHook, "hooks")
        object.__setattr__(self, "hooks", hooks)
        object.__setattr__(self, "exporters", checked_exporters(self.exporters))
        for name in ("start_delay_secs", "throttle_secs"):
            if getattr(self, name) < 0:
                raise ValueError(f"Must specify {name} >= 0, given: {getattr(self, name)}")


def _check_input(function: Any) -> None:
    if not callable(function):
        raise TypeError(f"`input_fn` must be callable, given: {function}")


def _all_of(values: Sequence[Any] | None, kind: type, name: str) -> tuple[Any, ...]:
    """The values of a spec as a tuple, all of a kind."""
    every = tuple(values or ())
    for value in every:
        if not isinstance(value, kind):
            raise TypeError(f"All {name} must be `{kind.__name__}` instances, given: {value}")
    return every
