"""Control flow: loops, branches and calls of functions; replicas take the same path."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ipu.feed.counters import current_launch
from ipu.frontends.tensorflow.engine.functions import called_graphs
from ipu.frontends.tensorflow.kernels.table import NodeSite, Run, SubProgram, kernel, single

__all__: list[str] = []

Inputs = Sequence[Sequence[Any]]


def _parts(site: NodeSite) -> list[SubProgram]:
    """Plans of the functions that a node calls."""
    return [site.plan(graph, site.direction) for graph, _ in called_graphs(site.node)]


@kernel("While", "StatelessWhile", rounding="as its body", is_any=True, keeps=True, is_joint=True)
def _while(site: NodeSite) -> Run:
    condition, body = _parts(site)
    # The innermost loop with effects is the one of the training.
    has_effects = bool(site.node.marks.get("loop")) or body.has_effects
    is_training = body.is_training = has_effects and not body.counts
    if is_training:
        body.begin_measuring()
    machine = site.machine

    def run(inputs: Inputs) -> list[Any]:
        values = [tuple(values_of) for values_of in inputs]
        launch = current_launch()
        while bool(condition.run(values)[0][0]):
            values = body.run(values)
            if is_training:
                machine.advance()
            if launch is not None:
                launch.counters.iterations += 1
        return [single(values_of) for values_of in values]

    return run


@kernel("If", "StatelessIf", rounding="as its branch", is_any=True, keeps=True, is_joint=True)
def _if(site: NodeSite) -> Run:
    branches = _parts(site)

    def run(inputs: Inputs) -> list[Any]:
        taken = branches[bool(inputs[0][0])]
        return [single(column) for column in taken.run([column[1:] for column in inputs])]

    return run


@kernel("Case", "StatelessCase", rounding="as its branch", is_any=True, keeps=True, is_joint=True)
def _case(site: NodeSite) -> Run:
    branches = _parts(site)

    def run(inputs: Inputs) -> list[Any]:
        index = int(inputs[0][0])
        taken = branches[index if 0 <= index < len(branches) else -1]
        return [single(column) for column in taken.run([column[1:] for column in inputs])]

    return run


@kernel("PartitionedCall", "StatefulPartitionedCall", rounding="as the function", is_any=True,
        keeps=True, is_joint=True)
def _call(site: NodeSite) -> Run:
    """A call; gradients that were taken of it appended results to its function's graph."""
    (function,), count = _parts(site), len(site.node.outputs)
    return lambda inputs: [single(column[:count]) for column in function.run(inputs)]
