"""Einsum, whose gradients are nodes of the graph too."""

from __future__ import annotations

from fpsim.array import Array
from ipu import ops
from ipu.frontends.tensorflow.kernels.table import NodeSite, Run, kernel

__all__: list[str] = []


@kernel("Einsum", of=ops.einsum)
def _einsum(site: NodeSite) -> Run:
    device, partials = site.device, site.partials("matmul")
    equation = site.attr("equation").decode()

    def run(*operands: Array) -> Array:
        if len(operands) > 1:
            site.note_outside(site.node.type, site.fmt)
        return ops.einsum.value(device, *operands, equation=equation, partials=partials)

    return run
