"""A loss scale that a program is given from outside, in graphs of gradients.

Gradients begin at the scale instead of at 1, and what they lead to is divided by it: in binary32
where it is a float32 tensor, in its own type where it is half. In the graph both numbers are 1 with
a mark; the machine puts the scale of its run in their place, so that a graph belongs to no run.

Source    `ipu.run.changes` (loss_scale).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from ipu.frontends.tensorflow.engine.node import Node, marked
from ipu.frontends.tensorflow.engine.program import GraphProgram

__all__ = ["factor_of", "first_gradients", "is_scaled", "unscaled_gradients"]

_MARK = "loss_scale"
_FIRST, _LAST = "times", "divided"


def factor_of(node: Node, scale: float) -> float | None:
    """The number that a constant stands for in a run with this scale; None: its own."""
    which = node.marks.get(_MARK)
    return None if which is None else scale if which == _FIRST else 1 / scale


def first_gradients(targets: Sequence[Any]) -> list[Any]:
    """What gradients of these tensors begin at."""
    return [_filled(target, _one(_FIRST, target.dtype)) for target in targets]


def unscaled_gradients(gradients: Sequence[Any]) -> list[Any]:
    """Gradients without the scale; None, and what is no floating-point tensor, stays."""
    return list(map(_unscaled, gradients))


def is_scaled(program: GraphProgram) -> bool:
    """Whether gradients were built that a scale can begin."""
    return any(_MARK in node.marks for node in program.nodes)


def _one(which: str, dtype: Any) -> Any:
    with marked(**{_MARK: which}):
        return tf.constant(1, dtype, name="loss_scale")


def _filled(target: Any, one: Any) -> Any:
    if target.shape.rank == 0:
        return one
    shape = target.shape if target.shape.is_fully_defined() else tf.shape(target)
    return tf.broadcast_to(one, shape)


def _unscaled(gradient: Any) -> Any:
    if isinstance(gradient, tf.IndexedSlices):
        values = _unscaled(gradient.values)
        return tf.IndexedSlices(values, gradient.indices, gradient.dense_shape)
    if gradient is None or not gradient.dtype.is_floating:
        return gradient
    return tf.multiply(gradient, _one(_LAST, gradient.dtype), name="unscaled")
