"""Directions of the nodes of a program, and which of them are an optimiser's.

A gradient is backward, an update of a variable optimizer (`engine.node`); what reads a gradient and
is none belongs to the optimiser, as does what only the optimiser reads, such as a rate's cast.
Updates that no gradient reaches, such as moving averages and metrics, have the direction of updates
and belong to their own layer.
"""

from __future__ import annotations

from typing import NamedTuple

import tensorflow as tf

from ipu.frontends.tensorflow.engine.node import Node
from ipu.frontends.tensorflow.engine.program import Program

__all__ = ["Directions", "find_directions"]

#: What a tape does with the gradients of a tensor, outside of the scope of gradients.
_SUMMING = frozenset(("AddN", "AddV2", "Identity"))


class Directions(NamedTuple):
    """By names of nodes.

    of         the direction of a node.
    optimiser  nodes that compute updates from gradients, and what only these read.
    """

    of: dict[str, str]
    optimiser: set[str]


def find_directions(program: Program, inherited: str = "") -> Directions:
    """The directions of the nodes of a program.

    inherited   of the node that calls the program; "" for none.
    """
    directions = _directions(program, inherited)
    updates = [node for node in program.nodes if directions[node.name] == "optimizer"]
    optimiser: set[str] = set()
    written: set[str] = set()  # handles of variables that hold what gradients have reached
    for node in updates:
        before = {tensor.op.name for tensor in node.inputs}
        is_marked = "optimizer" in (inherited, node.marks.get("direction"))
        follows = before & (optimiser | written) or any(
            directions.get(name) == "backward" for name in before
        )
        if is_marked or follows:
            optimiser.add(node.name)
            if node.is_update:
                written |= {tensor.op.name for tensor in node.inputs if tensor.dtype == tf.resource}
    for node in reversed(updates):
        if any(op.name in optimiser for tensor in node.outputs for op in tensor.consumers()):
            optimiser.add(node.name)
    return Directions(directions, optimiser)


def _directions(program: Program, inherited: str) -> dict[str, str]:
    directions: dict[str, str] = {}
    for node in program.nodes:
        marked = node.marks.get("direction")
        directions[node.name] = marked or _direction(node, directions, inherited)
    readers: dict[str, set[str]] = {tensor.op.name: {""} for tensor in program.outputs}
    for node in reversed(program.nodes):
        if directions[node.name] == "forward" and readers.get(node.name) == {"optimizer"}:
            directions[node.name] = "optimizer"
        for tensor in node.inputs:
            readers.setdefault(tensor.op.name, set()).add(directions[node.name])
    return directions


def _direction(node: Node, known: dict[str, str], inherited: str) -> str:
    if node.direction != "forward":
        return node.direction
    before = {known.get(tensor.op.name, "forward") for tensor in node.inputs}
    if before == {"backward"} and node.type in _SUMMING:
        return "backward"
    return "optimizer" if before & {"backward", "optimizer"} else inherited or "forward"
