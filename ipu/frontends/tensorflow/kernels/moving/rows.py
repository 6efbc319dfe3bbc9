"""Rows and elements by index.

Segments without an element hold what TensorFlow gives: 0 in a sum, 1 in a product, the lowest
number of the data type in a maximum and the largest in a minimum, but 0 where the numbers of
segments ascend.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from fpsim.array import Array
from ipu import ops
from ipu.frontends.tensorflow.engine.values import FORMATS
from ipu.frontends.tensorflow.kernels.host import own_kernel
from ipu.frontends.tensorflow.kernels.table import NodeSite, Run, kernel, moved, within
from ipu.ops.primitive import Primitive

__all__: list[str] = []

# Gathering ----------------------------------------------------------------------------------------


@kernel("GatherV2", of=ops.gather, is_any=True, keeps=True)
def _gather(site: NodeSite) -> Run:
    batch_dims = site.attr("batch_dims")

    def run(x: Any, indices: Any, axis: Any) -> Any:
        at = int(axis) % max(x.ndim, 1)
        rows = within(site, indices, x.shape[at])
        if not batch_dims:
            return moved(x, lambda v: np.take(v, rows, at))
        n_batch = batch_dims + rows.ndim if batch_dims < 0 else batch_dims
        return moved(x, lambda v: _of_batches(v, rows, at, n_batch))

    return run


def _of_batches(values: Any, rows: Any, axis: int, batch_dims: int) -> NDArray[Any]:
    """Elements that each index of the leading axes takes of its own ones."""
    by_batch = np.moveaxis(values, axis, batch_dims)
    taken_rows = by_batch[(*np.indices(rows.shape)[:batch_dims], rows)]
    between = axis - batch_dims  # these axes come before those of the indices
    taken = range(rows.ndim, rows.ndim + between)
    ordered = np.moveaxis(taken_rows, taken, range(batch_dims, batch_dims + between))
    return np.array(ordered, order="C")


@kernel("ResourceGather", of=ops.gather, is_any=True, keeps=True)
def _gather_variable(site: NodeSite) -> Run:
    def run(variable: Any, indices: Any) -> Any:
        rows = within(site, indices, variable.value.shape[0])
        return moved(variable.value, lambda v: np.take(v, rows, 0))

    return run


# Adding -------------------------------------------------------------------------------------------


def _flat_rows(site: NodeSite, indices: Any, shape: tuple[int, ...]) -> NDArray[Any]:
    """Indices of several axes (the last axis of `indices`) as numbers of rows."""
    depth = indices.shape[-1]
    parts = [within(site, indices[..., i], shape[i]) for i in range(depth)]
    rows = np.zeros(indices.shape[:-1], np.int64)
    for part, n in zip(parts, shape, strict=False):
        rows = rows * n + part
    return rows.reshape(-1)


def _scattered(site: NodeSite, row: Primitive, base: Array, indices: Any, updates: Array) -> Array:
    """base with updates folded into the places of the indices."""
    depth = indices.shape[-1]
    rows = _flat_rows(site, indices, base.shape)
    width = math.prod(base.shape[depth:])
    flat = base.reshape(math.prod(base.shape[:depth]), width)
    terms = updates.reshape(len(rows), width)
    return row.value(site.device, flat, terms, rows=rows).reshape(*base.shape)


@kernel("ScatterNd", of=ops.scatter_add)
def _scatter(site: NodeSite) -> Run:
    device = site.device

    def run(indices: Any, updates: Array, shape: Any) -> Array:
        base = device.zeros(tuple(int(n) for n in shape), updates.format)
        return _scattered(site, ops.scatter_add, base, indices, updates)

    return run


def _enter_scatter(node: str, row: Primitive) -> None:
    @kernel(node, of=row)
    def build(site: NodeSite) -> Run:
        return lambda base, indices, updates: _scattered(site, row, base, indices, updates)


_enter_scatter("TensorScatterAdd", ops.scatter_add)
_enter_scatter("TensorScatterSub", ops.scatter_subtract)
_enter_scatter("TensorScatterMax", ops.scatter_max)
_enter_scatter("TensorScatterMin", ops.scatter_min)


# Segments -----------------------------------------------------------------------------------------


def _segments(
    site: NodeSite, row: Primitive, x: Array, rows: Any, count: int, **options: Any
) -> Array:
    """x folded by the numbers of its leading axes; negative ones take no part."""
    flat = rows.reshape(-1)
    real = flat >= 0
    within(site, flat[real], count)
    rest = x.shape[rows.ndim :]
    values = x.like(x.carrier.reshape(flat.size, math.prod(rest))[real])
    result = row.value(site.device, values, rows=flat[real], count=count, **options)
    return result.reshape(count, *rest)


def _enter_segments(name: str, row: Primitive, **empty: float) -> None:
    """Kernels of segments whose numbers ascend, and of any; `empty` of the first."""

    @kernel(f"Segment{name}", of=row)
    def build(site: NodeSite) -> Run:
        def run(x: Array, rows: Any) -> Array:
            count = int(rows[-1]) + 1 if len(rows) else 0
            return _segments(site, row, x, rows, count, **empty)

        return run

    if name == "Mean":
        return

    @kernel(f"UnsortedSegment{name}", of=row)
    def build_unsorted(site: NodeSite) -> Run:
        return lambda x, rows, count: _segments(site, row, x, rows, int(count))


_enter_segments("Sum", ops.segment_sum)
_enter_segments("Mean", ops.segment_mean)
_enter_segments("Prod", ops.segment_multiply)
_enter_segments("Max", ops.segment_max, empty=0.0)
_enter_segments("Min", ops.segment_min, empty=0.0)


# Paddings -----------------------------------------------------------------------------------------


@kernel("MirrorPadGrad", of=ops.gather, gradient=True)
def _mirror_pad_gradient(site: NodeSite) -> Run:
    """Each element gets the gradients of its images, in the order of the padded tensor."""
    device = site.device
    positions = own_kernel(
        site, "MirrorPad", {"T": site.node.inputs[1].dtype, "mode": site.attr("mode")}
    )

    def run(gradient: Array, paddings: Any) -> Array:
        shape = [n - int(sum(pad)) for n, pad in zip(gradient.shape, paddings, strict=True)]
        count = math.prod(shape)
        at = positions(np.arange(count, dtype=paddings.dtype).reshape(shape), paddings)
        saved = ((count,),)
        slope = ops.gather.pull(0, device, gradient.reshape(-1), saved, rows=at.reshape(-1))
        return slope.reshape(*shape)

    return run


# Order --------------------------------------------------------------------------------------------


@kernel("TopKV2", rounding="none", is_any=True, keeps=True)
def _top_k(site: NodeSite) -> Run:
    """The largest numbers of the last axis and where they lie; of equal ones the first."""
    kind = site.attr("index_type").as_numpy_dtype

    def run(x: Any, k: Any) -> Any:
        values = x.carrier if isinstance(x, Array) else x
        keys = -values if isinstance(x, Array) else ~values.astype(np.int64)
        order = np.argsort(keys, axis=-1, kind="stable")[..., : int(k)]
        return moved(x, lambda v: np.take_along_axis(v, order, -1)), order.astype(kind)

    return run


@kernel("Bucketize", "InTopKV2", "LowerBound", "UpperBound", rounding="none", keeps=True)
def _positions(site: NodeSite) -> Run:
    """Comparisons of TensorFlow's own kernel in float32, which holds every format."""
    kernel = own_kernel(site, kinds=dict.fromkeys(FORMATS, tf.float32))
    return lambda *values: kernel(
        *[np.float32(v.carrier) if isinstance(v, Array) else v for v in values]
    )
