"""Sums, means, extrema and products over axes, and running ones: names of rows."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fpsim.array import Array
from ipu import ops
from ipu.frontends.tensorflow.kernels.table import NodeSite, Run, kernel
from ipu.ops.primitive import Primitive
from ipu.ops.reductions import first_index

__all__ = ["dropped"]



def _axes(x: Array, axes: Any) -> tuple[int, ...]:
    return tuple(sorted({int(a) % x.ndim for a in np.ravel(axes)})) if x.ndim else ()


def dropped(x: Array, reduced: Array, axes: tuple[int, ...]) -> Array:
    """What was reduced from x over these axes, without them."""
    return reduced.reshape([n for a, n in enumerate(x.shape) if a not in axes])


def _along(site: NodeSite, row: Primitive) -> Run:
    """A row over the axes that the second input names; without any the value itself."""
    device, keep = site.device, site.attr("keep_dims")

    def run(x: Array, indices: Any) -> Array:
        axes = _axes(x, indices)
        if not axes:
            return x
        result: Array = row.value(device, x, axis=axes, keepdims=keep)
        return result

    return run


@kernel("Sum", of=ops.reduce_sum)
def _sum(site: NodeSite) -> Run:
    return _along(site, ops.reduce_sum)


@kernel("Mean", of=ops.reduce_mean)
def _mean(site: NodeSite) -> Run:
    return _along(site, ops.reduce_mean)


@kernel("Prod", of=ops.reduce_product)
def _prod(site: NodeSite) -> Run:
    return _along(site, ops.reduce_product)


def _extremum(node: str, row: Primitive, of_nothing: float) -> None:
    @kernel(node, of=row)
    def build(site: NodeSite) -> Run:
        """Of nothing an infinity, as TensorFlow has it."""
        keep, along = site.attr("keep_dims"), _along(site, row)

        def run(x: Array, indices: Any) -> Array:
            axes = _axes(x, indices)
            if x.size or not axes:
                result: Array = along(x, indices)
                return result
            shape = [1 if a in axes else n for a, n in enumerate(x.shape)]
            most = x.like(np.full(shape, of_nothing, x.carrier.dtype))
            return most if keep else dropped(x, most, axes)

        return run


_extremum("Max", ops.reduce_max, -np.inf)
_extremum("Min", ops.reduce_min, np.inf)


@kernel("EuclideanNorm", of=ops.vector_norm)
def _euclidean_norm(site: NodeSite) -> Run:
    device, keep = site.device, site.attr("keep_dims")

    def run(x: Array, indices: Any) -> Array:
        axes = _axes(x, indices)
        if not axes:
            return ops.absolute.value(device, x)
        return device.cast(
            ops.vector_norm.value(device, x, axis=axes, keepdims=keep), x.format
        )

    return run


@kernel("L2Loss", of=ops.half_square_sum)
def _l2_loss(site: NodeSite) -> Run:
    return lambda x: ops.half_square_sum.value(site.device, x)


# Running sums -------------------------------------------------------------------------------------


def _running(node: str, row: Primitive) -> None:
    @kernel(node, of=row)
    def build(site: NodeSite) -> Run:
        device = site.device
        options = {"exclusive": site.attr("exclusive"), "reverse": site.attr("reverse")}
        return lambda x, axis: row.value(device, x, axis=int(axis), **options)


_running("Cumsum", ops.cumulative_sum)
_running("Cumprod", ops.cumulative_product)


def _position(node: str, row: Primitive) -> None:
    @kernel(node, of=row, keeps=True)
    def build(site: NodeSite) -> Run:
        """By the device's rule for NaN: of a number and a NaN the number's place."""
        device, kind = site.device, site.node.outputs[0].dtype.as_numpy_dtype

        def run(x: Array, axis: Any) -> NDArray[Any]:
            _, saved = row.forward(device, x, axis=int(axis))
            return first_index(saved).astype(kind)

        return run


_position("ArgMax", ops.reduce_max)
_position("ArgMin", ops.reduce_min)
