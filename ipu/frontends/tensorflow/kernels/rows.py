"""Types of nodes that are a row of the table and nothing else."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from ipu.frontends.tensorflow.kernels.table import NodeSite, Run, kernel
from ipu.ops.functions import HOST
from ipu.ops.primitive import Primitive

__all__ = ["gradients", "values"]


def values(names: Mapping[str, Primitive]) -> None:
    """Nodes whose output is that of the forward rule of their inputs."""
    for node, row in names.items():
        kernel(node, of=row, on_host=row.name in HOST)(_value(row))


def _value(row: Primitive) -> Callable[[NodeSite], Run]:
    def build(site: NodeSite) -> Run:
        device = site.device
        if row.verb:
            run: Run = getattr(device, row.verb)
            return run
        return lambda *arrays: row.value(device, *arrays)

    return build


def gradients(
    names: Mapping[str, Primitive], *, saved_first: bool = False, of_result: bool = False
) -> None:
    """Nodes of the gradient and of what the row saves; `saved_first`: the other way round.

    of_result    what was saved is the result of the node, and the rule is told so.
    """
    options = {"of_result": True} if of_result else {}
    for node, row in names.items():
        kernel(node, of=row, gradient=True)(_gradient(row, saved_first, options))


def _gradient(
    row: Primitive, saved_first: bool, options: Mapping[str, bool]
) -> Callable[[NodeSite], Run]:
    def build(site: NodeSite) -> Run:
        device = site.device
        if saved_first:
            return lambda saved, gradient: row.pull(0, device, gradient, (saved,), **options)
        return lambda gradient, saved: row.pull(0, device, gradient, (saved,), **options)

    return build
