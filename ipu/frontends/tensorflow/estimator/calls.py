"""Calls of the user's functions: each gets the arguments that it names.

Source    graphcore/tensorflow, tensorflow/python/ipu/ipu_estimator.py: messages.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

import tensorflow as tf

from ipu.frontends.tensorflow.estimator.specs import EstimatorSpec, IPUEstimatorSpec

__all__ = ["call_input_fn", "call_model_fn", "names", "unpacked"]

Spec = EstimatorSpec | IPUEstimatorSpec


def names(function: Callable[..., Any]) -> set[str]:
    """The names of a function's arguments."""
    return set(inspect.signature(function).parameters)


def call_input_fn(function: Callable[..., Any], **offered: Any) -> Any:
    """The data set of an input function; it gets what it names of the arguments offered.

    Raises    ValueError where it returns something else.
    """
    named = names(function)
    dataset = function(**{k: v for k, v in offered.items() if k in named and v is not None})
    if not isinstance(dataset, tf.data.Dataset | tf.compat.v1.data.Dataset):
        raise ValueError("input_fn must return Dataset")
    return dataset


def call_model_fn(
    function: Callable[..., Any], features: Any, labels: Any, mode: str,
    params: Mapping[str, Any], config: Any,
) -> Spec:
    """What a model function builds.

    Raises    ValueError for labels that it does not take, and for another kind of result.
    """
    named = names(function)
    if labels is not None and "labels" not in named:
        raise ValueError("model_fn does not take labels, but input_fn returns labels.")
    offered = {"labels": labels, "mode": mode, "params": dict(params), "config": config}
    spec = function(features=features, **{k: v for k, v in offered.items() if k in named})
    if not isinstance(spec, Spec):
        raise ValueError("`model_fn` must return IPUEstimatorSpec or EstimatorSpec")
    return spec


def unpacked(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> tuple[Any, Any]:
    """Features and labels of an element: one or two parts, or a dictionary of features.

    Raises    ValueError for more parts.
    """
    if kwargs:
        return dict(kwargs), None
    if len(args) not in (1, 2):
        raise ValueError(f"Invalid dataset tuple, expected 1 or 2 elements, got {len(args)}")
    return (*args, None) if len(args) == 1 else args
