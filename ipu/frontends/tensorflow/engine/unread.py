"""Losses that nothing reads: their value, from what the machine computed.

A gradient needs the operands of a loss, not the loss itself; TensorFlow then never computes it.
For a report the host computes it in binary64 from the tensors that the machine did compute, where
sums, means, products and quotients lead to it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

__all__ = ["Formula", "formula_of"]

Values = dict[tuple[str, int], Any]

_MOVES = frozenset(("Identity", "Cast"))
_OF_TWO: dict[str, Callable[..., Any]] = {
    "Mul": np.multiply, "RealDiv": np.divide, "AddV2": np.add, "Sub": np.subtract,
    "DivNoNan": lambda x, y: np.where(y == 0, 0.0, np.divide(x, np.where(y == 0, 1.0, y))),
    "SquaredDifference": lambda x, y: np.square(x - y),
}
_OF_ONE: dict[str, Callable[..., Any]] = {
    "Neg": np.negative, "Square": np.square, "L2Loss": lambda x: 0.5 * np.sum(np.square(x)),
}
_OVER_AXES: dict[str, Callable[..., Any]] = {"Mean": np.mean, "Sum": np.sum}


class Formula(NamedTuple):
    """How a number follows from tensors.

    leaves    node and output of each tensor.
    value     from their values.
    """

    leaves: tuple[tuple[str, int], ...]
    value: Callable[[Values], Any]


def formula_of(tensor: Any, computed: Collection[str]) -> Formula | None:
    """A tensor from those of nodes that are computed; None where other nodes lead to it."""
    op, key = tensor.op, (tensor.op.name, tensor.value_index)
    constant = tf.get_static_value(tensor) if tensor.dtype.is_numpy_compatible else None
    if constant is not None:
        number = np.asarray(constant, np.float64)
        return Formula((), lambda _: number)
    if op.name in computed:
        return Formula((key,), lambda values: values[key])
    if op.type in _MOVES:
        return formula_of(op.inputs[0], computed)
    if op.type == "AddN":
        return _combined(op.inputs, computed, lambda *terms: sum(terms))
    if op.type in _OF_TWO | _OF_ONE:
        return _combined(op.inputs, computed, (_OF_TWO | _OF_ONE)[op.type])
    if op.type in _OVER_AXES:
        axes = tf.get_static_value(op.inputs[1])
        if axes is None:
            return None
        reduce, over = _OVER_AXES[op.type], tuple(np.ravel(axes).tolist())
        keeps = op.get_attr("keep_dims")
        return _combined(op.inputs[:1], computed, lambda x: reduce(x, axis=over, keepdims=keeps))
    return None


def _combined(
    inputs: Any, computed: Collection[str], function: Callable[..., Any]
) -> Formula | None:
    parts = [formula_of(tensor, computed) for tensor in inputs]
    formulas = [part for part in parts if part is not None]
    if len(formulas) < len(parts):
        return None
    leaves = tuple(dict.fromkeys(leaf for part in formulas for leaf in part.leaves))
    return Formula(leaves, lambda values: function(*(part.value(values) for part in formulas)))
