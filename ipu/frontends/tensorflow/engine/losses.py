"""Losses of a program: where gradients begin, what scales them, what leads to them.

A loss is a tensor with one element at which gradients begin. Where that is the product of a tensor
and a number, which is a power of two above 1 or known to its runs alone, the tensor is the loss and
the number its scale.

Losses of Keras carry the mark `loss`, so an evaluation, which has no gradients, knows them.

Loss, scale and the first gradients are binary32 whatever the policy says of float32: the means and
sums that end in a loss, the entropies under them, the numbers between, and their gradients up to
the first one that a layer reads, which is rounded into the layer's format. float16 tensors of the
program stay what they are.

Source    docs/semantics.md §6 (Training).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
from tensorflow.python.framework.ops import EagerTensor

from ipu.frontends.tensorflow.engine.node import Node
from ipu.frontends.tensorflow.engine.program import GraphProgram
from ipu.frontends.tensorflow.engine.trace import losses_of

__all__ = [
    "Loss",
    "find_losses",
    "is_scale",
    "scale_inputs",
    "scale_readers",
    "unscaling",
    "wide_nodes",
]

#: Nodes through which a number reaches the loss that it scales.
_PASSING = frozenset(("Cast", "Identity", "ReadVariableOp", "Reshape"))
#: Where a number comes from that its runs decide.
_UNKNOWN = frozenset(("Placeholder", "VarHandleOp", "ReadVariableOp"))
_ENTROPIES = frozenset(("SparseSoftmaxCrossEntropyWithLogits", "SoftmaxCrossEntropyWithLogits"))
_REDUCTIONS = frozenset(("Mean", "Sum", "L2Loss"))
#: Nodes between a loss and what it is a mean of.
_BETWEEN = frozenset((
    "Mul", "RealDiv", "DivNoNan", "AddV2", "AddN", "Sub", "Neg", "Identity", "Cast", "Reshape",
    "Squeeze", "ExpandDims",
))
#: How the reciprocal of a scale is made, and gradients are divided by one.
_QUOTIENTS = frozenset(("Mul", "RealDiv", "DivNoNan", "Reciprocal", "Inv"))


class Loss(NamedTuple):
    """A loss.

    tensor     without its scale.
    product    the node that scales it; None: none does.
    factor     of it: a number, NaN where its runs decide.
    source     the tensor that holds the factor.
    """

    tensor: Any
    product: str | None = None
    factor: float = 1.0
    source: Any = None


def find_losses(graph: Any) -> list[Loss]:
    """The losses of a graph, by where gradients begin in it."""
    return [
        _unscaled(graph.get_operation_by_name(name).outputs[index])
        for name, index in sorted(losses_of(graph))
    ]


def is_scale(value: float) -> bool:
    """Whether a number of the program is taken for a loss scale."""
    return 1 < value < math.inf and math.frexp(value)[0] == 0.5


def _unscaled(root: Any) -> Loss:
    """A loss whose gradients begin at this tensor."""
    if root.op.type != "Mul":
        return Loss(root)
    left, right = root.op.inputs
    pairs = [(loss, *_number(factor)) for loss, factor in ((left, right), (right, left))]
    scaled = [pair for pair in pairs if pair[1] is not None]
    if len(scaled) != 1:
        return Loss(root)
    ((loss, value, source),) = scaled
    if not (math.isnan(value) or is_scale(value)):
        return Loss(root)
    return Loss(loss, root.op.name, value, source)


def _number(tensor: Any) -> tuple[Any, Any]:
    """A number of the program's, NaN for one that its runs decide; None for what is computed.

    With it the tensor that holds it.
    """
    source = tensor
    while tensor.op.type in _PASSING and tensor.op.inputs:
        tensor = tensor.op.inputs[0]
        source = tensor if tensor.dtype != tf.resource else source
    if tensor.op.type == "Placeholder":
        captured = [outer for outer, inner in tensor.graph.captures if inner is tensor]
        tensor = captured[0] if captured else tensor
    value = tf.get_static_value(tensor) if tensor.dtype != tf.resource else None
    if value is not None and np.size(value) == 1:
        return float(np.reshape(value, ())), source
    # What a function captures from outside of graphs is a variable.
    is_unknown = isinstance(tensor, EagerTensor) or tensor.op.type in _UNKNOWN
    return (math.nan if is_unknown else None), source


# Scales -------------------------------------------------------------------------------------------


def scale_readers(graph: Any) -> Iterator[Any]:
    """Nodes that read a loss scale from a variable."""
    for loss in find_losses(graph):
        if loss.source is not None and loss.source.op.type == "ReadVariableOp":
            yield loss.source.op


def scale_inputs(graph: Any) -> Iterator[Any]:
    """Inputs of a graph that are loss scales, also such as stand in it as constants."""
    inputs = {tensor.op.name for tensor in graph.inputs}
    for loss in find_losses(graph):
        if loss.source is not None and loss.source.op.name in inputs:
            yield loss.source.op


def unscaling(program: GraphProgram) -> tuple[set[str], dict[str, int]]:
    """Nodes that hold a loss scale or its reciprocal, and those that divide gradients by it.

    Of the latter, which input is the gradient.
    """
    losses = [loss for loss in find_losses(program.graph) if loss.product is not None]
    handles = {op.inputs[0].op.name for op in scale_readers(program.graph)}
    factors = {loss.factor for loss in losses if not math.isnan(loss.factor)}
    scales: set[str] = {op.name for op in scale_inputs(program.graph)}
    divided: dict[str, int] = {}
    for node in program.nodes if losses else ():
        if _holds_scale(node, handles, factors):
            scales.add(node.name)
            continue
        at = [i for i, tensor in enumerate(node.inputs) if tensor.op.name in scales]
        if not at or node.type not in _QUOTIENTS | _PASSING:
            continue
        others = [i for i in range(len(node.inputs)) if i not in at and _size(node.inputs[i]) != 1]
        if not others:
            scales.add(node.name)
        elif node.type in _QUOTIENTS and not node.is_gradient:
            divided[node.name] = others[0]
    return scales, divided


def _holds_scale(node: Node, handles: set[str], factors: set[float]) -> bool:
    """Whether a node reads the variable of a scale, or is a number of the program that is one."""
    if node.type == "ReadVariableOp":
        return node.inputs[0].op.name in handles
    if not factors or node.type not in {"Const", "Cast", "Identity"} or _size(node.outputs[0]) != 1:
        return False
    value = tf.get_static_value(node.outputs[0])
    return value is not None and float(np.reshape(value, ())) in factors


# What is binary32 ---------------------------------------------------------------------------------


def wide_nodes(program: GraphProgram) -> tuple[set[str], set[str]]:
    """Nodes that lead to a loss, and those of their gradients that end in a layer."""
    leading: set[str] = set()
    for loss in find_losses(program.graph):
        root = loss.tensor.op
        if loss.product is not None:
            root = program.graph.get_operation_by_name(loss.product)
        _lead(root, leading, {})
    verdicts: dict[str, bool] = {}
    for node in program.nodes:
        if not node.is_gradient and "loss" in node.marks and _size(node.op.outputs[0]) == 1:
            _lead(node.op, leading, verdicts)
    for name in list(leading):
        for tensor in program.graph.get_operation_by_name(name).inputs:
            _take_numbers(tensor, leading)
    gradients = {
        node.name: node for node in program.nodes
        if node.forward is not None and node.is_gradient and node.forward.name in leading
    }
    live = {node.name for node in program.nodes}
    edges = {
        name for name, node in gradients.items()
        if any(_size(tensor) != 1 and any(
            op.name in live and op.name not in gradients for op in tensor.consumers()
        ) for tensor in node.outputs)
    }
    return leading | set(gradients), edges


def _lead(op: Any, leading: set[str], verdicts: dict[str, bool]) -> bool:
    """Whether a node is an entropy, a sum to one number, or between these and a loss."""
    if op.name in verdicts:
        return verdicts[op.name]
    verdicts[op.name] = False
    is_between = op.type in _BETWEEN | _REDUCTIONS
    below = [_lead(t.op, leading, verdicts) for t in op.inputs] if is_between else []
    ends = op.type in _ENTROPIES or (op.type in _REDUCTIONS and _size(op.outputs[0]) == 1)
    verdicts[op.name] = ends or any(below)
    if verdicts[op.name]:
        leading.add(op.name)
    return verdicts[op.name]


def _take_numbers(tensor: Any, leading: set[str]) -> None:
    """Single numbers that a loss is computed with, such as the number of examples."""
    op = tensor.op
    if _size(tensor) != 1 or op.name in leading or op.type not in _BETWEEN | {"Const"}:
        return
    leading.add(op.name)
    for operand in op.inputs:
        _take_numbers(operand, leading)


def _size(tensor: Any) -> int | None:
    size: int | None = tensor.shape.num_elements()
    return size
