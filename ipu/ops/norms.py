"""Batch, group and layer norm: statistics in binary32, results and saved values in x's format.

Sums run in binary32, as `Device.reduce_sum` adds, times fl(1/n); N is the number of elements taken
together.

mean       rounded once into the format of x.
variance   default: max(power - mean², 0) with power = sum(x²)/N, all in binary32: the digits of a
           large mean cancel. `stable`: sum((x - mean)²)/N, the difference rounded in x's format.
inverse    1 / sqrt((variance + epsilon) · N/(N-1)) step by step in binary32, the last factor only
           if `unbiased`; rounded once into the format of x.
forward    ((x - mean) · inverse) · gamma + beta, each operation rounded in the format of x.
backward   h = gradient · gamma; (h - w · (sum(h · w)/N) - sum(h)/N) · inverse with the whitened w;
           both sums rounded into the format of x. It is that of the biased variance (as poplibs).

Group norm takes channels c, c + groups, … together (`strided`), as poplibs does by default, or
neighbours. Layer norm is group norm with one group: all axes but the first together.

Source    poplibs, Norms.cpp, InverseStdDeviation.cpp, GroupNorm.cpp, LayerNorm.hpp.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from fpsim.array import Array
from fpsim.core import Operand
from ipu.machine.device import Device
from ipu.machine.reference import wide
from ipu.ops import in_binary64
from ipu.ops.in_one_call import in_one_call
from ipu.ops.primitive import Primitive
from ipu.ops.rules import Saved, count, share, steps

__all__ = [
    "batch_norm", "group_norm", "layer_norm", "moving_average", "normalise", "unbiased",
    "weight_norm",
]

Axes = tuple[int, ...]


class Statistics(NamedTuple):
    """Of elements taken together: mean and inverse deviation in x's format, variance in binary32.

    `centred` is x - mean, which the stable variance and the whitening share.
    """

    mean: Array
    variance: Array
    inverse: Array
    centred: Array


def inverse_deviation(
    device: Device, variance: Array, epsilon: float, factor: float = 1.0
) -> Array:
    """1 / sqrt((variance + epsilon) · factor), each step in binary32."""
    shifted = device.add(variance, epsilon)
    if factor != 1:
        shifted = device.multiply(shifted, factor)
    return device.divide(1.0, device.sqrt(shifted))


def _statistics(
    device: Device, x: Array, axes: Axes, epsilon: float, stable: bool, unbiased: bool
) -> Statistics:
    n, scale = count(x.shape, axes), share(x.shape, axes)
    mean = device.reduce_sum(x, axes, scale=scale)
    centred = device.subtract(x, mean)
    power = device.reduce_squares(centred if stable else x, axes, scale=scale)
    if not stable:
        m = device.cast(mean, wide(x.format))
        power = device.relu(device.subtract(power, device.multiply(m, m)))
    # As IEEE 754 divides: of one element 1/0.
    unbiasing = n / (n - 1) if n > 1 else math.inf
    factor = unbiasing if unbiased else 1.0
    inverse = device.cast(inverse_deviation(device, power, epsilon, factor), x.format)
    return Statistics(mean, power, inverse, centred)


def batch_statistics(
    device: Device, x: Array, epsilon: float, stable: bool, unbiased: bool = False
) -> Statistics:
    """Statistics over all axes but the last."""
    return _statistics(device, x, _all_but_last(x), epsilon, stable, unbiased)


def known_statistics(
    device: Device, x: Array, mean: Array, variance: Array, epsilon: float
) -> Statistics:
    """Of an evaluation: the running mean and variance."""
    wide32 = device.cast(variance, wide(x.format))
    inverse = device.cast(inverse_deviation(device, wide32, epsilon), x.format)
    centre = device.cast(mean, x.format)
    return Statistics(centre, wide32, inverse, device.subtract(x, centre))


def saved_of(device: Device, statistics: Statistics, gamma: Array) -> Saved:
    """What batch norm saves of these statistics."""
    whitened = device.multiply(statistics.centred, statistics.inverse)
    return whitened, gamma, statistics.inverse


def _all_but_last(x: Array) -> Axes:
    return tuple(range(x.ndim - 1))


# Whitening and its gradient -------------------------------------------------------------------


def _whitened_gradient(
    device: Device, h: Array, whitened: Array, inverse: Array, axes: Axes
) -> Array:
    """Through the whitening: h - w · mean(h · w) - mean(h), times the inverse deviation."""
    scale = -share(h.shape, axes)
    bend = device.reduce_sum(device.multiply(whitened, h), axes, scale=scale)
    shift = device.reduce_sum(h, axes, scale=scale)
    moved = device.multiply(whitened, bend)
    device.add(h, moved, out=moved)
    device.add(moved, shift, out=moved)
    return device.multiply(moved, inverse, out=moved)


def _scaled(device: Device, whitened: Array, gamma: Array, beta: Array) -> Array:
    if gamma.shape != beta.shape or gamma.shape != whitened.shape[-1:]:
        raise ValueError(
            f"gamma of shape {gamma.shape} and beta of shape {beta.shape} go with "
            f"{whitened.shape[-1]} channels; give one number for each"
        )
    scaled = device.multiply(whitened, gamma)
    return device.add(scaled, beta, out=scaled)


def _gamma(device: Device, gradient: Array, saved: Saved, **_: Any) -> Array:
    product = device.multiply(saved[0], gradient)
    return device.reduce_sum(product, _all_but_last(gradient)).reshape(-1)


def _beta(device: Device, gradient: Array, saved: Saved, **_: Any) -> Array:
    return device.reduce_sum(gradient, _all_but_last(gradient)).reshape(-1)


# Batch norm -----------------------------------------------------------------------------------


def _batch_norm(
    device: Device, x: Array, gamma: Array, beta: Array, *, epsilon: float = 1e-3,
    stable: bool = False, unbiased: bool = False, statistics: Statistics | None = None,
) -> tuple[Array, Saved]:
    stats = statistics or batch_statistics(device, x, epsilon, stable, unbiased)
    whitened = device.multiply(stats.centred, stats.inverse)
    return _scaled(device, whitened, gamma, beta), (whitened, gamma, stats.inverse)


def _batch_norm_x(device: Device, gradient: Array, saved: Saved, **_: Any) -> Array:
    whitened, gamma, inverse = saved
    h = device.multiply(gradient, gamma)
    return _whitened_gradient(device, h, whitened, inverse, _all_but_last(gradient))


def _normalise(
    device: Device, x: Array, gamma: Array, beta: Array, *, mean: Array, inverse: Array
) -> tuple[Array, Saved]:
    whitened = device.subtract(x, mean)
    device.multiply(whitened, inverse, out=whitened)
    return _scaled(device, whitened, gamma, beta), (whitened, gamma, inverse)


def _normalise_x(device: Device, gradient: Array, saved: Saved, **_: Any) -> Array:
    _, gamma, inverse = saved
    return device.multiply(device.multiply(gradient, gamma), inverse)


# Group norm -----------------------------------------------------------------------------------


def _grouped(x: Array, groups: int, strided: bool) -> tuple[Array, Axes]:
    """(batch, positions, …) with the channels in two axes, and the axes taken together."""
    if groups < 1 or x.shape[-1] % groups:
        raise ValueError(
            f"groups={groups} does not divide {x.shape[-1]} channels; use one of its divisors"
        )
    size = x.shape[-1] // groups
    inner, axes = ((size, groups), (1, 2)) if strided else ((groups, size), (1, 3))
    return x.reshape(x.shape[0], -1, *inner), axes


@in_one_call
def _group_norm(
    device: Device, x: Array, gamma: Array, beta: Array, *, groups: int, strided: bool = True,
    epsilon: float = 1e-3, stable: bool = False, unbiased: bool = False,
) -> tuple[Array, Saved]:
    together, axes = _grouped(x, groups, strided)
    stats = _statistics(device, together, axes, epsilon, stable, unbiased)
    whitened = device.multiply(stats.centred, stats.inverse).reshape(x.shape)
    return _scaled(device, whitened, gamma, beta), (whitened, gamma, stats.inverse)


@in_one_call
def _group_norm_x(
    device: Device, gradient: Array, saved: Saved, *, groups: int, strided: bool = True, **_: Any
) -> Array:
    whitened, gamma, inverse = saved
    h, axes = _grouped(device.multiply(gradient, gamma), groups, strided)
    w, _axes = _grouped(whitened, groups, strided)
    return _whitened_gradient(device, h, w, inverse, axes).reshape(gradient.shape)


@in_binary64.by(in_binary64.layer_norm)
@in_one_call
def _layer_norm(
    device: Device, x: Array, gamma: Array, beta: Array, *, epsilon: float = 1e-3,
    stable: bool = False, unbiased: bool = False,
) -> tuple[Array, Saved]:
    return _group_norm(
        device, x, gamma, beta, groups=1, epsilon=epsilon, stable=stable, unbiased=unbiased
    )


@in_binary64.by(in_binary64.layer_norm_x)
@in_one_call
def _layer_norm_x(device: Device, gradient: Array, saved: Saved, **_: Any) -> Array:
    return _group_norm_x(device, gradient, saved, groups=1)


# Around norms -----------------------------------------------------------------------------------


def _unbiased(device: Device, variance: Array, *, n: int) -> tuple[Array, Saved]:
    return device.multiply(variance, n / max(n - 1, 1)), ()


def _moving_average(
    device: Device, old: Array, fresh: Array, *, rest: Operand, share: Operand,
    fresh_first: bool = False,
) -> tuple[Array, Saved]:
    fresh = device.cast(fresh, old.format)
    if fresh_first:
        term = device.multiply(fresh, share)
        return device.add(term, device.multiply(old, rest)), ()
    return device.add(device.multiply(old, rest), device.multiply(fresh, share)), ()


def _others(ndim: int, dim: int) -> Axes:
    return tuple(a for a in range(ndim) if a != dim % ndim)


def _weight_norm(device: Device, v: Array, g: Array, *, dim: int = 0) -> tuple[Array, Saved]:
    """Saves |v| in binary32."""
    x = device.cast(v, wide(v.format))
    norms = device.sqrt(device.reduce_sum(device.multiply(x, x), _others(v.ndim, dim)))
    w = device.multiply(x, device.divide(device.cast(g, x.format), norms))
    return device.cast(w, v.format), (norms,)


def weight_norm_gradients(
    device: Device, gradient: Array, v: Array, g: Array, norms: Array, dim: int
) -> tuple[Array, Array]:
    """To v: g/|v| · (dw - v · to_g / |v|). To g: sum(dw · v) / |v|.

    Shapes    all in binary32, as the results are; those of g and the norms as torch has them.
    """
    total = device.reduce_sum(device.multiply(gradient, v), _others(v.ndim, dim))
    norms = norms.reshape(total.shape)
    to_g = device.divide(total, norms)
    along = device.multiply(v, device.divide(to_g, norms))
    factor = device.divide(g.reshape(total.shape), norms)
    return device.multiply(device.subtract(gradient, along), factor), to_g


_SCALING = {"subtract": 1, "multiply": 2, "add": 1}
#: The steps for every element: sums of x and of its squares, then as with known statistics.
_NORMING = steps({"cast": 1, "add": 2, "multiply": 1}, **_SCALING)

#: Over all axes but the last; options `epsilon`, `stable`, `unbiased`, `statistics` (computed
#: already, by `batch_statistics`).
batch_norm = Primitive(
    "batch_norm", _batch_norm, (_batch_norm_x, _gamma, _beta), cost=_NORMING,
    passing=("statistics",),
    rounding="statistics in binary32, then each operation",
    gradient="sums in binary32, then each operation",
)
#: With the options `mean` and `inverse` deviation: batch norm after training.
normalise = Primitive(
    "normalise",
    _normalise,
    (_normalise_x, _gamma, _beta),
    cost=steps(**_SCALING),
    rounding="statistics in binary32, then each operation",
    gradient="sums in binary32, then each operation",
)
#: Within each image over `groups` of channels; options `strided`, `epsilon`, `stable`, `unbiased`.
group_norm = Primitive(
    "group_norm",
    _group_norm,
    (_group_norm_x, _gamma, _beta),
    cost=_NORMING,
    rounding="statistics in binary32, then each operation",
    gradient="sums in binary32, then each operation",
)
#: Group norm with one group; options `epsilon`, `stable`, `unbiased`.
layer_norm = Primitive(
    "layer_norm",
    _layer_norm,
    (_layer_norm_x, _gamma, _beta),
    cost=_NORMING,
    rounding="statistics in binary32, then each operation",
    gradient="sums in binary32, then each operation",
)
#: variance · n/(n - 1), of one element the variance; no gradient flows, as for the next ones.
unbiased = Primitive("unbiased", _unbiased, (None,), cost=steps(multiply=1), rounding="once")
#: rest · old + share · fresh in the format of old; option `fresh_first`: that product first.
moving_average = Primitive(
    "moving_average", _moving_average, (None, None), cost=steps(multiply=2, add=1),
    rounding="each product, the sum", source="the frameworks differ in the order of the products",
)
#: g · v / |v|, norms over all axes but `dim`; its gradients are `weight_norm_gradients`.
weight_norm = Primitive(
    "weight_norm", _weight_norm, (None, None), rounding="binary32 inside, once at the end",
    cost=steps({"cast": 2, "multiply": 2, "add": 1}),
    source="PyTorch, aten/src/ATen/native/WeightNorm.cpp",
)
