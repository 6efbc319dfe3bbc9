"""Metrics of Keras are statistics of the host: their nodes carry a mark with the metric's name.

A policy names formats of layers. What `update_state` and `result` build is no layer: it computes in
the data types of the program, and so do the variables of the metric, unless a pattern of the policy
matches `metrics/NAME` (`engine.statistics`).

Source    docs/tensorflow.md (Which numbers).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

import tensorflow as tf

from ipu.frontends.tensorflow.engine.node import marked

__all__ = ["mark_metrics"]

_METHODS = ("update_state", "result")
#: That a class marks what its objects build.
_MARKS = "_fpsim_marks"


def mark_metrics() -> None:
    """Metrics that are made from now on mark what they build; nothing happens the second time."""
    metric = tf.keras.metrics.Metric
    if hasattr(metric, _MARKS):
        return
    make = metric.__new__

    def new(cls: Any, *arguments: Any, **options: Any) -> Any:
        made = make(cls, *arguments, **options)
        for name in _METHODS:
            object.__setattr__(made, name, _marking(made, getattr(made, name)))
        return made

    metric.__new__ = new
    setattr(metric, _MARKS, True)


def _marking(metric: Any, method: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(method)
    def marking(*arguments: Any, **options: Any) -> Any:
        if tf.executing_eagerly():
            return method(*arguments, **options)
        with marked(metric=metric.name):
            return method(*arguments, **options)

    return marking
