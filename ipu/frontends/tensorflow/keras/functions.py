"""Keras' own functions of a step, launched on the machine.

Inside of an IPUStrategy, what `fit`, `evaluate` and `predict` call for steps_per_execution batches
is one launch. Outside of one nothing changes.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

import tensorflow as tf

from ipu.frontends.tensorflow.checkpoints import warn_of_scales
from ipu.frontends.tensorflow.engine.current import current
from ipu.frontends.tensorflow.engine.launch import launching_functions
from ipu.frontends.tensorflow.engine.replicas import forget_private, in_replicas
from ipu.frontends.tensorflow.engine.trace import tracing
from ipu.frontends.tensorflow.keras.capturing import capture_in_steps
from ipu.frontends.tensorflow.keras.lines import note_lines
from ipu.frontends.tensorflow.keras.metrics import mark_losses, mark_metrics
from ipu.frontends.tensorflow.keras.options import (
    add_setters,
    all_replicas_of,
    explained,
    marking_pipeline,
    options_of,
    prepare_training,
    replicas_of,
)
from ipu.frontends.tensorflow.keras.replicas import deal_steps, gather_steps
from ipu.frontends.tensorflow.keras.synchrony import check_end, in_sync, note_saved
from ipu.frontends.tensorflow.strategy import IPUStrategyV1

__all__ = ["extend_models", "is_on_ipu"]

_MAKERS = ("make_train_function", "make_test_function", "make_predict_function")
#: Of a method of models: it is ours around Keras' own.
_EXTENDED = "_fpsim_extended"
_OF_ONE_BATCH = ("train_on_batch", "test_on_batch", "predict_on_batch")


def is_on_ipu(model: Any) -> bool:
    """Whether a model was made inside of an IPUStrategy with Keras extensions."""
    strategy = model.distribute_strategy
    return isinstance(strategy, IPUStrategyV1) and strategy._enable_keras_extensions


def extend_models() -> None:
    """Models of this process launch their functions; nothing happens the second time."""
    add_setters()
    note_lines()
    deal_steps(lambda model: replicas_of(model) if model is not None and is_on_ipu(model) else 1)
    mark_metrics()
    mark_losses()
    for name in _MAKERS:
        _extend(name, _launching)
    for name in _OF_ONE_BATCH:
        _extend(name, _of_one_batch)
    _extend("fit", _checking)
    _extend("reset_metrics", _forgetting)
    for name in ("save", "save_weights"):
        _extend(name, _noting)


def _extend(name: str, extension: Callable[[Any], Callable[..., Any]]) -> None:
    """Extend a method of models, once.

    The mark is ours: Keras' own decorators leave `__wrapped__` on its methods.
    """
    method = getattr(tf.keras.Model, name)
    if not hasattr(method, _EXTENDED):
        extended = extension(method)
        setattr(extended, _EXTENDED, True)
        setattr(tf.keras.Model, name, extended)


def _checking(fit: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(fit)
    def checked_fit(model: Any, *arguments: Any, **options: Any) -> Any:
        history = fit(model, *arguments, **options)
        if is_on_ipu(model):
            check_end(model, current())
        return history

    return checked_fit


def _noting(save: Callable[..., Any]) -> Callable[..., Any]:
    """A method that saves: its step is told when another process is lost."""

    @wraps(save)
    def noted(model: Any, *arguments: Any, **options: Any) -> Any:
        result = save(model, *arguments, **options)
        if is_on_ipu(model):
            note_saved(model, current())
            warn_of_scales(arguments[0] if arguments else options.get("filepath", ""))
        return result

    return noted


def _of_one_batch(method: Callable[..., Any]) -> Callable[..., Any]:
    """A method that passes one batch to a launch, which then may not take several."""

    @wraps(method)
    def checked(model: Any, *arguments: Any, **options: Any) -> Any:
        variable = model._steps_per_execution
        steps = 1 if variable is None else int(variable.numpy())
        if is_on_ipu(model) and steps > 1:
            raise ValueError(
                f"steps_per_execution={steps} takes {steps} batches in a launch, and "
                f"{method.__name__} has one; use compile(steps_per_execution=1), or fit, evaluate "
                "and predict"
            )
        if is_on_ipu(model) and replicas_of(model) > 1:
            raise ValueError(
                f"{method.__name__} has one batch, and the model runs in {replicas_of(model)} "
                "replicas, which take one each; use fit, evaluate and predict"
            )
        return method(model, *arguments, **options)

    return checked


def _forgetting(reset: Callable[[Any], None]) -> Callable[[Any], None]:
    @wraps(reset)
    def reset_metrics(model: Any) -> None:
        reset(model)
        for metric in model.metrics:
            for variable in metric.variables:
                forget_private(current(), variable.handle)

    return reset_metrics


def _launching(maker: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(maker)
    def make(model: Any, force: bool = False) -> Any:
        kind = maker.__name__.removeprefix("make_")
        if not is_on_ipu(model):
            return maker(model, force)
        if model.run_eagerly:
            raise RuntimeError(
                "Keras models cannot run eagerly when using `IPUStrategy`. Set "
                "`run_eagerly=False` when calling `compile`."
            )
        if kind == "train_function":
            prepare_training(model)
            capture_in_steps(model)
        if all_replicas_of(model) > 1:
            gather_steps(model, lambda: options_of(model).metrics)
        function = maker(model, force)
        if isinstance(function, _Launch):
            return function
        launch = _Launch(function, model, trains=kind == "train_function")
        setattr(model, kind, launch)
        return launch

    return make


class _Launch:
    """A function of an iterator whose calls are launches."""

    def __init__(self, function: Any, model: Any, *, trains: bool) -> None:
        self._function, self._model, self._trains = function, model, trains
        self._is_traced = False

    def __call__(self, iterator: Any) -> Any:
        model = self._model
        count, together = replicas_of(model), model.distribute_strategy.replica_set
        with in_replicas(current(), count, together):
            if not self._is_traced:
                self._trace(iterator)
                self._is_traced = True
            with launching_functions(), in_sync(model, current(), trains=self._trains):
                return self._function(iterator)

    def _trace(self, iterator: Any) -> None:
        """Build the graph; variables are created and initialised on the host."""
        try:
            with tracing(current().loss_scale), marking_pipeline(
                self._model, training=self._trains
            ):
                self._function.get_concrete_function(iterator)
        except Exception:
            error = explained(self._model)
            if error is None:
                raise
            raise error from None
