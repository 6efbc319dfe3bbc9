"""Tracing: what the executor needs to know of a graph is noted while TensorFlow builds it.

A gradient tape forgets which node a gradient belongs to, tf.gradients does not (`_original_op`).
Inside of `tracing` the tape notes it too. TensorFlow calls the gradient function that is registered
with the tape; ours finds the forward node among the producers of the outputs, or the readers of the
inputs, and calls TensorFlow's.

Where gradients begin is noted too: tensors with one element there are losses. A run that gives the
program a loss scale has its nodes put there (`engine.scaling`).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any
from weakref import WeakKeyDictionary

import tensorflow as tf
from tensorflow.python import pywrap_tfe
from tensorflow.python.eager import backprop, imperative_grad
from tensorflow.python.framework import ops
from tensorflow.python.ops import gradients_util

from ipu.frontends.tensorflow.engine.scaling import first_gradients, unscaled_gradients

__all__ = ["losses_of", "noting_losses", "tracing"]


@contextmanager
def tracing(scale: float = 1.0) -> Iterator[None]:
    """Gradients that tapes build inside know their forward nodes; where they begin is noted.

    scale    of the run, at which gradients begin.
    """
    pywrap_tfe.TFE_Py_RegisterGradientFunction(_gradient)
    try:
        with noting_losses(scale):
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
    if any(_is_symbolic(other) and other is not leaf for leaf, other in pairs):
        return False
    options = dict(zip(attributes[::2], attributes[1::2], strict=True))
    return all(op.get_attr(name) == v for name, v in options.items() if isinstance(v, bool))


def _is_symbolic(tensor: Any) -> bool:
    return isinstance(tensor, tf.Tensor) and not hasattr(tensor, "_numpy")


# Losses -------------------------------------------------------------------------------------------

_losses: WeakKeyDictionary[Any, set[tuple[str, int]]] = WeakKeyDictionary()


def losses_of(graph: Any) -> set[tuple[str, int]]:
    """Tensors with one element at which gradients of a graph begin: node and output."""
    return _losses.get(graph, set())


@contextmanager
def noting_losses(scale: float = 1.0) -> Iterator[None]:
    """Where gradients begin that are built inside is noted, and they are scaled.

    scale    of the run; with 1 the graph is TensorFlow's.
    """
    helper, tape = gradients_util._GradientsHelper, imperative_grad.imperative_grad

    def noted_helper(ys: Any, xs: Any, grad_ys: Any = None, *rest: Any, **options: Any) -> Any:
        if not _begins(ys, grad_ys):
            return helper(ys, xs, grad_ys, *rest, **options)
        _note_losses(ys)
        if scale == 1:
            return helper(ys, xs, grad_ys, *rest, **options)
        return unscaled_gradients(helper(ys, xs, _first(ys), *rest, **options))

    def noted_tape(
        of: Any, target: Any, sources: Any, output_gradients: Any = None, **options: Any
    ) -> Any:
        if not _begins(target, output_gradients):
            return tape(of, target, sources, output_gradients, **options)
        _note_losses(target)
        if scale == 1:
            return tape(of, target, sources, output_gradients, **options)
        return unscaled_gradients(tape(of, target, sources, _first(target), **options))

    gradients_util._GradientsHelper, imperative_grad.imperative_grad = noted_helper, noted_tape
    try:
        yield
    finally:
        gradients_util._GradientsHelper, imperative_grad.imperative_grad = helper, tape


def _begins(targets: Any, first: Any) -> bool:
    """Whether gradients begin here; else it is the middle of a loop, or no loss."""
    is_given = any(gradient is not None for gradient in tf.nest.flatten(first))
    return not is_given and all(map(_is_symbolic, tf.nest.flatten(targets)))


def _first(targets: Any) -> list[Any]:
    return first_gradients(tf.nest.flatten(targets))


def _note_losses(targets: Any) -> None:
    for target in tf.nest.flatten(targets):
        if target.shape.num_elements() == 1:
            _losses.setdefault(target.graph, set()).add((target.op.name, target.value_index))
