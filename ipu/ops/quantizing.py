"""Fake quantisation: numbers on a grid of so many values between two limits, and its gradient.

The limits are moved first, by less than the distance of the grid's values, so that 0 is one of
them. Every operation is rounded in the format of x. The gradient passes where x is inside of the
grid; what is below goes to the lower limit, what is above to the upper one.

Source    tensorflow 2.21, core/kernels/fake_quant_ops_functor.h: the operations and their order,
          inferred from its results; in binary32 the values are the same bits.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fpsim.array import Array
from fpsim.core import Operand
from fpsim.elementwise.apply import as_read
from fpsim.records.formats import Format
from ipu.machine.device import Device
from ipu.ops.primitive import Primitive, Saved
from ipu.ops.rules import steps, sum_to

__all__ = ["fake_quantize"]


class _Grid(NamedTuple):
    """The limits, which are values of the grid, and the distance of its values."""

    low: Array
    high: Array
    scale: Array


def _constant(device: Device, value: Operand, fmt: Format) -> Array:
    return value if isinstance(value, Array) else device.context(fmt).constant(value)


def _floor(x: Array) -> Array:
    return x.like(np.floor(x.carrier))


def _grid(device: Device, low: Array, high: Array, first: Operand, last: Operand) -> _Grid:
    least, most = (_constant(device, end, low.format) for end in (first, last))
    scale = device.divide(device.subtract(high, low), device.subtract(most, least))
    zero = device.subtract(least, device.divide(low, scale))
    nearest = np.floor(np.float64(zero.carrier) + 0.5)  # as std::round of what is not negative
    inside = np.clip(nearest, np.float64(least.carrier), np.float64(most.carrier))
    zero = zero.like(inside.astype(zero.carrier.dtype))
    low, high = (device.multiply(device.subtract(end, zero), scale) for end in (least, most))
    return _Grid(low, high, scale)


def _fake_quantize(
    device: Device, x: Array, low: Array, high: Array, *, first: Operand = 0.0,
    last: Operand = 255.0,
) -> tuple[Array, Saved]:
    grid = _grid(device, low, high, first, last)
    inverse = device.divide(_constant(device, 1.0, x.format), grid.scale)
    least = device.maximum(device.negative(x), device.negative(grid.high))
    clamped = device.maximum(device.negative(least), grid.low)
    shifted = device.multiply(device.subtract(clamped, grid.low), inverse)
    zero = device.multiply(device.negative(grid.low), inverse)
    zero = _floor(device.add(zero, 0.5))
    number = _floor(device.add(device.subtract(shifted, zero), 0.5))
    return device.multiply(number, grid.scale), (x, low, high)


def _outside(
    device: Device, saved: Saved, first: Operand, last: Operand
) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Where x is below and above the grid, as the machine reads them."""
    x, low, high = saved
    grid, settings = _grid(device, low, high, first, last), device.context(x.format).core.settings
    values, least, most = (as_read(a.carrier, settings) for a in (x, grid.low, grid.high))
    return values < least, values > most


def _x(
    device: Device, gradient: Array, saved: Saved, *, first: Operand = 0.0, last: Operand = 255.0
) -> Array:
    below, above = _outside(device, saved, first, last)
    return device.select(~(below | above), gradient)


def _limit(argument: int) -> Any:
    """The rule of the lower limit, or of the upper one."""

    def vjp(
        device: Device, gradient: Array, saved: Saved, *, first: Operand = 0.0,
        last: Operand = 255.0,
    ) -> Array:
        where, limit = _outside(device, saved, first, last)[argument - 1], saved[argument]
        return sum_to(device, device.select(where, gradient), limit.shape, limit.format)

    return vjp


#: x on the grid from `low` to `high`, whose numbers are `first` to `last`; limits broadcast to x.
fake_quantize = Primitive(
    "fake_quantize", _fake_quantize, (_x, _limit(1), _limit(2)),
    cost=steps(maximum=2, subtract=2, multiply=2, add=1),
    rounding="each operation: the limits' on a grid with 0, x - low, 1 / scale, their product, "
             "- zero, + ½, the product with scale",
    gradient="that of the limits; the gradient or 0; its sums over what is outside in binary32 "
             "spread over parts, once at the end",
    source="tensorflow 2.21, core/kernels/fake_quant_ops_functor.h",
)
