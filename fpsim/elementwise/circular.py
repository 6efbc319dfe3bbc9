"""sin and cos in binary64 as a sum of two numbers with a bound of the error, for any argument.

An argument below 3/4 is taken as it is. Others are m 2**e with a whole m of at most 26 digits: of
2**e 2/pi only the digits from four on down matter, which a table holds in parts of 26 digits, so
that their products with m are exact. What remains after the nearest quarter turn is known to 100
digits behind the point; it is never smaller than 2**-62 for a number of 26 digits.

Source    Payne and Hanek, SIGNUM 18 (1983); Tang's tables (enclosures.py); Dekker 1971.
"""

from __future__ import annotations

import math
from fractions import Fraction
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from fpsim.elementwise import hard_cases
from fpsim.elementwise.error_free import two_product, two_sum

__all__ = ["circular"]

Wide = NDArray[np.float64]

#: The largest argument that is not reduced, and of the exponents of larger ones.
_DIRECT, _MOST = 0.75, 512
#: Digits of a part, and of parts together: two before the point, the others behind it.
_PART, _PARTS = 26, 5
#: Points of the table: sin and cos of j / 64.
_STEP, _POINTS = 64, 52


def _of_pi(digits: int) -> Fraction:
    return Fraction(hard_cases.pi(digits))


@lru_cache(maxsize=1)
def _turns() -> Wide:
    """Row e: parts of 2**(e - 26) 2/pi modulo 4, from the top; m of exponent e has 26 digits."""
    scale = _MOST + _PART * _PARTS
    digits = int((2 << scale) / _of_pi(scale))
    rows = []
    for e in range(_MOST):
        # The digits of weight 2**1 and below of 2**(e - 26) 2/pi, so many as the parts hold.
        shift = scale - (e - _PART) - (_PART * _PARTS - 2)
        window = (digits >> shift if shift > 0 else digits << -shift) % (1 << _PART * _PARTS)
        rows.append([
            math.ldexp(window >> _PART * (_PARTS - 1 - k) & (1 << _PART) - 1, 2 - _PART * (k + 1))
            for k in range(_PARTS)
        ])
    return np.array(rows)


@lru_cache(maxsize=1)
def _table() -> tuple[Wide, Wide, Wide, Wide]:
    """sin and cos of the points, each as a sum of two."""
    pairs = []
    for name in ("sin", "cos"):
        exact = [
            Fraction(int(name == "cos")) if j == 0
            else hard_cases.approximately(name, j / _STEP, 40)
            for j in range(_POINTS)
        ]
        high = np.array([float(x) for x in exact])
        low = [float(x - Fraction(h)) for x, h in zip(exact, high.tolist(), strict=True)]
        pairs += [high, np.array(low)]
    return pairs[0], pairs[1], pairs[2], pairs[3]


def _reduced(x: Wide) -> tuple[Wide, Wide, NDArray[np.int64]]:
    """An angle of at most pi/4, as a sum of two, and the number of quarter turns before it."""
    fraction, exponent = np.frexp(x)
    m, parts = np.ldexp(fraction, _PART), _turns()[exponent]
    first = np.fmod(m * parts[:, 0], 4.0) + m * parts[:, 1]  # exact: multiples of 2**-50 below 8
    n = np.rint(first)
    high, low = two_sum(first - n, m * parts[:, 2])
    high, low = two_sum(high, low + (m * parts[:, 3] + m * parts[:, 4]))
    half_pi, half_pi_low = _half_pi()
    angle, rest = two_product(high, half_pi)
    angle, rest = two_sum(angle, rest + (high * half_pi_low + low * half_pi))
    return angle, rest, n.astype(np.int64)


@lru_cache(maxsize=1)
def _half_pi() -> tuple[float, float]:
    exact = _of_pi(50) / 2
    high = float(exact)
    return high, float(exact - Fraction(high))


def circular(x: Wide, quarter: int) -> tuple[Wide, Wide, Wide]:
    """sin(x + quarter pi/2) as high + low and the bound of their error."""
    direct = np.abs(x) <= _DIRECT
    angle, rest, turns = x.copy(), np.zeros_like(x), np.zeros(x.shape, np.int64)
    far = np.flatnonzero(~direct)
    if far.size:
        angle[far], rest[far], turns[far] = _reduced(x[far])
    quadrant = (turns + quarter) & 3
    sign = np.where(angle < 0, -1.0, 1.0)
    angle, rest = angle * sign, rest * sign
    sine, cosine = _of_angle(angle, rest)
    crosswise = (quadrant & 1) == 1
    down = np.where(quadrant >= 2, -1.0, 1.0) * np.where(crosswise, 1.0, sign)
    reduction = np.where(direct, 0.0, angle * 2.0**-62)
    high, low, error = (np.where(crosswise, c, s) for s, c in zip(sine, cosine, strict=True))
    return high * down, low * down, error + reduction * np.where(crosswise, angle, 1.0)


def _of_angle(angle: Wide, rest: Wide) -> tuple[tuple[Wide, ...], tuple[Wide, ...]]:
    """Enclosures of sin and cos of angle + rest, 0 <= angle <= 0.79, by the nearest point."""
    j = np.rint(angle * _STEP).astype(np.int64)
    d = (angle - j / _STEP) + rest
    square = d * d
    bend = d * square * ((square / 5040 - 1 / 120) * -square - 1 / 6)
    drop = square * (0.5 - square * (1 / 24 - square * (1 / 720 - square / 40320)))
    sin_d = d + bend
    sines, sines_low, cosines, cosines_low = (column[j] for column in _table())
    near = j == 0
    # Near zero sin is the angle itself and what bends it; that of the smallest would be lost.
    least = angle < 2.0**-300
    near_low = np.where(least, angle * -(2.0**-70), rest + bend)
    near_error = np.abs(bend) * 2.0**-49 + np.abs(rest) * 2.0**-50
    change = cosines * sin_d - sines * drop
    sine = (
        np.where(near, angle, sines), np.where(near, near_low, change + sines_low),
        np.where(
            near, np.where(least, -near_low, near_error), np.abs(change) * 2.0**-49 + 2.0**-80
        ),
    )
    fall = sines * sin_d + cosines * drop
    cosine = cosines, cosines_low - fall, np.abs(fall) * 2.0**-49 + np.where(near, 0.0, 2.0**-80)
    return sine, cosine
