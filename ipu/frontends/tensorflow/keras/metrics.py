"""Metrics and losses of Keras: their nodes carry marks with their names.

Metrics are statistics of the host. A policy names formats of layers, and what `update_state` and
`result` build is no layer: it is binary32, and so are the variables of the metric, unless a pattern
of the policy matches `metrics/NAME` (`engine.statistics`). Losses are binary32 where they are sums
(`engine.losses`), and a launch without gradients knows them by their marks.

Source    docs/tensorflow.md (Which numbers).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

import tensorflow as tf

from ipu.frontends.tensorflow.engine.node import marked

__all__ = ["mark_losses", "mark_metrics"]

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
        metric = make(cls, *arguments, **options)
        for name in _METHODS:
            object.__setattr__(metric, name, _marking(metric, getattr(metric, name)))
        return metric

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


def mark_losses() -> None:
    """Losses mark what they build; nothing happens the second time."""
    loss = tf.keras.losses.Loss
    if hasattr(loss, _MARKS):
        return
    call = loss.__call__

    @wraps(call)
    def marking(self: Any, *arguments: Any, **options: Any) -> Any:
        if tf.executing_eagerly():
            return call(self, *arguments, **options)
        with marked(loss=self.name or type(self).__name__):
            return call(self, *arguments, **options)

    loss.__call__ = marking
    setattr(loss, _MARKS, True)
