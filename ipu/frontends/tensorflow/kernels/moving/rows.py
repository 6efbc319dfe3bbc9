"""Rows and elements by index: duplicates are added in binary32 in index order, rounded once.

Segments without an element hold what TensorFlow gives: 0 in a sum, 1 in a product, the lowest
number of the data type in a maximum and the largest in a minimum.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from fpsim.array import Array
from fpsim.records.formats import Format
from ipu.frontends.arrays.rows import add_rows, multiply_rows
from ipu.frontends.tensorflow.engine.values import FORMATS
from ipu.frontends.tensorflow.kernels.host import own_kernel
from ipu.frontends.tensorflow.kernels.table import Run, Site, kernel, moved, within

__all__: list[str] = []

_ONCE = "binary32 in index order, once at the end"
Folded = Callable[[Array, Any, Array], Array]
Start = Callable[[Format], float]


# Gathering ----------------------------------------------------------------------------------------


@kernel("GatherV2", rounding="none", is_any=True, keeps=True)
def _gather(site: Site) -> Run:
    batch_dims = site.attr("batch_dims")

    def run(x: Any, indices: Any, axis: Any) -> Any:
        at = int(axis) % max(x.ndim, 1)
        rows = within(site, indices, x.shape[at])
        if not batch_dims:
            return moved(x, lambda v: np.take(v, rows, at))
        return moved(x, lambda v: _of_batches(v, rows, at, batch_dims % rows.ndim))

    return run


def _of_batches(values: Any, rows: Any, axis: int, batch_dims: int) -> Any:
    """Elements that each index of the leading axes takes of its own ones."""
    own = np.moveaxis(values, axis, batch_dims)
    chosen = own[(*np.indices(rows.shape)[:batch_dims], rows)]
    between = axis - batch_dims  # these axes come before those of the indices
    taken = range(rows.ndim, rows.ndim + between)
    ordered = np.moveaxis(chosen, taken, range(batch_dims, batch_dims + between))
    return np.array(ordered, order="C")


@kernel("ResourceGather", rounding="none", is_any=True, keeps=True)
def _gather_variable(site: Site) -> Run:
    def run(variable: Any, indices: Any) -> Any:
        rows = within(site, indices, variable.value.shape[0])
        return moved(variable.value, lambda v: np.take(v, rows, 0))

    return run


# Adding -------------------------------------------------------------------------------------------


def _flat_rows(site: Site, indices: Any, shape: tuple[int, ...]) -> Any:
    """Indices of several axes (the last axis of `indices`) as numbers of rows."""
    depth = indices.shape[-1]
    parts = [within(site, indices[..., i], shape[i]) for i in range(depth)]
    rows = np.zeros(indices.shape[:-1], np.int64)
    for part, n in zip(parts, shape, strict=False):
        rows = rows * n + part
    return rows.reshape(-1)


def _scattered(site: Site, base: Array, indices: Any, updates: Array, fold: Folded) -> Array:
    """base with updates folded into the places of the indices."""
    depth = indices.shape[-1]
    rows = _flat_rows(site, indices, base.shape)
    width = math.prod(base.shape[depth:])
    flat = base.reshape(math.prod(base.shape[:depth]), width)
    return fold(flat, rows, updates.reshape(len(rows), width)).reshape(*base.shape)


@kernel("ScatterNd", rounding=_ONCE)
def _scatter(site: Site) -> Run:
    device = site.device

    def run(indices: Any, updates: Array, shape: Any) -> Array:
        base = device.zeros(tuple(int(n) for n in shape), updates.format)
        return _scattered(site, base, indices, updates, lambda *a: add_rows(device, *a))

    return run


@kernel("TensorScatterAdd", "TensorScatterSub", rounding=_ONCE)
def _scatter_add(site: Site) -> Run:
    device = site.device
    is_sum = site.node.type == "TensorScatterAdd"

    def run(base: Array, indices: Any, updates: Array) -> Array:
        terms = updates if is_sum else device.negative(updates)
        return _scattered(site, base, indices, terms, lambda *a: add_rows(device, *a))

    return run


def _chosen_rows(choose: Any) -> Folded:
    """The larger or the smaller number of each place; no rounding."""

    def fold(base: Array, rows: Any, values: Array) -> Array:
        total = base.carrier.copy()
        choose.at(total, rows, values.carrier)
        return base.like(total)

    return fold


@kernel("TensorScatterMax", "TensorScatterMin", rounding="none")
def _scatter_extremum(site: Site) -> Run:
    fold = _chosen_rows(np.maximum if site.node.type == "TensorScatterMax" else np.minimum)
    return lambda base, indices, updates: _scattered(site, base, indices, updates, fold)


# Segments -----------------------------------------------------------------------------------------


def _segments(site: Site, x: Array, rows: Any, count: int, start: Start, fold: Folded) -> Array:
    """x folded by the numbers of its leading axes; negative ones take no part."""
    flat = rows.reshape(-1)
    kept = flat >= 0
    within(site, flat[kept], count)
    values = x.carrier.reshape(flat.size, math.prod(x.shape[rows.ndim :]))[kept]
    base = x.like(np.full((count, values.shape[1]), start(x.format), x.carrier.dtype))
    result = fold(base, flat[kept], x.like(values))
    return result.reshape(count, *x.shape[rows.ndim :])


def _fold_of(site: Site) -> tuple[Start, Folded]:
    """What a segment starts from, and how it takes the next number."""
    device, name = site.device, site.node.type.removeprefix("Unsorted").removeprefix("Segment")
    if name in ("Sum", "Mean"):
        return lambda _: 0.0, lambda *a: add_rows(device, *a)
    if name == "Prod":
        return lambda _: 1.0, lambda *a: multiply_rows(device, *a)
    if name == "Max":
        return lambda fmt: -fmt.max, _chosen_rows(np.maximum)
    return lambda fmt: fmt.max, _chosen_rows(np.minimum)


@kernel("UnsortedSegmentSum", "UnsortedSegmentProd", rounding=_ONCE)
@kernel("UnsortedSegmentMax", "UnsortedSegmentMin", rounding="none")
def _unsorted(site: Site) -> Run:
    start, fold = _fold_of(site)
    return lambda x, rows, count: _segments(site, x, rows, int(count), start, fold)


@kernel("SegmentSum", "SegmentProd", rounding=_ONCE)
@kernel("SegmentMax", "SegmentMin", rounding="none")
def _sorted(site: Site) -> Run:
    """Segments whose numbers ascend; one without an element is 0, in a product 1."""
    start, fold = _fold_of(site)

    def run(x: Array, rows: Any) -> Array:
        count = int(rows[-1]) + 1 if len(rows) else 0
        result = _segments(site, x, rows, count, start, fold)
        if "Prod" not in site.node.type:
            result.carrier[~np.isin(np.arange(count), rows)] = 0
        return result

    return run


@kernel("SegmentMean", rounding="binary32 in index order, then divided by the count, each once")
def _segment_mean(site: Site) -> Run:
    device, (start, fold) = site.device, _fold_of(site)

    def run(x: Array, rows: Any) -> Array:
        count = int(rows[-1]) + 1 if len(rows) else 0
        total = _segments(site, x, rows, count, start, fold)
        sizes = np.maximum(np.bincount(rows, minlength=count), 1).astype(np.float64)
        shape = (count, *(1,) * (total.ndim - 1))
        return device.divide(total, device.from_host(sizes.reshape(shape), x.format))

    return run


# Paddings -----------------------------------------------------------------------------------------


@kernel("MirrorPadGrad", rounding=_ONCE)
def _mirror_pad_gradient(site: Site) -> Run:
    """Each element gets the gradients of its images, in the order of the padded tensor."""
    device = site.device
    positions = own_kernel(
        site, "MirrorPad", {"T": site.node.inputs[1].dtype, "mode": site.attr("mode")}
    )

    def run(gradient: Array, paddings: Any) -> Array:
        shape = [n - int(sum(pad)) for n, pad in zip(gradient.shape, paddings, strict=True)]
        count = math.prod(shape)
        at = positions(np.arange(count, dtype=paddings.dtype).reshape(shape), paddings)
        base = device.zeros((count,), gradient.format)
        return add_rows(device, base, at.reshape(-1), gradient.reshape(-1)).reshape(*shape)

    return run


# Order --------------------------------------------------------------------------------------------


@kernel("TopKV2", rounding="none", is_any=True, keeps=True)
def _top_k(site: Site) -> Run:
    """The largest numbers of the last axis and where they lie; of equal ones the first."""
    kind = site.attr("index_type").as_numpy_dtype

    def run(x: Any, k: Any) -> Any:
        values = x.carrier if isinstance(x, Array) else x
        keys = -values if isinstance(x, Array) else ~values.astype(np.int64)
        order = np.argsort(keys, axis=-1, kind="stable")[..., : int(k)]
        return moved(x, lambda v: np.take_along_axis(v, order, -1)), order.astype(kind)

    return run


@kernel("Bucketize", "InTopKV2", "LowerBound", "UpperBound", rounding="none", keeps=True)
def _positions(site: Site) -> Run:
    """Comparisons of TensorFlow's own kernel in float32, which holds every format."""
    own = own_kernel(site, kinds=dict.fromkeys(FORMATS, tf.float32))
    return lambda *values: own(
        *[np.float32(v.carrier) if isinstance(v, Array) else v for v in values]
    )
