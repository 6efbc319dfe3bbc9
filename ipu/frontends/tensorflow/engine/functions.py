"""The graphs of functions that nodes call: loops, branches, calls."""

from __future__ import annotations

from typing import Any

from tensorflow.python.ops import control_flow_util_v2

from ipu.frontends.tensorflow.engine.node import Node

__all__ = ["called_graph", "called_graphs"]

#: Attributes that name functions, by type of node, and how many inputs the node keeps to itself.
_CALLS = {
    "While": (("cond", "body"), 0), "StatelessWhile": (("cond", "body"), 0),
    "If": (("else_branch", "then_branch"), 1), "StatelessIf": (("else_branch", "then_branch"), 1),
    "PartitionedCall": (("f",), 0), "StatefulPartitionedCall": (("f",), 0),
    "Case": (("branches",), 1), "StatelessCase": (("branches",), 1),
}


def called_graphs(node: Node) -> list[tuple[Any, int]]:
    """Graphs that a node calls, in the order of its attributes, each with its first input."""
    attributes, first = _CALLS.get(node.type, ((), 0))
    graphs = []
    for attribute in attributes:
        functions = node.attr(attribute)
        several = functions if isinstance(functions, list) else [functions]
        graphs += [(called_graph(node, function.name, first), first) for function in several]
    return graphs


def called_graph(node: Node, name: str, first: int = 0) -> Any:
    """The graph of a function; as it was traced, where Python still has it."""
    graph = node.op.graph
    while graph is not None:
        function = graph._get_function(name)
        if function is not None and getattr(function, "graph", None) is not None:
            return function.graph
        graph = getattr(graph, "outer_graph", None)
    shapes = [tensor.shape for tensor in node.inputs[first:]]
    return control_flow_util_v2.get_func_graph(node.op, shapes, name)
