"""A plan's nodes, and which of them may run below their kernels.

    native    types in `NATIVE`, whose kernels decide by shapes, formats and attributes alone, but
              in calls that are noted; everything that they read is memory of a native node, a copy
              of what another node gives, or a constant.
    view      types in `VIEWS`: the result is a part of such memory, and nothing runs.
    fixed     what follows from constants and shapes alone is there already (`SHAPES`, `MOVES`).
    others    run by their kernels. What keeps its inputs (variables, queues, lists, functions)
              gets copies of memory that stays.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol

from ipu.frontends.tensorflow.kernels.table import KernelEntry, NodeSite

__all__ = [
    "MOVES", "NATIVE", "OF_HOST", "SHAPES", "VIEWS", "PlannedStep", "has_native_nodes",
    "outputs_of", "places_before",
]

_COMPUTING = """
    Add AddN AddV2 BatchMatMul BatchMatMulV2 BiasAdd BiasAddGrad Cast Conv2D Conv2DBackpropFilter
    Conv2DBackpropInput DepthwiseConv2dNative Div Erf Exp Log MatMul Mean Mul Neg RealDiv Reciprocal
    ReciprocalGrad Relu ReluGrad Rsqrt RsqrtGrad Sigmoid SigmoidGrad Softmax Sqrt SqrtGrad Square
    SquaredDifference Sub Sum Tanh TanhGrad
"""
NATIVE = frozenset(_COMPUTING.split())
VIEWS = frozenset((
    "CheckNumerics", "ExpandDims", "Identity", "PreventGradient", "Reshape", "Snapshot", "Squeeze",
    "StopGradient",
))
#: What follows from shapes; moves of constants are fixed too.
SHAPES = frozenset(("Rank", "Shape", "ShapeN", "Size"))
MOVES = frozenset((
    "BroadcastTo", "ConcatV2", "ExpandDims", "Fill", "Identity", "Pack", "Reshape", "Slice",
    "Squeeze", "StridedSlice", "Tile", "Transpose",
))

#: Functions of the host, which may do anything.
OF_HOST = frozenset(("PyFunc", "EagerPyFunc"))


class PlannedStep(Protocol):
    """A node with its places in a frame (`engine.interpret`)."""

    site: NodeSite
    entry: KernelEntry | None
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    is_joint: bool
    run: Callable[..., Any]
    #: Whether it may keep its inputs longer than the plan runs.
    keeps: bool
    #: Values that no later step reads.
    dead: tuple[int, ...]
    place: Callable[[int], None] | None


def has_native_nodes(steps: Sequence[PlannedStep]) -> bool:
    """Whether some steps may run below their kernels."""
    return any(step.site.node.type in NATIVE for step in steps)


def outputs_of(step: PlannedStep, values: Sequence[Any]) -> Sequence[Any]:
    """What the kernel of a step gives for these inputs."""
    result = step.run([values])[0] if step.is_joint else step.run(*values)
    outputs: Sequence[Any] = (result,) if len(step.outputs) == 1 else result
    return outputs


def places_before(steps: Sequence[PlannedStep]) -> Iterator[Callable[[int], None] | None]:
    """What has placed the operations before each step, and behind all.

    None: nothing since a function was called, whose own steps have.
    """
    last = None
    for step in steps:
        yield last
        last = None if step.is_joint else step.place or last
    yield last
