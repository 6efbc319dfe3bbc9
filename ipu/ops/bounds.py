"""The larger and the smaller of numbers, and limits: selections, which round nothing.

Of a number and a NaN the number is chosen and INV is raised, or the NaN passes: the device's switch
`max_nan` (docs/semantics.md §6). fmax and fmin choose the number whatever the switch says.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from fpsim.array import Array
from fpsim.core import Operand
from ipu.machine.device import Device
from ipu.ops.primitive import Primitive, Saved
from ipu.ops.rules import steps, sum_to

__all__ = ["clamp", "fmax", "fmin", "maximum", "minimum"]


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
    )  # fmt: skip


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
)  # fmt: skip
