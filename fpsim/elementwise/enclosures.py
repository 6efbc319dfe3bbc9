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
from fpsim.kernels.elementwise.enclosures import (
    ATANH,
    COMPILED,
    ERF_DEGREE,
    ERF_LIMIT,
    ERF_STEP,
    EXP,
    LN2_HIGH,
    LN2_LOW,
    enclosing_kernel,
)
from fpsim.state.memory import flat_in_memory

__all__ = ["FUNCTIONS", "Enclosure", "table_of"]

Wide = NDArray[np.float64]


class Enclosure(NamedTuple):
    """|f - (high + low)| <= error."""

    high: Wide
    low: Wide
    error: Wide


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


#: Coefficients behind x and behind 1, of squares of numbers below a quarter.
_SINH = [1.0 / math.factorial(k) for k in range(15, 2, -2)]
_COSH = [1.0 / math.factorial(k) for k in range(14, 1, -2)]
_SERIES_LIMIT = 0.25
#: Below half a step of the table exp's series is about 0.
_EXP_DIRECT = 0.0108


def _horner(coefficients: Sequence[Any], x: Wide) -> Wide:
    result: Wide = coefficients[0] * x
    for c in coefficients[1:-1]:
        result += c
        result *= x
    result += coefficients[-1]
    return result


@lru_cache(maxsize=len(COMPILED))
def table_of(name: str) -> Wide:
    """The numbers that a compiled function reads: 2**(j/32) as sums of two, or those of erf."""
    if name == "erf":
        return np.concatenate([part.reshape(-1) for part in _erf_table()])
    return np.concatenate(_pairs([_power_of_two(j) for j in range(32)]))


def _compiled(name: str) -> Callable[[Wide], Enclosure]:
    """An enclosure by `fpsim.kernels.elementwise.enclosures`."""

    def enclose(x: Wide) -> Enclosure:
        enclosure = Enclosure(*(np.empty(x.shape) for _ in Enclosure._fields))
        wide = flat_in_memory(x.astype(np.float64, copy=False))
        enclosing_kernel(name)(wide, *(part.reshape(-1) for part in enclosure), table_of(name))
        return enclosure

    return enclose


_exp = _compiled("exp")


def _expm1(x: Wide) -> Enclosure:
    """exp(x) - 1 with the table's number less 1 exact; near zero x and what the series adds."""
    powers = _exp(x)
    high, low = two_sum(-1.0, powers.high)
    direct = np.abs(x) < _EXP_DIRECT
    bend, low = x * x * _horner(EXP, np.where(direct, x, 0.0)), low + powers.low
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
    series = f * square * _horner(ATANH, square)
    e = np.where(near, 0, e)
    high, rest = two_sum(e * LN2_HIGH, 2 * f)
    rest = rest + (series + 2 * remainder + e * LN2_LOW + np.where(near, 0.0, lost / whole))
    unsure = (np.abs(missing) + np.abs(lacking)) * 2.0**-50
    return Enclosure(high, rest, np.abs(series) * 2.0**-48 + unsure + ~near * 2.0**-58)


def _odd(x: Wide, of_size: Enclosure) -> Enclosure:
    """f(x) from f(|x|), f odd."""
    return Enclosure(np.copysign(of_size.high, x), of_size.low * np.sign(x), of_size.error)


def _rsqrt(x: Wide) -> Enclosure:
    """1 / sqrt(x): exact for powers of four, else two roundings of the processor."""
    fraction, e = np.frexp(x)
    exact = (fraction == 0.5) & (e % 2 == 1)
    values = 1 / np.sqrt(x)
    return Enclosure(values, np.zeros_like(values), np.where(exact, 0.0, values * 2.0**-51))


@lru_cache(maxsize=1)
def _erf_table() -> tuple[Wide, Wide, Wide]:
    """erf at each point as a sum of two, and the coefficients of its polynomial.

    f = erf satisfies f'' = -2 x f', which gives each coefficient from the two before it.
    """
    values, rows = [Fraction(0)], []
    for j in range(ERF_STEP * ERF_LIMIT + 1):
        point = Fraction(j, ERF_STEP)
        if j:
            values.append(hard_cases.approximately("erf", float(point), 40))
        c = [Fraction(0), hard_cases.erf_slope(point, 40)]
        for k in range(2, ERF_DEGREE + 1):
            c.append(-2 * (point * (k - 1) * c[k - 1] + (k - 2) * c[k - 2]) / (k * (k - 1)))
        rows.append([float(v) for v in c[:0:-1]])
    return (*_pairs(values), np.array(rows).T.copy())


def _sin(x: Wide) -> Enclosure:
    return Enclosure(*circular(x, 0))


def _cos(x: Wide) -> Enclosure:
    return Enclosure(*circular(x, 1))


#: Enclosures of f(x) by name, for finite x where f is finite and not exact.
FUNCTIONS: dict[str, Callable[[Wide], Enclosure]] = {
    "exp": _exp,
    "expm1": _expm1,
    "log": _compiled("log"),
    "log1p": _log1p,
    "sinh": _sinh,
    "cosh": _cosh,
    "tanh": _compiled("tanh"),
    "sigmoid": _compiled("sigmoid"),
    "rsqrt": _rsqrt,
    "erf": _compiled("erf"),
    "sin": _sin,
    "cos": _cos,
}
