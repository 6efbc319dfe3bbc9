"""Operations of a Context that are more than one rounding of one kernel.

Each is exact first; a result that needs no rounding raises what reading its operands raises.

Source    IEEE 754-2019 §5, §9.2 and §9.6; docs/semantics.md §3.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from fpsim.array import Array
from fpsim.core import Core, Operand, Out
from fpsim.elementwise import compare, elementary, integers, order, powers
from fpsim.elementwise.apply import apply, as_read, broadcast
from fpsim.elementwise.order import is_total_order
from fpsim.elementwise.remainder import remainder as exact_remainder
from fpsim.elementwise.unscale import quotient_operands
from fpsim.records.flags import Flags
from fpsim.records.rounding import RTN, RTP, RTZ, Rounding
from fpsim.records.settings import Settings
from fpsim.records.types import Axis, Carrier, ElementFlags
from fpsim.state.draws import NO_DRAW, Draw, draw
from fpsim.state.processor import usual_arithmetic
from fpsim.state.publish import broadcast_operands, fold, publish

__all__ = [
    "copysign", "divide_by", "elementary_function", "extreme", "floored_remainder", "power",
    "remainder", "sign", "to_integers", "total_order", "whole", "with_sign",
]

#: Roundings to whole numbers, and what they are in binary64.
_WHOLE: dict[str, tuple[Rounding, np.ufunc]] = {
    "floor": (RTN, np.floor), "ceil": (RTP, np.ceil), "trunc": (RTZ, np.trunc),
}
#: Largest whole power: each costs a product.
_LARGEST_POWER = 4096


def divide_by(core: Core, x: Operand, divisor: float, out: Out = None) -> Array:
    """x / fl(divisor), rounded once: the divisor is a binary32 number, of any size.

    Flags     those of reading x and of the rounding.
    Raises    ValueError for a divisor that is not positive, finite and normal in binary32.

    >>> from fpsim import Context
    >>> half = Context("binary16")
    >>> float(divide_by(half.core, half.array(2.0), 2.0**17)) == 2.0**-16
    True
    """
    (carrier,) = core.carriers((x,))
    return core.rounded("divide", quotient_operands(carrier, divisor, core.settings), out)


def whole(core: Core, name: str, x: Operand, out: Out) -> Array:
    """floor, ceil or trunc: a rounding that the settings do not choose, so nothing is drawn."""
    (a,) = core.carriers((x,))
    rounding, native = _WHOLE[name]
    flags = np.zeros(a.shape, np.uint8)
    if core.settings.native:
        return core.exact(name, [a], np.asarray(native(a)), flags, out)
    settings = _rounded_by(core.settings, rounding)
    values, _ = apply("round_to_integral", (a,), settings, element_flags=flags)
    # An INEXACT that comes with OVERFLOW is that of the overflow.
    alone = (flags & np.uint8(Flags.OVERFLOW)) == 0
    flags[alone] &= np.uint8(~int(Flags.INEXACT) & 0xFF)
    return core.exact(name, [a], values, flags, out)


@lru_cache(maxsize=64)
def _rounded_by(settings: Settings, rounding: Rounding) -> Settings:
    return settings.replace(rounding=rounding)


def power(core: Core, x: Operand, n: Operand, out: Out) -> Array:
    """x to a whole power: products from the left, each an operation, and a division for n < 0.

    To an Array of powers: one operation, correctly rounded.
    """
    if isinstance(n, Array):
        if core.settings.native:
            raise TypeError(
                "power with an Array of exponents is not offered in binary64, the native "
                "reference; use a narrower format, or a whole number"
            )
        return core.rounded("pow", core.carriers((x, n)), out, powers.evaluate)
    if isinstance(n, float) and n == 0.5:
        return core.rounded("sqrt", core.carriers((x,)), out)
    n = _whole_power(n)
    (a,) = core.carriers((x,))
    if n in (0, 1):
        values = a.copy() if n else np.broadcast_to(core.constant(1), a.shape).copy()
        return core.exact("power", [a], values, np.zeros(a.shape, np.uint8), out)
    base = result = core.wrapped(a)
    for i in range(abs(n) - 1):
        last = n > 0 and i == n - 2
        carriers = [result.carrier, base.carrier]
        result = core.rounded("multiply", carriers, out if last else None)
    return result if n > 0 else core.rounded("divide", core.carriers((1, result)), out)


def _whole_power(n: object) -> int:
    number = isinstance(n, (int, float, np.integer)) and not isinstance(n, bool)
    if not number or n != n // 1:  # type: ignore[operator]
        raise TypeError(
            f"n={n!r} is not a whole number; ** and power take whole numbers and 0.5"
        )
    exponent = int(n)
    if abs(exponent) > _LARGEST_POWER:
        raise ValueError(f"n={n} is beyond {_LARGEST_POWER} products; take a smaller power")
    return int(exponent)


def remainder(core: Core, name: str, x: Operand, y: Operand, out: Out) -> Array:
    """ieee_remainder or fmod, both exact."""
    a, b = core.carriers((x, y))
    values, flags = exact_remainder(a, b, core.settings, nearest=name == "ieee_remainder")
    return core.exact(name, [a, b], values, flags, out)


def floored_remainder(core: Core, x: Operand, y: Operand, out: Out) -> Array:
    """x - floor(x / y) y, rounded once."""
    return core.rounded("remainder", core.carriers((x, y)), out, _floored)


@usual_arithmetic
def _floored(
    name: str, operands: Sequence[Carrier], settings: Settings, *, out: Carrier | None = None,
    element_flags: ElementFlags | None = None, bits: Draw = NO_DRAW,
) -> tuple[Carrier, int]:
    """What fmod leaves, and the divisor added where their signs differ; the arguments of `apply`.

    A zero has the sign of the divisor, as in Python and numpy.
    """
    x, y = broadcast(*operands)
    exactly, flushing = _with_subnormals(settings)
    a, b = (as_read(v, settings) for v in (x, y))
    rest, raised = exact_remainder(a, b, exactly, nearest=False)
    signed = settings.format.has_negative_zero
    rest = np.where(rest == 0, np.copysign(rest, b) if signed else abs(rest), rest)
    away = (rest != 0) & ~np.isnan(rest) & (np.signbit(rest) != np.signbit(b))
    # A zero of the sign of the remainder changes nothing, in no mode.
    addend = np.where(away, b, np.copysign(b.dtype.type(0), rest) if signed else b.dtype.type(0))
    values, flags = apply(
        "add", [rest, addend], flushing, out=out, element_flags=element_flags, bits=bits
    )
    if element_flags is not None:
        element_flags |= raised
    return values, flags | fold(raised)


@lru_cache(maxsize=64)
def _with_subnormals(settings: Settings) -> tuple[Settings, Settings]:
    """Settings of operands that are read already: of what is exact, and of its rounding."""
    keeping = settings.replace(subnormals="keep")
    if settings.subnormals == "flush_both":
        return keeping, settings.replace(subnormals="flush_results")
    return keeping, settings


def with_sign(core: Core, name: str, x: Operand, out: Out) -> Array:
    """negative or absolute: the sign bit alone changes."""
    (a,) = core.carriers((x,))
    return core.signed(name, a, out)


def copysign(core: Core, x: Operand, y: Operand, out: Out) -> Array:
    """x with the sign bit of y."""
    a, b = broadcast(*core.carriers((x, y)))
    values = np.asarray(np.copysign(a, b))
    if not core.settings.format.has_negative_zero:
        values = np.where((a == 0) | np.isnan(a), a, values)
    return core.exact("copysign", [a, b], values, np.zeros(values.shape, np.uint8), out)


def sign(core: Core, x: Operand, out: Out) -> Array:
    """1, -1, +0 for a zero of either sign, and x for a NaN."""
    (a,), one = core.carriers((x,)), core.constant(1)
    a = as_read(a, core.settings)
    values = np.where(np.isnan(a), a, np.where(a == 0, 0, np.copysign(one, a))).astype(a.dtype)
    return core.exact("sign", [a], values, np.zeros(a.shape, np.uint8), out)


def extreme(core: Core, name: str, x: Operand, y: Operand, out: Out) -> Array:
    """maximum, minimum, fmax or fmin of two operands."""
    a, b = core.carriers((x, y))
    values, flags = compare.extreme(name, a, b, core.settings)
    return core.exact(name, [a, b], values, flags, out)


def extreme_along(core: Core, name: str, x: Array, axis: Axis, keepdims: bool, out: Out) -> Array:
    """maximum, minimum, fmax or fmin over axes."""
    (carrier,) = core.carriers((x,))
    shape = order.reduced_shape(carrier.shape, axis, keepdims)
    rows = order.rows(carrier, axis)
    target = core.checked_target(out, shape)
    values, flags = order.extreme_along(name, rows, core.settings)
    values = publish(
        core, name, values.reshape(shape), fold(flags),
        flags.reshape(shape) if core.watched else None,
        lambda index: rows.reshape(*shape, -1)[index].tolist(), target,
    )
    return core.wrapped(values, out)


def place_along(core: Core, name: str, x: Array, axis: int | None, keepdims: bool) -> NDArray[Any]:
    """Index of the first element that is the maximum or minimum."""
    (carrier,) = core.carriers((x,))
    shape = order.reduced_shape(carrier.shape, axis, keepdims)
    rows = order.rows(carrier, axis)
    place, flags = order.place_along(name, rows, core.settings)
    return publish(
        core, name, place.reshape(shape), fold(flags),
        flags.reshape(shape) if core.watched else None,
        lambda index: rows.reshape(*shape, -1)[index].tolist(), in_format=False,
    )


def clip(core: Core, x: Operand, least: Operand | None, most: Operand | None, out: Out) -> Array:
    """minimum(maximum(x, least), most); None: no bound on that side."""
    (values,) = core.carriers((x,))
    flags, operands = np.zeros(values.shape, np.uint8), [values]
    for name, bound in (("maximum", least), ("minimum", most)):
        if bound is not None:
            (b,) = core.carriers((bound,))
            operands.append(b)
            values, raised = compare.extreme(name, values, b, core.settings)
            flags = flags | raised
    return core.exact("clip", operands, values.copy(), flags, out)


def total_order(core: Core, x: Operand, y: Operand, magnitudes: bool) -> NDArray[np.bool_]:
    """Where x stands before y, or is the same, in the order of all codes; raises nothing."""
    a, b = core.carriers((x, y), comparing=True)
    if magnitudes:
        a, b = (compare.with_sign("absolute", side, core.settings) for side in (a, b))
    return is_total_order(a, b, core.settings.format)


def to_integers(core: Core, x: Operand, dtype: DTypeLike) -> NDArray[Any]:
    """x as integers, rounded to whole numbers as the context rounds."""
    kind = integers.integer_type(dtype)
    a = as_read(core.carriers((x,))[0], core.settings)
    settings = core.settings.with_format(integers.whole_format(core.settings.format))
    bits = draw(core, a.shape, settings)
    rounded, _ = apply("round_to_integral", (a,), settings, track=False, bits=bits)
    result, flags = integers.to_integers(a, rounded, kind)
    publish(
        core, "to_integers", result, fold(flags), flags if core.watched else None,
        broadcast_operands([a], a.shape), advances=settings.rounding.stochastic, in_format=False,
    )
    return result


def elementary_function(core: Core, name: str, x: Operand, out: Out) -> Array:
    """A function of `fpsim.elementwise.elementary`, correctly rounded."""
    if core.settings.native:
        raise TypeError(
            f"{name} is not offered in binary64, the native reference; use a narrower format"
        )
    return core.rounded(name, core.carriers((x,)), out, elementary.evaluate)
