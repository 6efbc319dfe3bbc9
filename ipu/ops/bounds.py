"""The larger and the smaller of numbers, limits, neighbours: selections, which round nothing.

Of a number and a NaN the number is chosen and INV is raised, or the NaN passes: the device's switch
`max_nan` (docs/semantics.md §6). fmax and fmin choose the number whatever the switch says.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from fpsim.array import Array
from fpsim.core import Operand
from fpsim.records.formats import BINARY16, BINARY32
from ipu.machine.device import Device
from ipu.ops.primitive import Primitive, Saved
from ipu.ops.rules import free, steps, sum_to

__all__ = [
    "NEIGHBOURS", "clamp", "finite", "fmax", "fmin", "maximum", "minimum", "next_after",
]

#: Formats whose neighbours numpy knows.
NEIGHBOURS = {BINARY16: np.float16, BINARY32: np.float32}


def _maximum(device: Device, x: Array, y: Array) -> tuple[Array, Saved]:
    return device.maximum(x, y), (x, y)


def _smaller(device: Device, x: Operand, y: Operand) -> Array:
    """By the rule of the larger, of the numbers with their signs changed."""
    x, y = (-v if isinstance(v, (int, float)) else device.negative(v) for v in (x, y))
    return device.negative(device.maximum(x, y))


def _minimum(device: Device, x: Array, y: Array) -> tuple[Array, Saved]:
    return _smaller(device, x, y), (x, y)


def _fmax(device: Device, x: Array, y: Array) -> tuple[Array, Saved]:
    return device.context(x.format).fmax(x, y), (x, y)


def _fmin(device: Device, x: Array, y: Array) -> tuple[Array, Saved]:
    return device.context(x.format).fmin(x, y), (x, y)


def _clamp(
    device: Device, x: Array, *, low: Operand | None = None, high: Operand | None = None
) -> tuple[Array, Saved]:
    """min(max(x, low), high)."""
    y = x if low is None else device.maximum(x, low)
    return (y if high is None else _smaller(device, y, high)), (x, low, high)


def _clamp_x(device: Device, gradient: Array, saved: Saved, **_: Any) -> Array:
    """The gradient where x is no smaller than `low` and no larger than `high`."""
    x, low, high = saved
    inside = np.ones(gradient.shape, np.bool_)
    for limit, compare in ((low, np.greater_equal), (high, np.less_equal)):
        if limit is not None:
            inside &= compare(x.carrier, limit.carrier if isinstance(limit, Array) else limit)
    return device.select(inside, gradient)


def _finite(
    device: Device, x: Array, *, nan: Operand = 0.0, above: Operand | None = None,
    below: Operand | None = None,
) -> tuple[Array, Saved]:
    largest, values = x.format.max, x.carrier
    for infinity, instead in ((np.inf, above), (-np.inf, below)):
        number = np.copysign(largest, infinity) if instead is None else number_of(instead)
        values = np.where(values == infinity, values.dtype.type(number), values)
    values = np.where(np.isnan(x.carrier), values.dtype.type(number_of(nan)), values)
    return x.like(values), (x,)


def number_of(x: Operand) -> float:
    """A number, or the only one of an array."""
    return float(x.carrier) if isinstance(x, Array) else float(x)


def _finite_x(device: Device, gradient: Array, saved: Saved, **_: Any) -> Array:
    return device.select(np.isfinite(saved[0].carrier), gradient)


def _next_after(device: Device, x: Array, y: Array) -> tuple[Array, Saved]:
    stored = NEIGHBOURS[x.format]
    with np.errstate(all="ignore"):
        neighbours = np.nextafter(x.carrier.astype(stored), y.carrier.astype(stored))
    return x.like(neighbours.astype(x.carrier.dtype)), ()


def _towards(argument: int, larger: bool) -> Any:
    """The rule of one of two operands: the gradient where it is chosen; of equal ones the first."""

    def vjp(device: Device, gradient: Array, saved: Saved, **_: Any) -> Array:
        x, y = (saved[0].carrier, saved[1].carrier)
        first = ~(x < y) & ~np.isnan(x) if larger else ~(x > y) & ~np.isnan(x)
        first |= np.isnan(y) & ~np.isnan(x)
        share = device.select(np.broadcast_to(first != bool(argument), gradient.shape), gradient)
        operand = saved[argument]
        return sum_to(device, share, operand.shape, operand.format)

    return vjp


def _of_two(name: str, forward: Any, *, larger: bool, verb: str = "") -> Primitive:
    return Primitive(
        name, forward, (_towards(0, larger), _towards(1, larger)), cost=steps(maximum=1),
        rounding="none", gradient="none", source="docs/semantics.md §6 (max_nan)", verb=verb,
    )


#: The larger of x and y, which broadcast.
maximum = _of_two("maximum", _maximum, larger=True, verb="maximum")
#: The smaller of x and y, which broadcast.
minimum = _of_two("minimum", _minimum, larger=False)
#: The larger; a number before a NaN.
fmax = _of_two("fmax", _fmax, larger=True)
#: The smaller; a number before a NaN.
fmin = _of_two("fmin", _fmin, larger=False)
#: min(max(x, low), high): limits are numbers or arrays that broadcast.
clamp = Primitive(
    "clamp", _clamp, (_clamp_x,), cost=steps(maximum=2), rounding="none", gradient="none",
    source="docs/semantics.md §6 (max_nan)",
)
#: x with numbers for NaN and infinities: 0 and the largest ones, or constants of the format.
finite = Primitive(
    "finite",
    _finite,
    (_finite_x,),
    cost=free,
    rounding="none",
    gradient="none",
    source="torch 2.13, nan_to_num",
)
#: The neighbour of x on the side of y, in binary16 and binary32; no flags.
next_after = Primitive(
    "next_after",
    _next_after,
    (None, None),
    cost=free,
    rounding="none: the neighbour",
    source="torch 2.13, nextafter",
)
