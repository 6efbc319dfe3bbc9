"""Tracing: what the executor needs to know of a graph is noted while TensorFlow builds it.

A gradient tape forgets which node a gradient belongs to, tf.gradients does not (`_original_op`).
Inside of `tracing` the tape notes it too. TensorFlow calls the gradient function that is registered
with the tape; ours finds the forward node among the producers of the outputs, or the readers of the
inputs, and calls TensorFlow's.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import tensorflow as tf
from tensorflow.python import pywrap_tfe
from tensorflow.python.eager import backprop
from tensorflow.python.framework import ops

__all__ = ["tracing"]


@contextmanager
def tracing() -> Iterator[None]:
    """Gradients that tapes build inside know their forward nodes."""
    pywrap_tfe.TFE_Py_RegisterGradientFunction(_gradient)
    try:
        yield
    finally:
        pywrap_tfe.TFE_Py_RegisterGradientFunction(backprop._gradient_function)


def _gradient(
    op_name: str, attributes: Any, count: int, inputs: Any, outputs: Any, *rest: Any
) -> Any:
    forward = _forward_node(op_name, attributes, inputs, outputs)
    graph = ops.get_default_graph()
    noting = nullcontext() if forward is None else graph._original_op(forward)
    with noting:
        return backprop._gradient_function(op_name, attributes, count, inputs, outputs, *rest)


def _forward_node(op_name: str, attributes: Any, inputs: Any, outputs: Any) -> tf.Operation | None:
    """The node of that type with these inputs or outputs, as far as the tape has kept them."""
    for tensor in outputs or ():
        if _is_symbolic(tensor) and tensor.op.type == op_name:
            return tensor.op
    for tensor in inputs or ():
        if _is_symbolic(tensor):
            alike = [op for op in tensor.consumers() if _is_alike(op, op_name, attributes, inputs)]
            return alike[0] if alike else None
    return None


def _is_alike(op: Any, op_name: str, attributes: Any, inputs: Any) -> bool:
    if op.type != op_name or len(op.inputs) != len(inputs):
        return False
    pairs = zip(op.inputs, inputs, strict=True)
    if any(_is_symbolic(kept) and kept is not own for own, kept in pairs):
        return False
    chosen = dict(zip(attributes[::2], attributes[1::2], strict=True))
    return all(op.get_attr(name) == v for name, v in chosen.items() if isinstance(v, bool))


def _is_symbolic(tensor: Any) -> bool:
    return isinstance(tensor, tf.Tensor) and not hasattr(tensor, "_numpy")
