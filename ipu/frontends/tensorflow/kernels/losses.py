"""Softmax, its logarithm and cross-entropies: binary32 inside, rounded once at the end."""

from __future__ import annotations

from typing import Any

import numpy as np

from fpsim.array import Array
from fpsim.records.formats import BINARY32
from ipu import ops
from ipu.frontends.tensorflow.kernels.table import Run, Site, kernel, within
from ipu.ops.probabilities import shifted

__all__: list[str] = []

_INSIDE = "binary32 inside, once at the end"


@kernel("Softmax", rounding=_INSIDE)
def _softmax(site: Site) -> Run:
    device = site.device
    return lambda x: ops.softmax.forward(device, x)[0]


@kernel("LogSoftmax", rounding=_INSIDE)
def _log_softmax(site: Site) -> Run:
    device = site.device
    return lambda x: ops.log_softmax.forward(device, x)[0]


@kernel("SparseSoftmaxCrossEntropyWithLogits", rounding=f"{_INSIDE} of each output")
def _sparse(site: Site) -> Run:
    device = site.device

    def run(logits: Array, labels: Any) -> Any:
        within(site, labels, logits.shape[-1])
        z, e, total = shifted(device, logits)
        rows = np.arange(len(labels))
        picked = z.like(z.carrier[rows, labels])
        each = device.subtract(device.log(total).reshape(-1), picked)
        hot = np.zeros(z.shape, z.carrier.dtype)
        hot[rows, labels] = 1.0
        return _results(site, logits, each, e, total, z.like(hot))

    return run


@kernel("SoftmaxCrossEntropyWithLogits", rounding=f"{_INSIDE} of each output")
def _dense(site: Site) -> Run:
    device = site.device

    def run(logits: Array, labels: Array) -> Any:
        z, e, total = shifted(device, logits)
        wanted = device.cast(labels, BINARY32)
        lost = device.subtract(device.log(total), z)
        each = device.reduce_sum(device.multiply(wanted, lost), axis=-1).reshape(-1)
        return _results(site, logits, each, e, total, wanted)

    return run


def _results(
    site: Site, logits: Array, each: Array, e: Array, total: Array, wanted: Array
) -> tuple[Array, Array]:
    """The loss of each row, and the gradient to the logits of their sum."""
    device = site.device
    slope = device.subtract(device.divide(e, total), wanted)
    return device.cast(each, logits.format), device.cast(slope, logits.format)
