"""Elementary functions to any number of digits, for the few arguments where binary64 is too short.

`to_odd` widens an enclosure until both ends round alike, as Ziv did. It ends because none of these
functions has a value with finitely many digits, but for the arguments that its caller treats as
exact (rsqrt: by algebra; erf: believed, not proved; the others: Lindemann).

Source    Ziv, ACM TOMS 17 (1991); `decimal`, whose exp and ln are correctly rounded.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from decimal import MAX_EMAX, MIN_EMIN, Context, Decimal
from fractions import Fraction
from functools import lru_cache

from fpsim.elementwise import inputs

__all__ = ["approximately", "erf_slope", "pi", "to_odd"]

#: Digits carried beyond those asked for.
_GUARD = 10


def _context(digits: int) -> Context:
    return Context(prec=digits, Emax=MAX_EMAX, Emin=MIN_EMIN, traps=[])


def _exp(x: Decimal, c: Context) -> Decimal:
    return x.exp(c)


def _log(x: Decimal, c: Context) -> Decimal:
    return x.ln(c)


def _log1p(x: Decimal, c: Context) -> Decimal:
    """ln(1 + x) of the exact 1 + x."""
    wider = _context(c.prec + len(x.as_tuple().digits) + abs(x.adjusted()))
    return wider.add(Decimal(1), x).ln(c)


def _of_two_powers(x: Decimal, c: Context, sign: int) -> Decimal:
    """(exp(x) + sign exp(-x)) / 2."""
    e = x.exp(c)
    inverse = c.divide(Decimal(sign), e)
    return c.divide(c.add(e, inverse), Decimal(2))


def _wider(x: Decimal, c: Context) -> Context:
    """With the digits that the difference of two numbers near 1 loses for a small x."""
    return _context(c.prec + 2 * max(0, -x.adjusted()))


def _expm1(x: Decimal, c: Context) -> Decimal:
    wider = _wider(x, c)
    return wider.subtract(x.exp(wider), Decimal(1))


def _sinh(x: Decimal, c: Context) -> Decimal:
    return _of_two_powers(x, _wider(x, c), -1)


def _cosh(x: Decimal, c: Context) -> Decimal:
    return _of_two_powers(x, c, 1)


def _tanh(x: Decimal, c: Context) -> Decimal:
    """(1 - e) / (1 + e), e = exp(-2 x); what cancels for small x is carried in addition."""
    wider = _wider(x, c)
    e = wider.multiply(-2, x).exp(wider)
    return c.divide(wider.subtract(Decimal(1), e), wider.add(Decimal(1), e))


def _sigmoid(x: Decimal, c: Context) -> Decimal:
    return c.divide(Decimal(1), c.add(Decimal(1), x.copy_negate().exp(c)))


def _rsqrt(x: Decimal, c: Context) -> Decimal:
    return c.divide(Decimal(1), x.sqrt(c))


def _arctan_of_inverse(n: int, digits: int) -> Fraction:
    total, k, term = Fraction(0), 0, Fraction(1, n)
    while term > Fraction(1, 10**digits):
        total += (-1) ** k * term / (2 * k + 1)
        k, term = k + 1, term / n**2
    return total


@lru_cache(maxsize=8)
def pi(digits: int) -> Decimal:
    """pi with so many digits, by Machin: pi = 16 arctan(1/5) - 4 arctan(1/239)."""
    exact = 16 * _arctan_of_inverse(5, digits) - 4 * _arctan_of_inverse(239, digits)
    return _decimal(exact, _context(digits))


def _decimal(x: Fraction, c: Context) -> Decimal:
    return c.divide(Decimal(x.numerator), Decimal(x.denominator))


def _erf(x: Decimal, c: Context) -> Decimal:
    """slope(x) * sum of x (2 x**2)**k / (1 3 5 … (2k + 1)): no term has another sign."""
    term = total = x
    k = 0
    double = c.multiply(2, c.multiply(x, x))
    while term.copy_abs() > total.copy_abs().scaleb(-c.prec, c):
        k += 1
        term = c.divide(c.multiply(term, double), Decimal(2 * k + 1))
        total = c.add(total, term)
    return c.multiply(total, _slope(x, c))


def _slope(x: Decimal, c: Context) -> Decimal:
    """2 / sqrt(pi) exp(-x**2), the derivative of erf."""
    bell = c.multiply(x, x.copy_negate()).exp(c)
    return c.divide(c.multiply(2, bell), pi(c.prec).sqrt(c))


#: Digits of an angle that its distance from a quarter turn may cost, and more.
_CANCELLED = 60


def _circular(x: Decimal, c: Context, quarter: int) -> Decimal:
    """sin(x + quarter pi/2): Taylor's series of what remains after whole quarter turns."""
    wide = _context(c.prec + max(0, x.adjusted()) + _CANCELLED)
    half_pi = wide.divide(pi(wide.prec + 5), Decimal(2))
    n = int(wide.divide(x, half_pi).to_integral_value())
    angle = wide.subtract(x, wide.multiply(Decimal(n), half_pi)) if n else x
    n += quarter
    square = c.multiply(angle, angle).copy_negate()
    term = total = Decimal(1) if n % 2 else c.plus(angle)
    k = 1 if n % 2 else 2
    while term and term.copy_abs() > total.copy_abs().scaleb(-c.prec - 2, c):
        term = c.divide(c.multiply(term, square), Decimal(k * (k + 1)))
        total = c.add(total, term)
        k += 2
    return total.copy_negate() if n % 4 >= 2 else total


def _sin(x: Decimal, c: Context) -> Decimal:
    return _circular(x, c, 0)


def _cos(x: Decimal, c: Context) -> Decimal:
    return _circular(x, c, 1)


_FUNCTIONS: dict[str, Callable[[Decimal, Context], Decimal]] = {
    "exp": _exp, "expm1": _expm1, "log": _log, "log1p": _log1p, "sinh": _sinh, "cosh": _cosh,
    "tanh": _tanh, "sigmoid": _sigmoid, "rsqrt": _rsqrt, "erf": _erf, "sin": _sin, "cos": _cos,
}


def approximately(name: str, x: float, digits: int) -> Fraction:
    """f(x) with a relative error below 10**-digits."""
    return Fraction(_FUNCTIONS[name](Decimal(x), _context(digits + _GUARD)))


def erf_slope(x: Fraction, digits: int) -> Fraction:
    """The derivative of erf with a relative error below 10**-digits."""
    c = _context(digits + _GUARD)
    return Fraction(_slope(_decimal(x, c), c))


def _is_endless(name: str, x: float) -> bool:
    """Whether f(x) is a number whose digits do not end."""
    if name == "log":
        return 0 < x < math.inf and x != 1
    if name == "log1p":
        return -1 < x < math.inf and x != 0
    if name == "rsqrt":
        fraction, exponent = math.frexp(x)
        return 0 < x < math.inf and (fraction != 0.5 or exponent % 2 == 0)
    return math.isfinite(x) and x != 0


def to_odd(name: str, x: float) -> float:
    """binary64 of f(x), rounded to odd.

    Raises    ValueError where f(x) is undefined or has finitely many digits: no number of digits
              tells it from its neighbours.

    >>> to_odd("exp", 2.0**-60) == 1 + 2.0**-52
    True
    """
    if not _is_endless(name, x):
        raise ValueError(
            f"x={x!r} has an exact {name} or none; treat it before, only endless digits end here"
        )
    digits = 40
    while True:
        value = approximately(name, x, digits)
        spread = abs(value) / 10**digits
        low, high = inputs.to_odd(value - spread), inputs.to_odd(value + spread)
        if low == high:
            return low
        digits *= 2
