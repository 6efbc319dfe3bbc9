"""Directions of the nodes of a program, and which of them are an optimiser's.

A gradient is backward, an update of a variable optimizer (`engine.node`); what reads a gradient and
is none belongs to the optimiser, as does what only the optimiser reads, such as a rate's cast.
Updates that no gradient reaches, such as moving averages, have the direction of updates and belong
to their own layer, as does what they compute from the variable that they write. What only they read
beside it is forward: the pass in which a statistic is taken is no optimiser's.

Metrics, and launches that train nothing, are evaluations.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, NamedTuple

import tensorflow as tf

from ipu.frontends.tensorflow.engine.functions import called_graphs
from ipu.frontends.tensorflow.engine.machine import EVALUATION
from ipu.frontends.tensorflow.engine.node import Node
from ipu.frontends.tensorflow.engine.program import GraphProgram, has_effect, program_of

__all__ = ["Directions", "find_directions", "gradient_owner"]

#: What a tape does with the gradients of a tensor, outside of the scope of gradients.
_SUMMING = frozenset(("AddN", "AddV2", "Identity"))


class Directions(NamedTuple):
    """By names of nodes.

    of         the direction of a node.
    optimiser  nodes that compute updates from gradients, and what only these read.
    """

    of: dict[str, str]
    optimiser: set[str]


def gradient_owner(node: Node) -> Node:
    """The gradient whose layer a node has: of a tape's sum of gradients the last of them."""
    while node.forward is None and node.type in _SUMMING and node.inputs:
        before = Node(node.inputs[-1].op)
        if not (before.is_gradient or before.type in _SUMMING):
            break
        node = before
    return node


def find_directions(program: GraphProgram, inherited: str = "") -> Directions:
    """The directions of the nodes of a program.

    inherited   of the node that calls the program, or of all of its nodes; "" for none.
    """
    by_inherited: dict[str, Directions] = program.__dict__.setdefault("directions", {})
    if inherited not in by_inherited:
        by_inherited[inherited] = _find(program, inherited)
    return by_inherited[inherited]


def _find(program: GraphProgram, inherited: str) -> Directions:
    if inherited == EVALUATION:
        return Directions({node.name: EVALUATION for node in program.nodes}, set())
    directions: dict[str, str] = {}
    for node in program.nodes:
        directions[node.name] = _direction(node, directions, inherited)
    theirs = _without_data(program)
    _give_to_updates(program, directions, theirs)
    optimiser = _following(program, directions, inherited)
    theirs |= _of_variables(program, directions, optimiser)
    _give_to_updates(program, directions, theirs, optimiser)
    for node in reversed(program.nodes):
        if directions[node.name] == "optimizer" and any(
            op.name in optimiser for tensor in node.outputs for op in tensor.consumers()
        ):
            optimiser.add(node.name)
    return Directions(directions, optimiser)


def _direction(node: Node, directions: dict[str, str], inherited: str) -> str:
    if node.marks.get("metric"):
        return EVALUATION
    if marked := node.marks.get("direction"):
        return str(marked)
    if node.direction != "forward":
        return node.direction
    before = {_source(tensor, directions) for tensor in node.inputs}
    if before == {"backward"} and node.type in _SUMMING:
        return "backward"
    return "optimizer" if before & {"backward", "optimizer"} else inherited or "forward"


def _source(tensor: Any, directions: dict[str, str]) -> str:
    """The direction of what computed a tensor; of a result of a function, in the function."""
    direction = directions.get(tensor.op.name, "forward")
    if direction != "forward" or tensor.op.name not in directions:
        return direction
    graphs = called_graphs(Node(tensor.op))
    if not graphs:
        return direction
    program = program_of(graphs[-1][0])
    inside, name = find_directions(program), program.outputs[tensor.value_index].op.name
    return "optimizer" if inside.of.get(name) == "backward" or name in inside.optimiser else (
        direction
    )


def _following(program: GraphProgram, directions: dict[str, str], inherited: str) -> set[str]:
    """The updates that gradients reach, also through variables."""
    optimiser: set[str] = set()
    written: set[str] = set()  # handles of variables that hold what gradients have reached
    for node in program.nodes:
        before = {tensor.op.name for tensor in node.inputs}
        if directions[node.name] != "optimizer":
            continue
        is_marked = "optimizer" in (inherited, node.marks.get("direction"))
        follows = before & (optimiser | written) or any(
            _source(tensor, directions) in ("backward", "optimizer") and (
                tensor.op.name not in directions or directions[tensor.op.name] != "optimizer")
            for tensor in node.inputs
        )
        if is_marked or follows:
            optimiser.add(node.name)
            if node.is_update:
                written |= {tensor.op.name for tensor in node.inputs if tensor.dtype == tf.resource}
    return optimiser


def _give_to_updates(
    program: GraphProgram, directions: dict[str, str], theirs: set[str],
    optimiser: Collection[str] = (),
) -> None:
    """Nodes that updates alone read are updates too: these, and all that the optimiser reads."""
    readers: dict[str, set[str]] = {tensor.op.name: {""} for tensor in program.outputs}
    for node in reversed(program.nodes):
        names = readers.get(node.name, set())
        are_updates = bool(names) and all(directions.get(name) == "optimizer" for name in names)
        is_theirs = node.name in theirs or not names.isdisjoint(optimiser)
        if directions[node.name] == "forward" and are_updates and is_theirs:
            directions[node.name] = "optimizer"
        for tensor in node.inputs:
            readers.setdefault(tensor.op.name, set()).add(node.name)


def _without_data(program: GraphProgram) -> set[str]:
    """Nodes that compute from constants and variables alone."""
    with_data: set[str] = {tensor.op.name for tensor in program.inputs}
    for node in program.nodes:
        before = {tensor.op.name for tensor in node.inputs if tensor.dtype != tf.resource}
        if before & with_data or has_effect(node.op):
            with_data.add(node.name)
    return {node.name for node in program.nodes} - with_data


def _of_variables(
    program: GraphProgram, directions: dict[str, str], optimiser: set[str]
) -> set[str]:
    """Nodes that compute from a variable which is written here, and which no gradient reaches."""
    written = {
        tensor.op.name for node in program.nodes
        if node.is_update and directions[node.name] == "optimizer" and node.name not in optimiser
        for tensor in node.inputs if tensor.dtype == tf.resource
    }
    theirs: set[str] = set()
    for node in program.nodes:
        is_read = node.type == "ReadVariableOp"
        before = {tensor.op.name for tensor in node.inputs}
        if before & (theirs | written if is_read else theirs):
            theirs.add(node.name)
    return theirs
