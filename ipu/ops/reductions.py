"""Sum, mean and maximum over axes.

Sums run in binary32, as `Device.reduce_sum` adds, and are rounded once; a mean is that sum times
fl(1/n) in binary32, rounded once. Of no elements the mean is 0 · inf: NaN, with INVALID. The
gradient of a maximum goes to the first element that has it.

Source    poplibs, Reduction.cpp (half sums accumulate in float, the scale is a float); the order is
          ASSUMED there (it depends on the layout).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fpsim.array import Array
from ipu.machine.device import Device
from ipu.machine.reference import wide
from ipu.ops.primitive import Primitive
from ipu.ops.rules import Saved, count, share, steps

__all__ = ["reduce_max", "reduce_mean", "reduce_min", "reduce_sum"]

Axes = int | tuple[int, ...] | None


def _axes(x: Array, axis: Axes) -> tuple[int, ...]:
    if axis is None:
        return tuple(range(x.ndim))
    return np.lib.array_utils.normalize_axis_tuple(axis, x.ndim, "axis")


def _shaped(x: Array, reduced: Array, axes: tuple[int, ...], keepdims: bool) -> Array:
    if keepdims:
        return reduced
    return reduced.reshape([n for a, n in enumerate(x.shape) if a not in axes])


def _spread(gradient: Array, shape: tuple[int, ...], axes: tuple[int, ...]) -> Array:
    """The gradient for every element that was reduced."""
    aligned = gradient.reshape([1 if a in axes else n for a, n in enumerate(shape)])
    return Array(np.broadcast_to(aligned.carrier, shape), gradient.context)


def _sum(
    device: Device, x: Array, *, axis: Axes = None, keepdims: bool = False
) -> tuple[Array, Saved]:
    axes = _axes(x, axis)
    return _shaped(x, device.reduce_sum(x, axes), axes, keepdims), (x.shape, axes)


def _sum_x(device: Device, gradient: Array, saved: Saved, **_: Any) -> Array:
    return _spread(gradient, *saved)


def _mean(
    device: Device, x: Array, *, axis: Axes = None, keepdims: bool = False
) -> tuple[Array, Saved]:
    axes = _axes(x, axis)
    mean = device.reduce_sum(x, axes, scale=share(x.shape, axes))
    return _shaped(x, mean, axes, keepdims), (x.shape, axes)


def _mean_x(device: Device, gradient: Array, saved: Saved, **_: Any) -> Array:
    """gradient · fl(1/n) in binary32, rounded once; no elements take none of it."""
    n = count(*saved)
    if n == 0:
        return _spread(gradient, *saved)
    share = device.multiply(device.cast(gradient, wide(gradient.format)), 1 / n)
    return _spread(device.cast(share, gradient.format), *saved)


def _max(
    device: Device, x: Array, *, axis: Axes = None, keepdims: bool = False
) -> tuple[Array, Saved]:
    axes = _axes(x, axis)
    if count(x.shape, axes) == 0:
        raise ValueError(
            f"x has shape {x.shape}, so there is no maximum over axes {axes}; "
            "reduce axes that have elements"
        )
    together = _last(x.carrier, axes)
    largest = device.reduce_max(Array(together, x.context), axis=-1)
    first = (together == largest.carrier) | (np.isnan(together) & np.isnan(largest.carrier))
    aligned = largest.reshape([1 if a in axes else n for a, n in enumerate(x.shape)])
    return _shaped(x, aligned, axes, keepdims), (x.shape, axes, first.argmax(axis=-1))


def _max_x(device: Device, gradient: Array, saved: Saved, **_: Any) -> Array:
    shape, axes, first = saved
    winners = np.arange(count(shape, axes)) == first[..., None]
    free = [n for a, n in enumerate(shape) if a not in axes]
    order = [a for a in range(len(shape)) if a not in axes] + list(axes)
    apart = winners.reshape(free + [shape[a] for a in axes]).transpose(np.argsort(order))
    return device.select(apart, _spread(gradient, shape, axes))


def _last(values: Any, axes: tuple[int, ...]) -> Any:
    """The axes to reduce as one, the last."""
    rest = [a for a in range(values.ndim) if a not in axes]
    moved = values.transpose([*rest, *axes])
    return moved.reshape([*moved.shape[: len(rest)], count(values.shape, axes)])


def _min(
    device: Device, x: Array, *, axis: Axes = None, keepdims: bool = False
) -> tuple[Array, Saved]:
    """By the rule of the largest, of the numbers with their signs changed."""
    y, saved = _max(device, device.negative(x), axis=axis, keepdims=keepdims)
    return device.negative(y), saved


def first_index(saved: Saved) -> NDArray[np.intp]:
    """Of what reduce_max or reduce_min has saved: where the number stands that was chosen.

    Shapes    of the axes that were not reduced; indices count over the reduced ones in C order.
    """
    _, _, first = saved
    return np.asarray(first)


_ADDING = steps({"cast": 1, "add": 1})

#: Sum over `axis` (default: all); option `keepdims`.
reduce_sum = Primitive(
    "reduce_sum",
    _sum,
    (_sum_x,),
    cost=_ADDING,
    rounding="binary32, once at the end",
    gradient="none",
)
#: Mean over `axis` (default: all); option `keepdims`.
reduce_mean = Primitive(
    "reduce_mean",
    _mean,
    (_mean_x,),
    cost=_ADDING,
    rounding="binary32, times fl(1/n), once at the end",
    gradient="the product with fl(1/n) in binary32, once",
)
#: Maximum over `axis` (default: all); option `keepdims`.
reduce_max = Primitive(
    "reduce_max", _max, (_max_x,), cost=steps(maximum=1), rounding="none", gradient="none"
)
#: Minimum over `axis` (default: all); option `keepdims`.
reduce_min = Primitive(
    "reduce_min", _min, (_max_x,), cost=steps(maximum=1), rounding="none", gradient="none"
)
