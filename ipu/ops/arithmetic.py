"""Sums, products, quotients and roots, element by element; a second argument may broadcast.

Every step is one operation of the device, rounded once in the operands' format. What flows to a
broadcast argument is summed in binary32 and rounded once (`rules.sum_to`).
"""

from __future__ import annotations

from typing import Any

from fpsim.array import Array
from ipu.machine.device import Device
from ipu.ops.primitive import Primitive
from ipu.ops.rules import Saved, check_broadcast, same, steps, sum_to

__all__ = ["add", "bias", "divide", "multiply", "scale", "sqrt", "square", "subtract"]


def _add(device: Device, x: Array, y: Array) -> tuple[Array, Saved]:
    if x.shape != y.shape:
        raise ValueError(f"add takes equal shapes, got {x.shape} and {y.shape}; bias broadcasts")
    return device.add(x, y), ()


def _bias(device: Device, x: Array, b: Array, *, in_place: bool = False) -> tuple[Array, Saved]:
    check_broadcast("bias", x, b)
    return device.add(x, b, out=x if in_place else None), (b.shape, b.format)


def _bias_b(device: Device, gradient: Array, saved: Saved, **_: Any) -> Array:
    return sum_to(device, gradient, *saved)


def _subtract(device: Device, x: Array, y: Array) -> tuple[Array, Saved]:
    check_broadcast("y", x, y)
    return device.subtract(x, y), (y.shape, y.format)


def _subtract_y(device: Device, gradient: Array, saved: Saved, **_: Any) -> Array:
    return device.negative(sum_to(device, gradient, *saved))


def _multiply(device: Device, x: Array, y: Array) -> tuple[Array, Saved]:
    check_broadcast("y", x, y)
    return device.multiply(x, y), (x, y)


def _multiply_x(device: Device, gradient: Array, saved: Saved, **_: Any) -> Array:
    return device.multiply(gradient, saved[1])


def _multiply_y(device: Device, gradient: Array, saved: Saved, **_: Any) -> Array:
    x, y = saved
    return sum_to(device, device.multiply(gradient, x), y.shape, y.format)


def _divide(device: Device, x: Array, y: Array) -> tuple[Array, Saved]:
    check_broadcast("y", x, y)
    quotient = device.divide(x, y)
    return quotient, (y, quotient)


def _divide_x(device: Device, gradient: Array, saved: Saved, **_: Any) -> Array:
    return device.divide(gradient, saved[0])


def _divide_y(device: Device, gradient: Array, saved: Saved, **_: Any) -> Array:
    """-(gradient · quotient) / y."""
    y, quotient = saved
    share = device.divide(device.multiply(gradient, quotient), y)
    return device.negative(sum_to(device, share, y.shape, y.format))


def _square(device: Device, x: Array) -> tuple[Array, Saved]:
    return device.multiply(x, x), (x,)


def _square_x(device: Device, gradient: Array, saved: Saved, **_: Any) -> Array:
    return device.multiply(gradient, device.multiply(saved[0], 2.0))


def _sqrt(device: Device, x: Array) -> tuple[Array, Saved]:
    root = device.sqrt(x)
    return root, (root,)


def _sqrt_x(device: Device, gradient: Array, saved: Saved, **_: Any) -> Array:
    return device.divide(gradient, device.multiply(saved[0], 2.0))


def _scale(device: Device, x: Array, *, factor: float) -> tuple[Array, Saved]:
    return device.multiply(x, factor), ()


def _scale_x(device: Device, gradient: Array, saved: Saved, *, factor: float) -> Array:
    return device.multiply(gradient, factor)


#: x + y of equal shapes.
add = Primitive("add", _add, (same, same), cost=steps(add=1))
#: x + b, b broadcast to x; option `in_place`: the sum takes the memory of x, which nobody reads any
#: more.
bias = Primitive(
    "bias", _bias, (same, _bias_b), cost=steps(add=1), passing=("in_place",)
)  # fmt: skip
#: x - y, y broadcast to x.
subtract = Primitive("subtract", _subtract, (same, _subtract_y), cost=steps(subtract=1))
#: x · y, y broadcast to x.
multiply = Primitive("multiply", _multiply, (_multiply_x, _multiply_y), cost=steps(multiply=1))
#: x / y, y broadcast to x.
divide = Primitive("divide", _divide, (_divide_x, _divide_y), cost=steps(divide=1))
#: x · x.
square = Primitive("square", _square, (_square_x,), cost=steps(multiply=1))
#: The square root.
sqrt = Primitive("sqrt", _sqrt, (_sqrt_x,), cost=steps(sqrt=1))
#: x times the constant `factor`.
scale = Primitive("scale", _scale, (_scale_x,), cost=steps(multiply=1))
