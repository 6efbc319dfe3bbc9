"""Which inputs of a graph are variables that it writes, and whether it has gradients."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from ipu.frontends.tensorflow.engine.functions import called_graphs
from ipu.frontends.tensorflow.engine.node import Node
from ipu.frontends.tensorflow.engine.program import program_of

__all__ = ["handles_written_by", "has_gradient", "origin_of", "written_inputs"]


def written_inputs(graph: Any) -> frozenset[int]:
    """Positions of the inputs that are handles of variables which the program writes."""
    program = program_of(graph)
    if "written" not in program.__dict__:
        program.__dict__["written"] = frozenset(_find_written(graph))
    written: frozenset[int] = program.__dict__["written"]
    return written


def _find_written(graph: Any) -> set[int]:
    positions = {tensor.op.name: i for i, tensor in enumerate(graph.inputs)}
    written: set[int] = set()
    for node in program_of(graph).nodes:
        for tensor in handles_written_by(node):
            origin = origin_of(tensor)
            if origin in positions:
                written.add(positions[origin])
    return written


def has_gradient(graph: Any) -> bool:
    """Whether a program computes gradients, also in functions that it calls."""
    return any(
        node.is_gradient or any(has_gradient(called) for called, _ in called_graphs(node))
        for node in program_of(graph).nodes
    )


def handles_written_by(node: Node) -> list[Any]:
    """The handles that a node writes, also through functions that it calls."""
    handles = [tensor for tensor in node.inputs if tensor.dtype == tf.resource]
    if node.is_update:
        return handles
    written = []
    for graph, first in called_graphs(node):
        written += [node.inputs[first + i] for i in written_inputs(graph)]
    return written


def origin_of(tensor: Any) -> str:
    """The name of the node that a handle comes from."""
    op = tensor.op
    while op.type in ("Identity", "IdentityN") and op.inputs:
        tensor = op.inputs[tensor.value_index]
        op = tensor.op
    return str(op.name)
