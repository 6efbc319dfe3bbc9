"""Rows by index: gathering, adding, segments and bags of embeddings.

What meets in a row is added (or multiplied) in binary32 in index order and rounded once; the larger
and the smaller number follow the device's rule for NaN. Indices are integers that a caller has
checked: 0 … n - 1 of n rows.

Source    ASSUMED for all frameworks: the vendor's order depends on the layout of tiles.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from fpsim.array import Array
from fpsim.records.formats import BINARY32
from ipu.machine.device import Device
from ipu.ops.bounds import minimum
from ipu.ops.folds import Verb, folded, folded_by
from ipu.ops.primitive import Primitive
from ipu.ops.rules import Saved, free, same, steps

__all__ = [
    "embedding_bag", "embedding_bag_max", "gather", "scatter_add",
    "scatter_max", "scatter_min", "scatter_multiply", "scatter_subtract", "segment_max",
    "segment_mean", "segment_min", "segment_multiply", "segment_sum",
]

Rows = Any

ONCE = "binary32 in index order, once at the end"
_SOURCE = "docs/semantics.md §6: popops' multiUpdateAdd; its order depends on the layout"


def _folded_wide(device: Device, verb: str, base: Array, rows: Rows, values: Array) -> Array:
    singles = device.cast(base, BINARY32), rows, device.cast(values, BINARY32)
    return device.cast(folded(device, verb, *singles), base.format)


def _taken(x: Array, rows: Rows, axis: int = 0) -> Array:
    return x.like(np.take(x.carrier, rows, axis))


# Gathering ----------------------------------------------------------------------------------------


def _gather(
    device: Device, x: Array, *, rows: Rows, axis: int = 0, padding: int | None = None
) -> tuple[Array, Saved]:
    return _taken(x, rows, axis), (x.shape,)


def _gather_x(
    device: Device, gradient: Array, saved: Saved, *, rows: Rows, axis: int = 0,
    padding: int | None = None,
) -> Array:
    (shape,) = saved
    axis = axis % len(shape)
    flat = np.asarray(rows).reshape(-1)
    taken = range(axis, axis + np.ndim(rows))
    values = np.moveaxis(gradient.carrier, taken, range(np.ndim(rows)))
    rest = tuple(n for a, n in enumerate(shape) if a != axis)
    values = values.reshape(flat.size, *rest)
    if padding is not None:
        values, flat = values[flat != padding], flat[flat != padding]
    base = device.zeros((shape[axis], *rest), gradient.format)
    total = _folded_wide(device, "add", base, flat, gradient.like(values))
    return total if axis == 0 else total.like(np.moveaxis(total.carrier, 0, axis))


# Scattering ---------------------------------------------------------------------------------------


def _scatter_add(device: Device, base: Array, values: Array, *, rows: Rows) -> tuple[Array, Saved]:
    return _folded_wide(device, "add", base, rows, values), (values.format,)


def _scatter_add_values(device: Device, gradient: Array, saved: Saved, *, rows: Rows) -> Array:
    return device.cast(_taken(gradient, rows), saved[0])


def _scatter_subtract(
    device: Device, base: Array, values: Array, *, rows: Rows
) -> tuple[Array, Saved]:
    return _scatter_add(device, base, device.negative(values), rows=rows)


def _scatter_subtract_values(device: Device, gradient: Array, saved: Saved, *, rows: Rows) -> Array:
    return device.negative(_scatter_add_values(device, gradient, saved, rows=rows))


def _scatter_multiply(
    device: Device, base: Array, values: Array, *, rows: Rows
) -> tuple[Array, Saved]:
    return _folded_wide(device, "multiply", base, rows, values), ()


def _extremum(verb: Verb, base: Array, values: Array, rows: Rows, fresh: bool) -> Array:
    """The numbers of each row folded with what the base has there, or without it."""
    if fresh:
        unique, first = np.unique(rows, return_index=True)
        base = base.like(base.carrier.copy())
        start = _taken(values, first)
        base.carrier[unique] = verb(start, start).carrier  # a NaN is read
        rest = np.setdiff1d(np.arange(len(rows)), first)
        values, rows = _taken(values, rest), rows[rest]
    return folded_by(verb, base, rows, values)


def _scatter_max(
    device: Device, base: Array, values: Array, *, rows: Rows, fresh: bool = False
) -> tuple[Array, Saved]:
    return _extremum(device.maximum, base, values, rows, fresh), ()


def _scatter_min(
    device: Device, base: Array, values: Array, *, rows: Rows, fresh: bool = False
) -> tuple[Array, Saved]:
    return _extremum(partial(minimum.value, device), base, values, rows, fresh), ()


# Segments -----------------------------------------------------------------------------------------


def _start(device: Device, x: Array, count: int, start: float) -> Array:
    return x.like(np.full((count, *x.shape[1:]), start, x.carrier.dtype))


def _segment_sum(device: Device, x: Array, *, rows: Rows, count: int) -> tuple[Array, Saved]:
    base = _start(device, x, count, 0.0)
    return _folded_wide(device, "add", base, rows, x), ()


def _segment_sum_x(
    device: Device, gradient: Array, saved: Saved, *, rows: Rows, count: int
) -> Array:
    return _taken(gradient, rows)


def _sizes(device: Device, x: Array, rows: Rows, count: int) -> Array:
    """Numbers of values of each segment, 1 of an empty one, to divide by."""
    sizes = np.maximum(np.bincount(rows, minlength=count), 1).astype(np.float64)
    return device.from_host(sizes.reshape(count, *(1,) * (x.ndim - 1)), x.format)


def _segment_mean(device: Device, x: Array, *, rows: Rows, count: int) -> tuple[Array, Saved]:
    total, _ = _segment_sum(device, x, rows=rows, count=count)
    return device.divide(total, _sizes(device, x, rows, count)), ()


def _segment_mean_x(
    device: Device, gradient: Array, saved: Saved, *, rows: Rows, count: int
) -> Array:
    return _taken(device.divide(gradient, _sizes(device, gradient, rows, count)), rows)


def _segment_multiply(device: Device, x: Array, *, rows: Rows, count: int) -> tuple[Array, Saved]:
    base = _start(device, x, count, 1.0)
    return _folded_wide(device, "multiply", base, rows, x), ()


def _segment_max(
    device: Device, x: Array, *, rows: Rows, count: int, empty: float | None = None
) -> tuple[Array, Saved]:
    base = _start(device, x, count, -x.format.max if empty is None else empty)
    return _extremum(device.maximum, base, x, rows, empty is not None), ()


def _segment_min(
    device: Device, x: Array, *, rows: Rows, count: int, empty: float | None = None
) -> tuple[Array, Saved]:
    base = _start(device, x, count, x.format.max if empty is None else empty)
    return _extremum(partial(minimum.value, device), base, x, rows, empty is not None), ()


# Bags ---------------------------------------------------------------------------------------------


def _share(device: Device, bags: Rows, count: int) -> Array:
    """fl(1/n) of each bag, in binary32."""
    sizes = np.maximum(np.bincount(bags, minlength=count), 1)
    return device.from_host((1 / sizes)[:, None], BINARY32)


def _embedding_bag(
    device: Device, weight: Array, *, rows: Rows, bags: Rows, count: int, mean: bool = False,
    factors: Array | None = None,
) -> tuple[Array, Saved]:
    values = _taken(device.cast(weight, BINARY32), rows)
    if factors is not None:
        values = device.multiply(values, factors.reshape(-1, 1))
    base = device.zeros((count, *weight.shape[1:]), BINARY32)
    total = folded(device, "add", base, bags, values)
    if mean:
        total = device.multiply(total, _share(device, bags, count))
    return device.cast(total, weight.format), (weight.shape,)


def _embedding_bag_weight(
    device: Device, gradient: Array, saved: Saved, *, rows: Rows, bags: Rows, count: int,
    mean: bool = False, factors: Array | None = None,
) -> Array:
    values = _taken(device.cast(gradient, BINARY32), bags)
    if mean:
        values = device.multiply(values, _taken(_share(device, bags, count), bags))
    if factors is not None:
        values = device.multiply(values, factors.reshape(-1, 1))
    total = folded(device, "add", device.zeros(saved[0], BINARY32), rows, values)
    return device.cast(total, gradient.format)


def _embedding_bag_max(
    device: Device, weight: Array, *, rows: Rows, bags: Rows, count: int
) -> tuple[Array, Saved]:
    """The first of equal rows is the one that the gradient reaches."""
    values = _taken(weight, rows)
    largest, _ = _segment_max(device, values, rows=bags, count=count, empty=0.0)
    is_largest = values.carrier == largest.carrier[bags]
    is_largest |= np.isnan(values.carrier) & np.isnan(largest.carrier[bags])
    sources = np.zeros(largest.shape, np.int64)
    for position in range(len(rows) - 1, -1, -1):
        here = is_largest[position]
        sources[bags[position], here] = rows[position]
    filled = np.bincount(bags, minlength=count) > 0
    return largest, (weight.shape, sources, filled)


def _embedding_bag_max_weight(device: Device, gradient: Array, saved: Saved, **_: Any) -> Array:
    (rows, width), sources, filled = saved
    places = (sources * width + np.arange(width))[filled].reshape(-1)
    base = device.zeros((rows * width,), gradient.format)
    values = gradient.like(gradient.carrier[filled].reshape(-1))
    return _folded_wide(device, "add", base, places, values).reshape(rows, width)


_NO_ROUNDING = "none"

#: Elements of x along `axis` at `rows`, indices of any shape; what flows to those of the index
#: `padding` is lost.
gather = Primitive(
    "gather", _gather, (_gather_x,), "none", free, rounding=_NO_ROUNDING, gradient=ONCE,
    source=_SOURCE,
)
#: base with each of the values added to its row of `rows`, duplicates in order of the values.
scatter_add = Primitive(
    "scatter_add", _scatter_add, (same, _scatter_add_values), cost=steps({"add": 1}),
    rounding=ONCE, gradient="none", source=_SOURCE,
)
#: base with each of the values subtracted; else as `scatter_add`.
scatter_subtract = Primitive(
    "scatter_subtract", _scatter_subtract, (same, _scatter_subtract_values),
    cost=steps({"add": 1}), rounding=ONCE, gradient="none", source=_SOURCE,
)
#: base with its rows multiplied by the values; else as `scatter_add`. It has no gradient.
scatter_multiply = Primitive(
    "scatter_multiply", _scatter_multiply, (None, None), cost=steps({"multiply": 1}),
    rounding=ONCE, source=_SOURCE,
)
#: base with the larger numbers in its rows; `fresh`: of the values alone. It has no gradient.
scatter_max = Primitive(
    "scatter_max", _scatter_max, (None, None), cost=steps(maximum=1), rounding=_NO_ROUNDING,
    source=_SOURCE,
)
#: The same with the smaller numbers.
scatter_min = Primitive(
    "scatter_min", _scatter_min, (None, None), cost=steps(maximum=1), rounding=_NO_ROUNDING,
    source=_SOURCE,
)
#: The sums of x by its numbers of segments, `rows`, of which there are `count`.
segment_sum = Primitive(
    "segment_sum", _segment_sum, (_segment_sum_x,), cost=steps({"add": 1}), rounding=ONCE,
    gradient="none", source=_SOURCE,
)
#: The means; that of an empty segment is 0.
segment_mean = Primitive(
    "segment_mean", _segment_mean, (_segment_mean_x,), cost=steps({"add": 1}),
    rounding="binary32 in index order, then divided by the count, each once",
    gradient="divided by the count", source=_SOURCE,
)
#: The products; that of an empty segment is 1. It has no gradient.
segment_multiply = Primitive(
    "segment_multiply", _segment_multiply, (None,), cost=steps({"multiply": 1}), rounding=ONCE,
    source=_SOURCE,
)
#: The largest numbers; an empty segment is `empty`, by default the lowest number of the format,
#: which then takes part in all of them. It has no gradient.
segment_max = Primitive(
    "segment_max", _segment_max, (None,), cost=steps(maximum=1), rounding=_NO_ROUNDING,
    source=_SOURCE,
)
#: The smallest numbers; else as `segment_max`, by default the largest number.
segment_min = Primitive(
    "segment_min", _segment_min, (None,), cost=steps(maximum=1), rounding=_NO_ROUNDING,
    source=_SOURCE,
)
#: Sums of rows of a table, or with `mean` their means: `rows` and their `bags`, of which there are
#: `count`; `factors` of the rows are in binary32.
embedding_bag = Primitive(
    "embedding_bag", _embedding_bag, (_embedding_bag_weight,), cost=steps({"add": 1}),
    rounding="binary32 in index order; a mean times fl(1/n); once at the end",
    gradient="binary32 in index order, of a mean times fl(1/n); once at the end", source=_SOURCE,
)
#: The largest numbers of the rows of each bag; an empty one is 0.
embedding_bag_max = Primitive(
    "embedding_bag_max", _embedding_bag_max, (_embedding_bag_max_weight,), cost=steps(maximum=1),
    rounding=_NO_ROUNDING, gradient=ONCE, source=_SOURCE,
)
