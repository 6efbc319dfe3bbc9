"""Sums, means, extrema and products over axes, and running ones.

Sums run in binary32 and are rounded once, by the device's verb.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from fpsim.array import Array
from fpsim.records.formats import BINARY32
from ipu import ops
from ipu.frontends.tensorflow.kernels.table import NodeSite, Run, kernel
from ipu.ops.rules import count

__all__ = ["dropped"]

_SUM = "binary32, once at the end"


def _axes(x: Array, axes: Any) -> tuple[int, ...]:
    return tuple(sorted({int(a) % x.ndim for a in np.ravel(axes)})) if x.ndim else ()


def dropped(x: Array, reduced: Array, axes: tuple[int, ...]) -> Array:
    """What was reduced from x over these axes, without them."""
    return reduced.reshape([n for a, n in enumerate(x.shape) if a not in axes])


def _kept(x: Array, reduced: Array, axes: tuple[int, ...], keep: bool) -> Array:
    return reduced if keep else dropped(x, reduced, axes)


def _total(site: NodeSite, mean: bool) -> Run:
    device, keep = site.device, site.attr("keep_dims")

    def run(x: Array, indices: Any) -> Array:
        axes = _axes(x, indices)
        if not axes:
            return x
        n = count(x.shape, axes)
        scale = (1 / n if n else np.inf) if mean else 1.0  # 0 · inf is the mean of nothing: INV
        return _kept(x, device.reduce_sum(x, axes, scale=scale), axes, keep)

    return run


@kernel("Sum", rounding=_SUM)
def _sum(site: NodeSite) -> Run:
    return _total(site, mean=False)


@kernel("Mean", rounding=f"{_SUM}, times fl(1/n) in binary32")
def _mean(site: NodeSite) -> Run:
    return _total(site, mean=True)


@kernel("Max", rounding="none")
def _max(site: NodeSite) -> Run:
    """The largest; of nothing -inf, as TensorFlow has it."""
    device, keep = site.device, site.attr("keep_dims")

    def run(x: Array, indices: Any) -> Array:
        axes = _axes(x, indices)
        if not axes:
            return x
        if not x.size:
            shape = [1 if a in axes else n for a, n in enumerate(x.shape)]
            return _kept(x, x.like(np.full(shape, -np.inf, x.carrier.dtype)), axes, keep)
        return ops.reduce_max.forward(device, x, axis=axes, keepdims=keep)[0]

    return run


@kernel("Min", rounding="none")
def _min(site: NodeSite) -> Run:
    largest, negative = _max(site), site.device.negative
    return lambda x, indices: negative(largest(negative(x), indices))


@kernel("EuclideanNorm", rounding="squares, their sum and its root in binary32, once at the end")
def _euclidean_norm(site: NodeSite) -> Run:
    device, keep = site.device, site.attr("keep_dims")

    def run(x: Array, indices: Any) -> Array:
        axes = _axes(x, indices)
        if not axes:
            return x.like(np.abs(x.carrier))
        total = device.reduce_squares(x, axes)
        return _kept(x, device.cast(device.sqrt(total), x.format), axes, keep)

    return run


@kernel("Prod", rounding="each product, in index order")
def _prod(site: NodeSite) -> Run:
    device, keep = site.device, site.attr("keep_dims")

    def run(x: Array, indices: Any) -> Array:
        axes = _axes(x, indices)
        if not axes:
            return x
        rest = [a for a in range(x.ndim) if a not in axes]
        shape = [count(x.shape, axes), *[x.shape[a] for a in rest]]
        terms = x.carrier.transpose([*axes, *rest]).reshape(shape)
        result = x.like(np.ones(terms.shape[1:], terms.dtype)) if not len(terms) else None
        for term in terms:
            each = x.like(np.array(term))
            result = each if result is None else device.multiply(result, each)
        assert result is not None
        shape = [1 if a in axes else n for a, n in enumerate(x.shape)]
        return _kept(x, result.reshape(shape), axes, keep)

    return run


# Running sums -------------------------------------------------------------------------------------


def _running(node: str, verb: str, start: float) -> None:
    @kernel(node, rounding="binary32 in index order, each result once")
    def build(site: NodeSite) -> Run:
        device, operation = site.device, getattr(site.device, verb)
        is_exclusive, is_reversed = site.attr("exclusive"), site.attr("reverse")

        def run(x: Array, axis: Any) -> Array:
            wide = device.cast(x, BINARY32)
            rows = np.moveaxis(wide.carrier, int(axis), 0)
            rows = np.ascontiguousarray(rows[::-1] if is_reversed else rows)
            results = np.full(rows.shape, start, rows.dtype)
            running = wide
            for i, row in enumerate(rows[:-1] if is_exclusive else rows):
                running = operation(running, wide.like(row)) if i else wide.like(row)
                results[i + is_exclusive] = running.carrier
            results = results[::-1] if is_reversed else results
            turned = np.ascontiguousarray(np.moveaxis(results, 0, int(axis)))
            return device.cast(wide.like(turned), x.format)

        return run


_running("Cumsum", "add", 0.0)
_running("Cumprod", "multiply", 1.0)


@kernel("L2Loss", rounding="squares and their sum in binary32, times 1/2, once at the end")
def _l2_loss(site: NodeSite) -> Run:
    device = site.device

    def run(x: Array) -> Array:
        total = device.reduce_squares(x.reshape(-1), (0,), scale=0.5)
        return device.cast(total.reshape(()), x.format)

    return run


def _position(node: str, find: Any) -> None:
    @kernel(node, rounding="none", keeps=True)
    def build(site: NodeSite) -> Run:
        kind = site.node.outputs[0].dtype.as_numpy_dtype
        return lambda x, axis: find(x.carrier, axis=int(axis)).astype(kind)


_position("ArgMax", np.argmax)
_position("ArgMin", np.argmin)
