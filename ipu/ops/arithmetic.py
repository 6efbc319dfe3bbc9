"""Sums, products, quotients and roots, element by element; a second argument may broadcast.

Every step is one operation of the device, rounded once in the operands' format. What flows to a
broadcast argument is summed in binary32 and rounded once (`rules.sum_to`).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from fpsim.array import Array
from fpsim.core import Operand
from fpsim.elementwise.apply import as_read
from ipu.machine.device import Device
from ipu.ops.curves import selected
from ipu.ops.functions import log1p
from ipu.ops.primitive import Primitive, Saved, Vjp
from ipu.ops.rules import check_broadcast, free, same, steps, sum_to

__all__ = [
    "absolute", "add", "addcdiv", "addcmul", "bias", "ceil", "divide", "divide_no_nan", "floor",
    "floor_divide", "fmod", "lerp", "multiply", "multiply_no_nan", "negative", "reciprocal",
    "rint", "scale", "scaled_difference", "scaled_sum", "sign", "sqrt", "square",
    "squared_difference", "subtract", "trunc_divide", "xdivy", "xlog1py", "xlogy",
]


def _equal_shapes(x: Array, y: Array) -> None:
    if x.shape != y.shape:
        raise ValueError(f"add takes equal shapes, got {x.shape} and {y.shape}; bias broadcasts")


def _y_broadcasts(x: Array, y: Array) -> None:
    check_broadcast("y", x, y)


def _add(device: Device, x: Array, y: Array) -> tuple[Array, Saved]:
    return device.add(x, y), ()


def _bias(device: Device, x: Array, b: Array, *, in_place: bool = False) -> tuple[Array, Saved]:
    check_broadcast("bias", x, b)
    return device.add(x, b, out=x if in_place else None), (b.shape, b.format)


def _bias_b(device: Device, gradient: Array, saved: Saved, **_: Any) -> Array:
    return sum_to(device, gradient, *saved)


def _subtract(device: Device, x: Array, y: Array) -> tuple[Array, Saved]:
    return device.subtract(x, y), (y.shape, y.format)


def _subtract_y(device: Device, gradient: Array, saved: Saved, **_: Any) -> Array:
    return device.negative(sum_to(device, gradient, *saved))


def _multiply(device: Device, x: Array, y: Array) -> tuple[Array, Saved]:
    return device.multiply(x, y), (x, y)


def _multiply_x(device: Device, gradient: Array, saved: Saved, **_: Any) -> Array:
    return device.multiply(gradient, saved[1])


def _multiply_y(device: Device, gradient: Array, saved: Saved, **_: Any) -> Array:
    x, y = saved
    return sum_to(device, device.multiply(gradient, x), y.shape, y.format)


def _divide(device: Device, x: Array, y: Array) -> tuple[Array, Saved]:
    quotient = device.divide(x, y)
    return quotient, (y, quotient)


def _divide_x(device: Device, gradient: Array, saved: Saved, **_: Any) -> Array:
    return device.divide(gradient, saved[0])


def _divide_y(device: Device, gradient: Array, saved: Saved, **_: Any) -> Array:
    """-(gradient · quotient) / y."""
    y, quotient = saved
    share = device.divide(device.multiply(gradient, quotient), y)
    return device.negative(sum_to(device, share, y.shape, y.format))


def _reciprocal(device: Device, x: Array) -> tuple[Array, Saved]:
    y = device.divide(1.0, x)
    return y, (y,)


def _reciprocal_x(device: Device, gradient: Array, saved: Saved, **_: Any) -> Array:
    """-((y · y) · gradient)."""
    (y,) = saved
    return device.negative(device.multiply(device.multiply(y, y), gradient))


def _negative(device: Device, x: Array) -> tuple[Array, Saved]:
    return device.negative(x), ()


def _negative_x(device: Device, gradient: Array, saved: Saved, **_: Any) -> Array:
    return device.negative(gradient)


def _absolute(device: Device, x: Array) -> tuple[Array, Saved]:
    return x.like(np.abs(x.carrier)), (x,)


def _absolute_x(device: Device, gradient: Array, saved: Saved, **_: Any) -> Array:
    """The gradient with the sign of x; none at 0."""
    (x,) = saved
    signed = selected(x.carrier < 0, device.negative(gradient), gradient)
    return device.select(x.carrier != 0, signed)


def _squared_difference(device: Device, x: Array, y: Array) -> tuple[Array, Saved]:
    gap = device.subtract(x, y)
    return device.multiply(gap, gap), (gap, x.shape, y.shape)


def _squared_difference_x(device: Device, gradient: Array, saved: Saved, **_: Any) -> Array:
    gap, shape, _y_shape = saved
    return sum_to(device, _square_x(device, gradient, (gap,)), shape, gap.format)


def _squared_difference_y(device: Device, gradient: Array, saved: Saved, **_: Any) -> Array:
    gap, _x_shape, shape = saved
    share = device.negative(_square_x(device, gradient, (gap,)))
    return sum_to(device, share, shape, gap.format)


def _scaled_sum(
    device: Device, x: Array, y: Array, *, factor: Operand = 1.0
) -> tuple[Array, Saved]:
    return device.add(x, _scaled(device, y, factor)), (x.shape, y.shape, x.format)


def _scaled_difference(
    device: Device, x: Array, y: Array, *, factor: Operand = 1.0
) -> tuple[Array, Saved]:
    return device.subtract(x, _scaled(device, y, factor)), (x.shape, y.shape, x.format)


def _scaled(device: Device, y: Array, factor: Operand) -> Array:
    return y if _is_one(factor) else device.multiply(y, factor)


def _is_one(factor: Operand) -> bool:
    return not isinstance(factor, Array) and factor == 1


def _scaled_x(device: Device, gradient: Array, saved: Saved, **_: Any) -> Array:
    return sum_to(device, gradient, saved[0], saved[2])


def _scaled_y(device: Device, gradient: Array, saved: Saved, *, factor: Operand = 1.0) -> Array:
    return sum_to(device, _scaled(device, gradient, factor), saved[1], saved[2])


def _scaled_minus_y(
    device: Device, gradient: Array, saved: Saved, *, factor: Operand = 1.0
) -> Array:
    return device.negative(_scaled_y(device, gradient, saved, factor=factor))


def _addcmul(
    device: Device, x: Array, y: Array, z: Array, *, factor: Operand = 1.0
) -> tuple[Array, Saved]:
    term = _scaled(device, device.multiply(y, z), factor)
    return device.add(x, term), (x.shape, y, z)


def _addcmul_y(device: Device, gradient: Array, saved: Saved, *, factor: Operand = 1.0) -> Array:
    _shape, y, z = saved
    share = _scaled(device, device.multiply(gradient, z), factor)
    return sum_to(device, share, y.shape, y.format)


def _addcmul_z(device: Device, gradient: Array, saved: Saved, *, factor: Operand = 1.0) -> Array:
    shape, y, z = saved
    return _addcmul_y(device, gradient, (shape, z, y), factor=factor)


def _addcdiv(
    device: Device, x: Array, y: Array, z: Array, *, factor: Operand = 1.0
) -> tuple[Array, Saved]:
    quotient = device.divide(y, z)
    return device.add(x, _scaled(device, quotient, factor)), (x.shape, y, z, quotient)


def _addcdiv_y(device: Device, gradient: Array, saved: Saved, *, factor: Operand = 1.0) -> Array:
    _shape, y, z, _quotient = saved
    share = _scaled(device, device.divide(gradient, z), factor)
    return sum_to(device, share, y.shape, y.format)


def _addcdiv_z(device: Device, gradient: Array, saved: Saved, *, factor: Operand = 1.0) -> Array:
    _shape, _y, z, quotient = saved
    share = _scaled(device, device.divide(device.multiply(gradient, quotient), z), factor)
    return device.negative(sum_to(device, share, z.shape, z.format))


def _first_of_three(device: Device, gradient: Array, saved: Saved, **_: Any) -> Array:
    return sum_to(device, gradient, saved[0], gradient.format)


def _lerp(device: Device, x: Array, y: Array, weight: Operand) -> tuple[Array, Saved]:
    gap = device.subtract(y, x)
    return device.add(x, device.multiply(gap, weight)), (x.shape, y.shape, gap, weight)


def _lerp_x(device: Device, gradient: Array, saved: Saved, **_: Any) -> Array:
    share = device.subtract(gradient, device.multiply(gradient, saved[3]))
    return sum_to(device, share, saved[0], gradient.format)


def _lerp_y(device: Device, gradient: Array, saved: Saved, **_: Any) -> Array:
    return sum_to(device, device.multiply(gradient, saved[3]), saved[1], gradient.format)


def _lerp_weight(device: Device, gradient: Array, saved: Saved, **_: Any) -> Array:
    _x, _y, gap, weight = saved
    return sum_to(device, device.multiply(gradient, gap), weight.shape, weight.format)


def _selection(function: Any) -> Any:
    """A forward rule that rounds to whole numbers, or takes the sign: nothing is rounded."""

    def forward(device: Device, x: Array) -> tuple[Array, Saved]:
        with np.errstate(invalid="ignore"):  # signalling NaNs
            return x.like(function(x.carrier)), ()

    return forward


def _whole_quotient(function: Any) -> Any:
    """A forward rule that divides, and makes the quotient a whole number."""

    def forward(device: Device, x: Array, y: Array) -> tuple[Array, Saved]:
        quotient = device.divide(x, y)
        return quotient.like(function(quotient.carrier)), ()

    return forward


def _fmod(device: Device, x: Array, y: Array) -> tuple[Array, Saved]:
    return device.context(x.format).fmod(x, y), ()


def _used(device: Device, y: Array, shape: tuple[int, ...]) -> Any:
    """Where y is not zero as the machine reads it."""
    return np.broadcast_to(as_read(y.carrier, device.context(y.format).core.settings) != 0, shape)


def _no_nan(verb: str) -> Any:
    """A forward rule that gives 0 where y is 0, without computing there."""

    def forward(device: Device, x: Array, y: Array) -> tuple[Array, Saved]:
        combine = getattr(device, verb)
        shape = np.broadcast_shapes(x.shape, y.shape)
        used = _used(device, y, shape)
        if used.all():
            return combine(x, y), ()
        one = y.carrier.dtype.type(1)
        safe = y.like(np.where(_used(device, y, y.shape), y.carrier, one))
        return device.select(used, combine(x, safe)), ()

    return forward


def _weighted(verb: str, function: Any) -> Any:
    """A forward rule of x and a function of y that gives 0 where x is 0.

    passes_nan    not where y is a NaN.
    """

    def forward(
        device: Device, x: Array, y: Array, *, passes_nan: bool = False
    ) -> tuple[Array, Saved]:
        used = _used(device, x, np.broadcast_shapes(x.shape, y.shape))
        if passes_nan:
            used = used | np.isnan(y.carrier)
        one = y.carrier.dtype.type(1)
        safe = y.like(np.where(used, np.broadcast_to(y.carrier, used.shape), one))
        return device.select(used, getattr(device, verb)(x, function(device, safe))), ()

    return forward


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


_ONCE, _NONE = "once", "none"


def _row(
    name: str, forward: Any, *vjps: Vjp | None, cost: Any, rounding: str = _ONCE,
    gradient: str = "each operation", **more: Any,
) -> Primitive:
    return Primitive(
        name, forward, vjps, cost=cost, rounding=rounding, gradient=gradient,
        source="IEEE 754-2019 §5.4.1; the order of steps is this table's", **more,
    )


#: x + y, of equal shapes on a tape.
add = _row(
    "add", _add, same, same, verb="add", cost=steps(add=1), gradient=_NONE, check=_equal_shapes
)
#: x + b, b broadcast to x; option `in_place`: the sum takes the memory of x, which nobody reads any
#: more.
bias = _row("bias", _bias, same, _bias_b, cost=steps(add=1), passing=("in_place",),
            gradient="the sum, once")
#: x - y, y broadcast to x.
subtract = _row("subtract", _subtract, same, _subtract_y, verb="subtract", cost=steps(subtract=1),
                check=_y_broadcasts, gradient="the sum, once")
#: x · y, y broadcast to x.
multiply = _row("multiply", _multiply, _multiply_x, _multiply_y, verb="multiply",
                cost=steps(multiply=1), check=_y_broadcasts)
#: x / y, y broadcast to x.
divide = _row(
    "divide",
    _divide,
    _divide_x,
    _divide_y,
    verb="divide",
    cost=steps(divide=1),
    check=_y_broadcasts,
)
#: x + factor · y, which broadcast.
scaled_sum = _row("scaled_sum", _scaled_sum, _scaled_x, _scaled_y, cost=steps(multiply=1, add=1),
                  rounding="factor times y if factor is not 1, then the sum")
#: x - factor · y, which broadcast.
scaled_difference = _row(
    "scaled_difference", _scaled_difference, _scaled_x, _scaled_minus_y,
    cost=steps(multiply=1, subtract=1),
    rounding="factor times y if factor is not 1, then the difference",
)
#: x + factor · (y · z) and x + factor · (y / z), which broadcast.
addcmul = _row("addcmul", _addcmul, _first_of_three, _addcmul_y, _addcmul_z,
               cost=steps(multiply=2, add=1),
               rounding="the product, times factor if it is not 1, the sum")
addcdiv = _row("addcdiv", _addcdiv, _first_of_three, _addcdiv_y, _addcdiv_z,
               cost=steps(divide=1, multiply=1, add=1),
               rounding="the quotient, times factor if it is not 1, the sum")
#: x + (y - x) · weight, which broadcast.
lerp = _row("lerp", _lerp, _lerp_x, _lerp_y, _lerp_weight,
            cost=steps(subtract=1, multiply=1, add=1),
            rounding="the difference, the product, the sum")
#: x · x.
square = _row("square", _square, _square_x, cost=steps(multiply=1))
#: (x - y)², which broadcast.
squared_difference = _row(
    "squared_difference", _squared_difference, _squared_difference_x, _squared_difference_y,
    cost=steps(subtract=1, multiply=1), rounding="the difference, then the square",
)
#: The square root.
sqrt = _row("sqrt", _sqrt, _sqrt_x, verb="sqrt", cost=steps(sqrt=1))
#: 1 / x.
reciprocal = _row("reciprocal", _reciprocal, _reciprocal_x, cost=steps(divide=1))
#: x times the constant `factor`.
scale = _row("scale", _scale, _scale_x, cost=steps(multiply=1))
#: -x.
negative = _row(
    "negative", _negative, _negative_x, verb="negative", cost=free, rounding=_NONE, gradient=_NONE
)
#: |x|.
absolute = _row("absolute", _absolute, _absolute_x, cost=free, rounding=_NONE, gradient=_NONE)
#: -1, 0 or 1; no gradient flows, as for the next ones.
sign = _row("sign", _selection(np.sign), None, cost=free, rounding=_NONE)
#: Whole numbers: below, above, the nearest (even one of two).
floor = _row("floor", _selection(np.floor), None, cost=free, rounding=_NONE)
ceil = _row("ceil", _selection(np.ceil), None, cost=free, rounding=_NONE)
rint = _row("rint", _selection(np.rint), None, cost=free, rounding=_NONE)
#: The whole number below x / y, and the one that is nearer to zero.
floor_divide = _row("floor_divide", _whole_quotient(np.floor), None, None, cost=steps(divide=1),
                    rounding="the quotient once, then down to an integer")
trunc_divide = _row("trunc_divide", _whole_quotient(np.trunc), None, None, cost=steps(divide=1),
                    rounding="the quotient once, then toward zero to an integer")
#: x - y trunc(x / y), with the sign of x: exact.
fmod = _row("fmod", _fmod, None, None, cost=steps(divide=1), rounding="none: it is exact")
#: x / y, x · y, and 0 where y is 0.
divide_no_nan = _row("divide_no_nan", _no_nan("divide"), None, None, cost=steps(divide=1),
                     rounding="once; 0 where y is 0")
multiply_no_nan = _row("multiply_no_nan", _no_nan("multiply"), None, None,
                       cost=steps(multiply=1), rounding="once; 0 where y is 0")
_OF_BOTH = "the function, then the product or quotient; 0 where x is 0"
#: x / y, x log(y), x log(1 + y), and 0 where x is 0; with `passes_nan` NaN where y is one, as torch
#: documents xlogy and xlog1py.
xdivy = _row("xdivy", _weighted("divide", lambda device, y: y), None, None,
             cost=steps(divide=1), rounding=_OF_BOTH)
xlogy = _row("xlogy", _weighted("multiply", lambda device, y: device.log(y)), None, None,
             cost=steps(log=1, multiply=1), rounding=_OF_BOTH)
xlog1py = _row("xlog1py", _weighted("multiply", log1p.value), None, None,
               cost=steps(log=1, multiply=1), rounding=_OF_BOTH)
