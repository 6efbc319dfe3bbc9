"""Sums, means, variances, norms, products and extrema over axes, and running sums.

Sums run in binary32, as `Device.reduce_sum` adds, and are rounded once; a mean is that sum times
fl(1/n) in binary32, rounded once. Of no elements the mean is 0 · inf: NaN, with INVALID. The
gradient of a maximum goes to the first element that has it.

Source    poplibs, Reduction.cpp (half sums accumulate in float, the scale is a float); the order is
          ASSUMED there (it depends on the layout).
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fpsim.array import Array
from fpsim.elementwise.apply import as_read
from fpsim.elementwise.order import largest_along
from ipu.machine.device import Device
from ipu.machine.reference import wide
from ipu.ops.arithmetic import absolute
from ipu.ops.folds import running
from ipu.ops.primitive import Primitive
from ipu.ops.rules import Saved, count, read_nan, share, steps

__all__ = [
    "cumulative_product", "cumulative_sum", "half_square_sum", "reduce_max", "reduce_mean",
    "reduce_min", "reduce_product", "reduce_sum", "reduce_variance", "vector_norm",
]

Axes = int | tuple[int, ...] | None


def _axes(x: Array, axis: Axes) -> tuple[int, ...]:
    if axis is None:
        return tuple(range(x.ndim))
    return _normalized(axis, x.ndim)


@lru_cache(maxsize=256)
def _normalized(axis: int | tuple[int, ...], ndim: int) -> tuple[int, ...]:
    return np.lib.array_utils.normalize_axis_tuple(axis, ndim, "axis")


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
    together = as_read(together, largest.context.core.settings)
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


def _variance(
    device: Device, x: Array, *, axis: Axes = None, keepdims: bool = False,
    correction: float = 1.0, root: bool = False,
) -> tuple[Array, Saved]:
    """Saves the mean, in binary32."""
    axes, x32 = _axes(x, axis), device.cast(x, wide(x.format))
    mean = device.reduce_sum(x32, axes, scale=share(x.shape, axes))
    centred = device.subtract(x32, mean)
    squares = device.multiply(centred, centred)
    spread = device.reduce_sum(squares, axes, scale=1 / (count(x.shape, axes) - correction))
    if root:
        spread = device.sqrt(spread)
    result = device.cast(_shaped(x, spread, axes, keepdims), x.format)
    return result, (_shaped(x, mean, axes, keepdims),)


def _norm(
    device: Device, x: Array, *, axis: Axes = None, keepdims: bool = False, order: float = 2
) -> tuple[Array, Saved]:
    """Of order 2 in binary32. A norm with a NaN is NaN, whatever the rule of maxima says."""
    axes = _axes(x, axis)
    if order == 2:
        norm = device.sqrt(device.reduce_squares(x, axes))
    elif order == 1:
        norm = device.reduce_sum(absolute.value(device, x), axes)
    elif order == math.inf:
        sizes = absolute.value(device, x).carrier
        largest, has_nan = largest_along(sizes, axes, x.context.core.settings, number_wins=False)
        if has_nan:
            read_nan(device, x.format)
        norm = x.like(largest)
    else:
        raise ValueError(f"order={order} is no norm of the machine; use 1, 2 or inf")
    return _shaped(x, norm, axes, keepdims), ()


def _half_squares(device: Device, x: Array) -> tuple[Array, Saved]:
    total = device.reduce_squares(x.reshape(-1), (0,), scale=0.5)
    return device.cast(total.reshape(()), x.format), ()


def _product(
    device: Device, x: Array, *, axis: Axes = None, keepdims: bool = False
) -> tuple[Array, Saved]:
    axes = _axes(x, axis)
    rest = [a for a in range(x.ndim) if a not in axes]
    terms = x.carrier.transpose([*axes, *rest])
    terms = terms.reshape([count(x.shape, axes), *[x.shape[a] for a in rest]])
    if not len(terms):
        result = x.like(np.ones(terms.shape[1:], terms.dtype))
    else:
        result = x.like(np.array(terms[0]))
        for term in terms[1:]:
            result = device.multiply(result, x.like(np.array(term)))
    aligned = result.reshape([1 if a in axes else n for a, n in enumerate(x.shape)])
    return _shaped(x, aligned, axes, keepdims), ()


def _running(verb: str) -> Any:
    """A forward rule of results so far along an axis, each rounded in binary32."""

    def forward(
        device: Device, x: Array, *, axis: int, exclusive: bool = False, reverse: bool = False
    ) -> tuple[Array, Saved]:
        x32 = device.cast(x, wide(x.format))
        results = running(device, verb, x32, axis, exclusive=exclusive, reverse=reverse)
        return device.cast(results, x.format), ()

    return forward


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
_WIDE = "binary32, once at the end"
#: Variance over `axis`, by n - `correction`; options `root` (the deviation), `keepdims`; of all
#: operations in binary32 the result alone is rounded. No gradient flows, as for the next ones.
reduce_variance = Primitive(
    "reduce_variance", _variance, (None,), rounding=_WIDE,
    cost=steps({"cast": 1, "add": 2, "subtract": 1, "multiply": 1}),
)
#: Norm over `axis` of `order` 1, 2 (in binary32) or infinity.
vector_norm = Primitive(
    "vector_norm", _norm, (None,), cost=steps({"cast": 1, "multiply": 1, "add": 1}),
    rounding=f"{_WIDE}: of squares and the root (order 2), of sizes (order 1); none (infinity)",
)
#: Half of the sum of squares.
half_square_sum = Primitive(
    "half_square_sum", _half_squares, (None,), cost=steps({"cast": 1, "multiply": 1, "add": 1}),
    rounding="squares and their sum in binary32, times 1/2, once at the end",
)
#: Product over `axis` (default: all); option `keepdims`.
reduce_product = Primitive(
    "reduce_product", _product, (None,), cost=steps(multiply=1),
    rounding="each product, in index order",
)
_EACH = "binary32 in index order, each result once"
#: Sums so far along `axis`; options `exclusive` (without the last), `reverse`.
cumulative_sum = Primitive(
    "cumulative_sum", _running("add"), (None,), cost=_ADDING, rounding=_EACH
)
#: Products so far.
cumulative_product = Primitive(
    "cumulative_product", _running("multiply"), (None,), rounding=_EACH,
    cost=steps({"cast": 1, "multiply": 1}),
)
