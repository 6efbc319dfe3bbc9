"""Einsum, whose gradients are nodes of the graph too."""

from __future__ import annotations

from fpsim.array import Array
from ipu import ops
from ipu.frontends.tensorflow.kernels.dense import pass_of_einsum
from ipu.frontends.tensorflow.kernels.table import NodeSite, Run, kernel
from ipu.ops.contraction import DenseEinsum

__all__: list[str] = []


@kernel("Einsum", of=ops.einsum)
def _einsum(site: NodeSite) -> Run:
    device, partials = site.device, site.partials("matmul")
    equation, of = site.attr("equation").decode(), pass_of_einsum(site)

    def run(*operands: Array) -> Array:
        how, dense = site.recipe, None
        if how is not None and of is not None:
            dense = DenseEinsum(of, how)
        elif len(operands) > 1:
            site.note_outside(site.node.type, site.fmt)
        return ops.einsum.value(
            device, *operands, equation=equation, partials=partials, dense=dense
        )

    return run
