"""Powers x**y, correctly rounded into the format of the operands, in every mode.

A value is first rounded to odd at 53 digits; that decides every later rounding. It comes from the
platform's power of binary64, whose last digits are not trusted: where a place at which some
rounding changes its mind lies within sixteen of its last digits, products without an error or as
many decimal digits as it takes decide. So the bits are the same on every platform.

Rounding  once; a stochastic one with the digits that it asks for.
Flags     INVALID for a negative number to a power that is not whole, DIVBYZERO for a zero to a
          negative power, which has the value that x / 0 has in the context; the rest from the
          rounding. x**0 and 1**y are 1, for a NaN too, whose reading may raise INVALID.
Source    IEEE 754-2019 §9.2 (pow); Dekker 1971 (exact products); Ziv, ACM TOMS 17 (1991).
"""

from __future__ import annotations

from collections.abc import Sequence
from decimal import MAX_EMAX, MIN_EMIN, Context, Decimal

import numpy as np
from numpy.typing import NDArray

from fpsim.elementwise.apply import apply, as_read
from fpsim.elementwise.compare import is_signalling
from fpsim.records.flags import Flags
from fpsim.records.rounding import RNE
from fpsim.records.settings import Settings
from fpsim.records.types import Carrier, ElementFlags
from fpsim.state.draws import NO_DRAW, Draw
from fpsim.state.processor import usual_arithmetic
from fpsim.state.publish import fold

__all__ = ["evaluate"]

Wide = NDArray[np.float64]
Truths = NDArray[np.bool_]

#: Last digits of the platform's power that are not trusted.
_DOUBTED = 16
#: Digits that decide where binary64 does not: a value that agrees in all of them is that number.
_DIGITS = 120
_LARGEST, _LEAST = np.finfo(np.float64).max, 2.0**-1074


@usual_arithmetic
def evaluate(
    name: str,
    operands: Sequence[Carrier],
    settings: Settings,
    *,
    out: Carrier | None = None,
    element_flags: ElementFlags | None = None,
    bits: Draw = NO_DRAW,
) -> tuple[Carrier, int]:
    """x**y of two operands: values and flags, with the arguments of `apply`.

    >>> from fpsim.records.formats import BINARY16
    >>> evaluate("pow", [np.float32([3.0, 300.0]), np.float32(4.0)], Settings(BINARY16))
    (array([81., inf], dtype=float32), 5)
    """
    reading = settings.replace(infinite_input="keep") if settings.format.has_infinity else settings
    x, y = np.broadcast_arrays(*(as_read(operand, reading) for operand in operands))
    wide = _wide(x, y, reading)
    values, flags = apply(
        "convert", [wide], reading, out=out, element_flags=element_flags, bits=bits
    )
    poles = (x == 0) & (y < 0)
    if poles.any():
        values[poles] = _poles(x[poles], y[poles], reading)
    own_flags = _own_flags(x, y, poles, reading)
    if own_flags.any():
        flags |= fold(own_flags)
        if element_flags is not None:
            element_flags |= own_flags
    return values, flags


def _own_flags(x: Carrier, y: Carrier, poles: Truths, settings: Settings) -> ElementFlags:
    """Flags that no rounding raises."""
    invalid = is_signalling(x) | is_signalling(y)
    if settings.quiet_nan_raises:
        invalid |= np.isnan(x) | np.isnan(y)
    with np.errstate(invalid="ignore"):
        invalid |= (x < 0) & np.isfinite(x) & np.isfinite(y) & (y != np.floor(y))
    return invalid * np.uint8(Flags.INVALID) | poles * np.uint8(Flags.DIVBYZERO)


def _poles(x: Carrier, y: Carrier, settings: Settings) -> Carrier:
    """What 1 / 0 is; an odd power keeps the sign of the zero."""
    with np.errstate(invalid="ignore"):
        zeros = np.where(np.abs(np.fmod(y, 2)) == 1, x, np.abs(x)).astype(x.dtype)
    plain = settings.replace(rounding=RNE, subnormals="keep")
    values, _ = apply("divide", [np.ones_like(zeros), zeros], plain)
    return values


@np.errstate(all="ignore")
def _wide(base: Carrier, exponent: Carrier, settings: Settings) -> Wide:
    """Values of which every rounding these settings know is that of base**exponent."""
    if settings.nan == "x86":
        raise NotImplementedError("pow has no rule for nan='x86'; use nan='canonical'")
    x: Wide = base.astype(np.float64)
    y: Wide = exponent.astype(np.float64)
    values: Wide = np.power(x, y)
    edge = (x == 0) | np.isinf(x)  # numpy may take a root, which knows -0 and no -inf
    if edge.any():
        odd = np.abs(np.fmod(y, 2)) == 1
        values = np.where(edge, np.copysign(np.power(np.abs(x), y), np.where(odd, x, 1.0)), values)
    ordinary = np.isfinite(x) & np.isfinite(y) & (x != 0) & (y != 0) & (x != 1)
    # A power beyond binary64 is beyond every narrower format: the rounding says so.
    values = np.where(ordinary & np.isinf(values), np.copysign(_LARGEST, values), values)
    values = np.where(ordinary & (values == 0), np.copysign(_LEAST, values), values)
    ordinary &= ~np.isnan(values) & (np.abs(values) < _LARGEST) & (np.abs(values) > 2.0**-1000)
    whole = _exact_products(x, y, ordinary, values)
    doubted = np.flatnonzero(ordinary & ~whole & _is_near_a_place(values, settings))
    flat_x, flat_y, flat = x.reshape(-1), y.reshape(-1), values.reshape(-1)
    for index in doubted:
        flat[index] = _to_odd(float(flat_x[index]), float(flat_y[index]), float(flat[index]))
    return flat.reshape(values.shape)


def _is_near_a_place(values: Wide, settings: Settings) -> Truths:
    """Where a number or a midpoint of the format, or of its residuals, lies within the doubt."""
    step = 1 << (53 - (settings.format.precision + 1 + settings.random_most))
    bits = values.view(np.int64)
    near: Truths = np.abs(bits - ((bits + step // 2) & -step)) <= _DOUBTED
    return near


def _exact_products(x: Wide, y: Wide, ordinary: Truths, values: Wide) -> Truths:
    """First to fourth powers, rounded to odd into `values`; where there are such.

    Operands have at most 26 digits, so a square is exact and one product of two parts is left.
    """
    done: Truths = ordinary & (y == 1)  # np.power knows that they are x
    for power in (2, 3, 4):
        selected = ordinary & (y == power)
        if not selected.any():
            continue
        base = x[selected]
        square = base * base
        other = 1.0 if power == 2 else base if power == 3 else square
        high = square * other
        low = _error_of_product(square, np.broadcast_to(other, square.shape), high)
        values[selected] = _rounded_to_odd(high, low)
        done |= selected
    return done


def _error_of_product(a: Wide, b: Wide, product: Wide) -> Wide:
    """a · b - fl(a · b), exactly (Dekker)."""
    (a_high, a_low), (b_high, b_low) = _halves(a), _halves(b)
    error: Wide = ((a_high * b_high - product) + a_high * b_low + a_low * b_high) + a_low * b_low
    return error


def _halves(a: Wide) -> tuple[Wide, Wide]:
    split = a * 134217729.0
    high = split - (split - a)
    return high, a - high


def _rounded_to_odd(nearest: Wide, rest: Wide) -> Wide:
    """nearest + rest: toward zero, then the last digit set where inexact."""
    inexact = rest != 0
    beyond = inexact & (np.signbit(rest) != np.signbit(nearest))
    odd: Wide = ((nearest.view(np.int64) - beyond) | inexact).view(np.float64)
    return odd


def _to_odd(x: float, y: float, near: float) -> float:
    """x**y rounded to odd, from decimals; `near` is within `_DOUBTED` of its last digits."""
    context = Context(prec=_DIGITS, Emax=MAX_EMAX, Emin=MIN_EMIN, traps=[])
    size = context.power(Decimal(abs(x)), Decimal(y))
    ulp = np.spacing(abs(near))
    below = abs(near) - _DOUBTED * ulp
    # The largest binary64 number that is not beyond the value.
    while Decimal(below + ulp) <= size * (1 + Decimal(10) ** (10 - _DIGITS)):
        below += ulp
    gap = abs(size - Decimal(below))
    is_exact = gap <= size * Decimal(10) ** (10 - _DIGITS)
    bits = int(np.float64(below).view(np.int64)) | (not is_exact)
    return float(np.copysign(np.int64(bits).view(np.float64), near))
