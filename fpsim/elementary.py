"""Elementary functions, rounded once into the format of their argument.

Values are made in binary64 from + - * / and exact scalings alone, so they are the same on every
machine: no platform library is called. The last digit of the binary64 value is jammed to odd, as
no result but those listed is exact.

Error     The binary64 values are within 2**-51 of the function, relative; so results in formats of
          precision <= 24 are correctly rounded unless the function lies that close to a rounding
          boundary (for binary32 one argument in about 2**26).
Source    Tang, ACM TOMS 15 (1989) and 16 (1990): table of 2**(j/32); atanh series.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fpsim.arithmetic import Carrier
from fpsim.array import Array
from fpsim.flags import Flags

__all__ = ["exp", "log"]

Wide = NDArray[np.float64]

#: ln 2 to 160 bits, from its series sum 1/(k 2**k).
_LN2 = sum((Fraction(1, k << k) for k in range(1, 161)), Fraction(0))


def _power_of_two(j: int) -> float:
    """2**(j/32), correctly rounded, by integer bisection of the 32nd power."""
    low, high = 1 << 60, 1 << 61
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if middle**32 <= 1 << (60 * 32 + j) else (low, middle)
    return float(Fraction(low, 1 << 60))


_TABLE = np.array([_power_of_two(j) for j in range(32)])
_STEPS = float(32 / _LN2)
#: ln 2 / 32 in two parts: multiples of the first up to 2**16 are exact.
_STEP_HIGH = float(Fraction(int(_LN2 * (1 << 32)), 1 << 37))
_STEP_LOW = float(_LN2 / 32 - Fraction(_STEP_HIGH))
_LN2_HIGH = _STEP_HIGH * 32
_LN2_LOW = _STEP_LOW * 32
_EXP = [1.0 / f for f in (720, 120, 24, 6, 2)]
_ATANH = [2.0 / k for k in range(23, 2, -2)]


def exp(x: Array, out: Array | Carrier | None = None) -> Array:
    """e**x, rounded once; exp(0) = 1 is exact.

    Flags     from the rounding: OVERFLOW above the range, UNDERFLOW below it.

    >>> import fpsim as fp
    >>> exp(fp.Context(fp.BINARY32).array([0.0, 1.0]))
    Array([1.        , 2.71828175], binary32)
    """
    wide = x.values.astype(np.float64)
    values = _jammed(_exp(wide), np.isfinite(wide) & (wide != 0))
    return x.context.rounded("exp", [x.values], out, wide=values)


def log(x: Array, out: Array | Carrier | None = None) -> Array:
    """The natural logarithm, rounded once; log(1) = 0 is exact.

    Flags     DIVBYZERO for 0 (the result is -infinity), INVALID for x < 0.

    >>> import fpsim as fp
    >>> log(fp.Context(fp.BINARY32).array([1.0, 10.0]))
    Array([0.        , 2.30258512], binary32)
    """
    wide = x.values.astype(np.float64)
    found = (wide == 0) * np.uint8(Flags.DIVBYZERO) + (wide < 0) * np.uint8(Flags.INVALID)
    values = _jammed(_log(wide), np.isfinite(wide) & (wide > 0) & (wide != 1))
    return x.context.rounded("log", [x.values], out, wide=values, found=found)


def _exp(x: Wide) -> Wide:
    """exp in binary64; beyond the range of every narrower format it stops growing."""
    x = np.clip(x, -700.0, 700.0, where=np.isfinite(x), out=x.copy())
    finite = np.where(np.isfinite(x), x, 0.0)
    n = np.rint(finite * _STEPS)
    r = (finite - n * _STEP_HIGH) - n * _STEP_LOW
    tail = _horner(_EXP, r)
    steps = n.astype(np.int64)
    base = _TABLE[steps & 31]
    values: Wide = np.ldexp(base + base * (r + r * r * tail), (steps >> 5).astype(np.int32))
    return np.where(np.isfinite(x), values, np.where(x < 0, 0.0, x))


def _log(x: Wide) -> Wide:
    positive = np.isfinite(x) & (x > 0)
    m, e = np.frexp(np.where(positive, x, 1.0))
    low = m < 0.7071067811865476
    m, e = np.where(low, 2 * m, m), e - low
    f = (m - 1) / (m + 1)
    square = f * f
    values: Wide = (f * square * _horner(_ATANH, square) + e * _LN2_LOW + 2 * f) + e * _LN2_HIGH
    beyond = np.where(x == 0, -np.inf, np.where(x < 0, np.nan, x))
    return np.where(positive, values, beyond)


def _horner(coefficients: list[float], x: Wide) -> Wide:
    value: Any = coefficients[0]
    for c in coefficients[1:]:
        value = value * x + c
    result: Wide = value
    return result


def _jammed(values: Wide, inexact: NDArray[np.bool_]) -> Wide:
    """The last digit set where the value is not exact: never a tie, never mistaken for exact."""
    return (values.view(np.int64) | inexact).view(np.float64)
