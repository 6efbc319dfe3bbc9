"""A program: the nodes of a traced graph that have to run, in order.

Live are the nodes that outputs need, and those with an effect on variables and queues that a
control edge keeps. A control edge keeps nothing else: TensorFlow 1 groups of operations otherwise
hold an unused gradient of the input, with exceptions that the machine would not see. Live nodes run
in the order in which they were built, which is that of the user's program; what was built for the
gradient of a loop, and the loop then takes, runs before it.

How what a program notes reaches the executor: `engine.node.marked` puts marks on nodes, and
`Node.marks` has them (a gradient also those of its forward node). The executor knows

    partials      "half" or "float": of products (scopes.partials_type), and of their gradients,
                  unless these have backward_partials ("" for the device's own).
    sr            stochastic rounding is on or off (scopes.stochastic_rounding).
    stage         a pipeline's stage, by number, and pipeline, the request of its plan.
    phase         "update": of an accumulation, and no part of a stage.
    feed          it takes an element from the host; checkpoint: recomputation keeps its result.
    offload_state, shard_state   where the optimiser's state lies, for the plan of the program.
    kernel        the table's entry that executes the node instead of that of its type: composites
                  such as an accumulation are one PyFunc node, which TensorFlow can run itself,
                  marked with the name of our kernel.
    accumulation  G, on any node: iterations that make a step of the optimiser.
    loop          a While whose iterations count, also where its body has no effect outside.
    direction     of places and counts, where names do not tell it.

Kernels read further marks by themselves (`site.node.marks`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import tensorflow as tf

from ipu.frontends.tensorflow.engine.node import Node

__all__ = ["GraphProgram", "has_effect", "program_of"]

#: Nodes with state that has no effect outside: a control edge does not keep them.
_READING = frozenset((
    "ReadVariableOp", "ResourceGather", "VariableShape", "VarHandleOp", "IteratorV2", "Placeholder",
))
#: Under which a graph holds its program.
_PROGRAM = "_fpsim_program"


class GraphProgram:
    """The live nodes of a FuncGraph.

    inputs     its placeholders, captured tensors last.
    outputs    its flat outputs.
    """

    def __init__(self, graph: Any) -> None:
        self.graph = graph
        self.inputs = tuple(graph.inputs)
        self.outputs = tuple(graph.outputs)
        live = _live(graph)
        fed = {tensor.op for tensor in self.inputs}
        ops = [op for op in graph.get_operations() if op in live and op not in fed]
        self.nodes = [Node(op) for op in _in_order(ops)]

    @property
    def accumulation(self) -> int:
        """Iterations that make a step of the optimiser."""
        return max((int(node.marks.get("accumulation", 1)) for node in self.nodes), default=1)


def program_of(graph: Any) -> GraphProgram:
    """The program of a FuncGraph, made once; the graph holds it, so both go together.

    It is made again where a gradient, taken later, has appended results to a function's graph.
    """
    program: GraphProgram | None = getattr(graph, _PROGRAM, None)
    if program is None or len(program.outputs) != len(graph.outputs):
        program = GraphProgram(graph)
        setattr(graph, _PROGRAM, program)
    return program


def _live(graph: Any) -> set[tf.Operation]:
    live: set[tf.Operation] = set()
    controlled: set[tf.Operation] = set()
    needed: list[tuple[tf.Operation, bool]] = [(t.op, True) for t in graph.outputs]
    needed += [(op, False) for op in _effects(graph)]
    while needed:
        op, has_use = needed.pop()
        has_use = has_use or has_effect(op)
        if op in live or (not has_use and op in controlled):
            continue
        (live if has_use else controlled).add(op)
        needed += [(tensor.op, has_use) for tensor in op.inputs]
        needed += [(before, False) for before in op.control_inputs]
    return live


def _in_order(ops: Sequence[tf.Operation]) -> list[tf.Operation]:
    """Operations as they were built, but none before its inputs.

    The gradient of a loop gives the loop more inputs, which are built after it.
    """
    waiting, done = set(ops), {}
    for op in ops:
        stack = [op]
        while stack:
            missing = [t.op for t in stack[-1].inputs if t.op in waiting and t.op not in done]
            if missing:
                stack += missing
            else:
                done[stack.pop()] = True
    return list(done)


def _effects(graph: Any) -> Iterable[tf.Operation]:
    """What runs although nobody reads its outputs."""
    return getattr(graph, "control_outputs", ())


def has_effect(op: tf.Operation) -> bool:
    """Whether a node changes variables or queues."""
    return bool(op.op_def.is_stateful) and op.type not in _READING
