"""Elementary functions in binary64 as a sum of two numbers, with a bound of its error.

A value f(x) is enclosed by `high + low ± error`, where `low` holds what makes f(x) differ from a
simple number near it: 1 + x for exp of a small x, x - x**3/3 for tanh. So a small `error` decides
every rounding of such a value too. Where `error` is 0 the sum is the value itself, but for exp
beyond ±700 and sigmoid below -700, which no longer change: no narrower format reaches that far.

Only + - * / and exact scalings are used, so the numbers are the same on every machine: no platform
library is called. Arguments are values of precision <= 26.

Source    Tang, ACM TOMS 15 (1989) and 16 (1990): table of 2**(j/32); atanh series; Taylor series.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from fractions import Fraction
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fpsim.elementwise import hard_cases
from fpsim.elementwise.circular import circular
from fpsim.elementwise.error_free import two_product, two_sum

__all__ = ["FUNCTIONS", "Enclosure"]

Wide = NDArray[np.float64]


class Enclosure(NamedTuple):
    """|f - (high + low)| <= error."""

    high: Wide
    low: Wide
    error: Wide


#: ln 2 to 160 bits, from its series sum 1/(k 2**k).
_LN2 = sum((Fraction(1, k << k) for k in range(1, 161)), Fraction(0))


def _power_of_two(j: int) -> Fraction:
    """2**(j/32) to 120 bits, by integer bisection of the 32nd power."""
    low, high = 1 << 120, 1 << 121
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if middle**32 <= 1 << (120 * 32 + j) else (low, middle)
    return Fraction(low, 1 << 120)


def _pairs(exact: Sequence[Fraction]) -> tuple[Wide, Wide]:
    """Numbers as sums of two."""
    high = [float(f) for f in exact]
    low = [float(f - Fraction(h)) for f, h in zip(exact, high, strict=True)]
    return np.array(high), np.array(low)


_TABLE, _TABLE_LOW = _pairs([_power_of_two(j) for j in range(32)])
_STEPS = float(32 / _LN2)
#: ln 2 / 32 in two parts: multiples of the first up to 2**16 are exact.
_STEP_HIGH = float(Fraction(int(_LN2 * (1 << 32)), 1 << 37))
_STEP_LOW = float(_LN2 / 32 - Fraction(_STEP_HIGH))
_LN2_HIGH = _STEP_HIGH * 32
_LN2_LOW = _STEP_LOW * 32
_EXP = [1.0 / math.factorial(k) for k in range(7, 1, -1)]
_ATANH = [2.0 / k for k in range(23, 2, -2)]
#: Coefficients behind x and behind 1, of squares of numbers below a quarter.
_SINH = [1.0 / math.factorial(k) for k in range(15, 2, -2)]
_COSH = [1.0 / math.factorial(k) for k in range(14, 1, -2)]
_SERIES_LIMIT = 0.25
#: Below half a step of the table exp's series is about 0.
_EXP_DIRECT = 0.0108

_EXP_LIMIT = 700.0
#: Beyond, tanh is 1 less something below every digit kept: `low` tells the side.
_TANH_LIMIT = 40.0


def _horner(coefficients: Sequence[Any], x: Wide) -> Wide:
    result: Wide = coefficients[0] * x
    for c in coefficients[1:-1]:
        result += c
        result *= x
    result += coefficients[-1]
    return result


def _exp(x: Wide) -> Enclosure:
    """2**k T (1 + r + r**2/2 + …) with |r| <= ln 2 / 64.

    The reduction errs by 2**-53 |r| + 2**-72, the series' last term by less than its rounding.
    """
    inside = np.abs(x) < _EXP_LIMIT
    x = np.minimum(np.maximum(x, -_EXP_LIMIT), _EXP_LIMIT)
    n = np.rint(x * _STEPS)
    r = (x - n * _STEP_HIGH) - n * _STEP_LOW
    steps = n.astype(np.int32)
    row, power = steps & 31, steps >> 5
    base = _TABLE.take(row)
    rest = base * (r + r * r * _horner(_EXP, r)) + _TABLE_LOW.take(row)
    error = np.abs(r) * 2.0**-50 + (n != 0) * 2.0**-69
    return Enclosure(
        np.ldexp(base, power), np.ldexp(rest, power), np.ldexp(error, power + 1) * inside
    )


def _log(x: Wide) -> Enclosure:
    """e ln 2 + log m, log m = 2 f + 2/3 f**3 + …, f = (m - 1) / (m + 1) with its remainder."""
    m, e = np.frexp(x)
    low = m < 0.7071067811865476
    m, e = np.where(low, 2 * m, m), e - low
    above, below = m - 1, m + 1
    f = above / below
    # f in two halves of 26 digits: their products with m + 1, which has 27, are exact.
    split = f * 134217729.0
    coarse = split - (split - f)
    remainder = ((above - coarse * below) - (f - coarse) * below) / below
    square = f * f
    series = f * square * _horner(_ATANH, square)
    high, rest = two_sum(e * _LN2_HIGH, 2 * f)
    rest = rest + (series + 2 * remainder + e * _LN2_LOW)
    error = np.abs(series) * 2.0**-48 + np.abs(remainder) * 2.0**-50 + (e != 0) * 2.0**-58
    return Enclosure(high, rest, error)


def _expm1(x: Wide) -> Enclosure:
    """exp(x) - 1 with the table's number less 1 exact; near zero x and what the series adds."""
    powers = _exp(x)
    high, low = two_sum(-1.0, powers.high)
    direct = np.abs(x) < _EXP_DIRECT
    bend, low = x * x * _horner(_EXP, np.where(direct, x, 0.0)), low + powers.low
    return Enclosure(
        np.where(direct, x, high), np.where(direct, bend, low),
        np.where(direct, np.abs(bend) * 2.0**-49, powers.error + np.abs(low) * 2.0**-52),
    )


def _half_sum(x: Wide, sign: float) -> Enclosure:
    """(exp|x| + sign exp(-|x|)) / 2."""
    up, down = _exp(np.abs(x)), _exp(-np.abs(x))
    high, low = two_sum(up.high / 2, sign * down.high / 2)
    low = low + (up.low + sign * down.low) / 2
    return Enclosure(high, low, (up.error + down.error) / 2 + np.abs(low) * 2.0**-52)


def _of_series(x: Wide, simple: Wide, bend: Wide, far: Enclosure) -> Enclosure:
    """A simple number and the series' other terms below 1/4, the enclosure `far` elsewhere."""
    near = np.abs(x) < _SERIES_LIMIT
    return Enclosure(
        np.where(near, simple, far.high), np.where(near, bend, far.low),
        np.where(near, np.abs(bend) * 2.0**-49, far.error),
    )


def _sinh(x: Wide) -> Enclosure:
    """x + x**3/6 + …, then half a difference of powers."""
    size = np.abs(x)
    square = np.minimum(size, _SERIES_LIMIT) ** 2
    # What bends the smallest arguments is too small for binary64; only its sign matters.
    least = size < 2.0**-300
    bend = size * np.where(least, 2.0**-70, square * _horner(_SINH, square))
    of_size = _of_series(x, size, bend, _half_sum(x, -1.0))
    return _odd(x, of_size._replace(error=np.where(least, bend, of_size.error)))


def _cosh(x: Wide) -> Enclosure:
    """1 + x**2/2 + …, then half a sum of powers."""
    square = np.minimum(np.abs(x), _SERIES_LIMIT) ** 2
    return _of_series(x, np.ones_like(x), square * _horner(_COSH, square), _half_sum(x, 1.0))


def _log1p(x: Wide) -> Enclosure:
    """As the logarithm of the exact sum 1 + x: near zero f = x / (2 + x), with its remainder."""
    near = (x > -0.25) & (x < 0.4)
    whole, lost = two_sum(1.0, x)
    m, e = np.frexp(np.where(near, 1.0, whole))
    low = m < 0.7071067811865476
    m, e = np.where(low, 2 * m, m), e - low
    above = np.where(near, x, m - 1)
    below, rest = two_sum(np.where(near, 2.0, 1.0), np.where(near, x, m))
    f = above / below
    product, product_low = two_product(f, below)
    missing, lacking = (above - product) - product_low, f * rest
    remainder = (missing - lacking) / below
    square = f * f
    series = f * square * _horner(_ATANH, square)
    e = np.where(near, 0, e)
    high, rest = two_sum(e * _LN2_HIGH, 2 * f)
    rest = rest + (series + 2 * remainder + e * _LN2_LOW + np.where(near, 0.0, lost / whole))
    unsure = (np.abs(missing) + np.abs(lacking)) * 2.0**-50
    return Enclosure(high, rest, np.abs(series) * 2.0**-48 + unsure + ~near * 2.0**-58)


@lru_cache(maxsize=1)
def _tanh_series() -> list[float]:
    """Coefficients of x**25 … x**3: tanh' = 1 - tanh**2 gives each from those before."""
    coefficients = [Fraction(1)]
    for k in range(1, 13):
        square = sum((coefficients[i] * coefficients[k - 1 - i] for i in range(k)), Fraction(0))
        coefficients.append(-square / (2 * k + 1))
    return [float(c) for c in coefficients[:0:-1]]


def _tanh(x: Wide) -> Enclosure:
    """1 - 2 / (exp(2 x) + 1) for x > 0; its Taylor series below 1/4. An odd function."""
    size = np.abs(x)
    grown = _exp(2 * np.minimum(size, _TANH_LIMIT))
    drop = 2 / (grown.high + (grown.low + 1))
    small = np.where(size < 0.25, size, 0.0)
    square = small * small
    bend = small * square * _horner(_tanh_series(), square)
    near = size < 0.25
    high = np.where(near, size, 1.0)
    # What bends the smallest arguments is too small for binary64; only its sign matters.
    least = size < 2.0**-300
    low = np.where(near, np.where(least, size * -(2.0**-70), bend), -drop)
    error = np.abs(low) * np.where(least | (size > _TANH_LIMIT), 1.0, 2.0**-49)
    return _odd(x, Enclosure(high, low, error))


def _odd(x: Wide, of_size: Enclosure) -> Enclosure:
    """f(x) from f(|x|), f odd."""
    return Enclosure(np.copysign(of_size.high, x), of_size.low * np.sign(x), of_size.error)


def _sigmoid(x: Wide) -> Enclosure:
    """(1 + tanh(x/2)) / 2; for x < -1, where that cancels, e - e**2 / (1 + e) with e = exp(x)."""
    half = _tanh(x / 2)
    high, rest = two_sum(0.5, half.high / 2)
    e = _exp(np.minimum(x, 0.0))
    value = e.high + e.low
    low = x < -1
    return Enclosure(
        np.where(low, e.high, high),
        np.where(low, e.low - value * (value / (1 + value)), rest + half.low / 2),
        np.where(
            low, value * 2.0**-50 * (x > -_EXP_LIMIT), half.error / 2 + np.abs(rest) * 2.0**-52
        ),
    )


def _rsqrt(x: Wide) -> Enclosure:
    """1 / sqrt(x): exact for powers of four, else two roundings of the processor."""
    fraction, e = np.frexp(x)
    exact = (fraction == 0.5) & (e % 2 == 1)
    values = 1 / np.sqrt(x)
    return Enclosure(values, np.zeros_like(values), np.where(exact, 0.0, values * 2.0**-51))


#: erf is a Taylor polynomial around the nearest of these: j / 16, up to 6.
_ERF_STEP, _ERF_LIMIT, _ERF_DEGREE = 16, 6, 13


@lru_cache(maxsize=1)
def _erf_table() -> tuple[Wide, Wide, Wide]:
    """erf at each point as a sum of two, and the coefficients of its polynomial.

    f = erf satisfies f'' = -2 x f', which gives each coefficient from the two before it.
    """
    values, rows = [Fraction(0)], []
    for j in range(_ERF_STEP * _ERF_LIMIT + 1):
        point = Fraction(j, _ERF_STEP)
        if j:
            values.append(hard_cases.approximately("erf", float(point), 40))
        c = [Fraction(0), hard_cases.erf_slope(point, 40)]
        for k in range(2, _ERF_DEGREE + 1):
            c.append(-2 * (point * (k - 1) * c[k - 1] + (k - 2) * c[k - 2]) / (k * (k - 1)))
        rows.append([float(v) for v in c[:0:-1]])
    return (*_pairs(values), np.array(rows).T.copy())


def _erf(x: Wide) -> Enclosure:
    """erf(a + h) with |h| <= 1/32; beyond 6, 1 less something below every digit kept."""
    table, table_low, coefficients = _erf_table()
    size = np.minimum(np.abs(x), float(_ERF_LIMIT))
    j = np.rint(size * _ERF_STEP).astype(np.int64)
    h = size - j / _ERF_STEP
    change = h * _horner([row[j] for row in coefficients], h)
    beyond = np.abs(x) > _ERF_LIMIT
    high = np.where(beyond, 1.0, table[j])
    low = np.where(beyond, -(2.0**-56), change + table_low[j])
    error = np.abs(change) * 2.0**-49 + (j > 0) * 2.0**-80
    return _odd(x, Enclosure(high, low, np.where(beyond, -low, error)))


def _sin(x: Wide) -> Enclosure:
    return Enclosure(*circular(x, 0))


def _cos(x: Wide) -> Enclosure:
    return Enclosure(*circular(x, 1))


#: Enclosures of f(x) by name, for finite x where f is finite and not exact.
FUNCTIONS: dict[str, Callable[[Wide], Enclosure]] = {
    "exp": _exp,
    "expm1": _expm1,
    "log": _log,
    "log1p": _log1p,
    "sinh": _sinh,
    "cosh": _cosh,
    "tanh": _tanh,
    "sigmoid": _sigmoid,
    "rsqrt": _rsqrt,
    "erf": _erf,
    "sin": _sin,
    "cos": _cos,
}
