"""Softmax, its logarithm and cross-entropies: names of the rows of `ipu.ops.probabilities`."""

from __future__ import annotations

from typing import Any

from fpsim.array import Array
from ipu import ops
from ipu.frontends.tensorflow.kernels.rows import values
from ipu.frontends.tensorflow.kernels.table import NodeSite, Run, kernel, within
from ipu.ops.primitive import Primitive
from ipu.ops.probabilities import terms_slope

__all__: list[str] = []

values({"Softmax": ops.softmax, "LogSoftmax": ops.log_softmax})


@kernel("SparseSoftmaxCrossEntropyWithLogits", of=ops.sparse_cross_entropies)
def _sparse(site: NodeSite) -> Run:
    def run(logits: Array, labels: Any) -> tuple[Array, Array]:
        within(site, labels, logits.shape[-1])
        return _results(site, ops.sparse_cross_entropies, logits, labels)

    return run


@kernel("SoftmaxCrossEntropyWithLogits", of=ops.dense_cross_entropies)
def _dense(site: NodeSite) -> Run:
    return lambda logits, labels: _results(site, ops.dense_cross_entropies, logits, labels)


def _results(site: NodeSite, row: Primitive, logits: Array, labels: Any) -> tuple[Array, Array]:
    """The loss of each row, and the gradient to the logits of their sum: each rounded once."""
    device = site.device
    terms, saved = row.forward(device, logits, labels=labels)
    slope = terms_slope(device, saved)
    return device.cast(terms, logits.format), device.cast(slope, logits.format)
