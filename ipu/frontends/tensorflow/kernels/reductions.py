"""Sums, means, extrema and products over axes.

Sums run in binary32 in index order and are rounded once, by the device's verb.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from fpsim.array import Array
from fpsim.records.formats import BINARY32
from ipu.frontends.tensorflow.kernels.table import Run, Site, kernel
from ipu.learn import ops
from ipu.learn.ops.rules import count

__all__: list[str] = []

_SUM = "binary32 in index order, once at the end"


def _axes(x: Array, axes: Any) -> tuple[int, ...]:
    return tuple(sorted({int(a) % x.ndim for a in np.ravel(axes)})) if x.ndim else ()


def _kept(x: Array, reduced: Array, axes: tuple[int, ...], keep: bool) -> Array:
    if keep:
        return reduced
    return reduced.reshape([n for a, n in enumerate(x.shape) if a not in axes])


def _total(site: Site, mean: bool) -> Run:
    device, keep = site.device, site.attr("keep_dims")

    def run(x: Array, indices: Any) -> Array:
        axes = _axes(x, indices)
        if not axes:
            return x
        scale = 1 / count(x.shape, axes) if mean else 1.0
        return _kept(x, device.reduce_sum(x, axes, scale=scale), axes, keep)

    return run


@kernel("Sum", rounding=_SUM)
def _sum(site: Site) -> Run:
    return _total(site, mean=False)


@kernel("Mean", rounding=f"{_SUM}, times fl(1/n) in binary32")
def _mean(site: Site) -> Run:
    return _total(site, mean=True)


@kernel("Max", rounding="none")
def _max(site: Site) -> Run:
    device, keep = site.device, site.attr("keep_dims")

    def run(x: Array, indices: Any) -> Array:
        axes = _axes(x, indices)
        if not axes:
            return x
        return ops.reduce_max.forward(device, x, axis=axes, keepdims=keep)[0]

    return run


@kernel("Min", rounding="none")
def _min(site: Site) -> Run:
    largest, negative = _max(site), site.device.negative
    return lambda x, indices: negative(largest(negative(x), indices))


@kernel("Prod", rounding="each product, in index order")
def _prod(site: Site) -> Run:
    device, keep = site.device, site.attr("keep_dims")

    def run(x: Array, indices: Any) -> Array:
        axes = _axes(x, indices)
        if not axes:
            return x
        rest = [a for a in range(x.ndim) if a not in axes]
        terms = x.carrier.transpose([*axes, *rest]).reshape(-1, *[x.shape[a] for a in rest])
        result = x.like(np.ones(terms.shape[1:], terms.dtype)) if not len(terms) else None
        for term in terms:
            each = x.like(np.array(term))
            result = each if result is None else device.multiply(result, each)
        assert result is not None
        shape = [1 if a in axes else n for a, n in enumerate(x.shape)]
        return _kept(x, result.reshape(shape), axes, keep)

    return run


@kernel("L2Loss", rounding="squares and their sum in binary32, times 1/2, once at the end")
def _l2_loss(site: Site) -> Run:
    device = site.device

    def run(x: Array) -> Array:
        wide = device.cast(x, BINARY32).reshape(-1)
        total = device.reduce_sum(device.multiply(wide, wide), (0,), scale=0.5)
        return device.cast(total.reshape(()), x.format)

    return run


def _position(node: str, find: Any) -> None:
    @kernel(node, rounding="none", keeps=True)
    def build(site: Site) -> Run:
        kind = site.node.outputs[0].dtype.as_numpy_dtype
        return lambda x, axis: find(x.carrier, axis=int(axis)).astype(kind)


_position("ArgMax", np.argmax)
_position("ArgMin", np.argmin)
