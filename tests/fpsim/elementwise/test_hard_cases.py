"""Elementary functions to many digits: differential (mpmath), corners (values next to a tie)."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

import fpsim as fp
from fpsim.elementwise.hard_cases import approximately, erf_slope, to_odd
from fpsim.judge.oracle import round_exact

mpmath = pytest.importorskip("mpmath")

EXACT = {
    "exp": mpmath.exp,
    "log": mpmath.log,
    "tanh": mpmath.tanh,
    "sigmoid": lambda x: 1 / (1 + mpmath.exp(-x)),
    "rsqrt": lambda x: 1 / mpmath.sqrt(x),
    "erf": mpmath.erf,
    "sin": mpmath.sin,
    "cos": mpmath.cos,
}
POSITIVE = ("log", "rsqrt")
ARGUMENTS = (
    0.3, 1.7, 5.9, 3 * 2.0**-140, 2.0**-31, 1 + 2.0**-23, 1 - 2.0**-24, 12.5, 18.0,
)
CASES = [
    (name, sign * x)
    for name in EXACT
    for x in ARGUMENTS
    for sign in ((1,) if name in POSITIVE else (1, -1))
]


def exactly(name, x):
    """f(x) with 1500 bits, as a fraction."""
    with mpmath.workprec(1500):
        sign, man, exponent, _ = EXACT[name](mpmath.mpf(x))._mpf_
    return (-1) ** sign * Fraction(int(man)) * Fraction(2) ** int(exponent)


@pytest.mark.parametrize("digits", [5, 40, 120])
@pytest.mark.parametrize("name", EXACT)
def test_the_relative_error_is_below_the_digits_asked_for(name, digits):
    for case, x in CASES:
        if case == name:
            value, exact = approximately(name, x, digits), exactly(name, x)
            assert abs(value - exact) < abs(exact) / 10**digits, x


def odd(x: Fraction) -> float:
    """binary64 of a number, rounded to odd by the oracle."""
    code, _ = round_exact(x, fp.BINARY64, fp.RTO)
    return float(np.array(code, np.uint64).view(np.float64))


EXACT_ARGUMENTS = [
    *((name, x) for name in EXACT for x in (0.0, -0.0, np.inf, np.nan)),
    *((name, -1.0) for name in POSITIVE),
    *(("rsqrt", 2.0**k) for k in (-1074, -30, -2, 0, 2, 1022)), ("log", 1.0),
]


@pytest.mark.parametrize(("name", "x"), EXACT_ARGUMENTS)
def test_arguments_of_exact_values_are_refused(name, x):
    """No enclosure of them rounds alike at both ends, however narrow."""
    with pytest.raises(ValueError, match=f"has an exact {name} or none"):
        to_odd(name, x)


@pytest.mark.parametrize("x", [2.0**-1073, 2.0**-31, 2.0, 8.0, 3 * 2.0**-30])
def test_roots_of_odd_powers_of_two_are_endless(x):
    assert to_odd("rsqrt", x) == odd(exactly("rsqrt", x))


@pytest.mark.parametrize(("name", "x"), CASES)
def test_rounding_to_odd_is_that_of_the_value(name, x):
    assert to_odd(name, x) == odd(exactly(name, x))


@pytest.mark.parametrize(
    ("name", "x"),
    [
        ("exp", 2.0**-140),
        ("exp", -(2.0**-140)),
        ("tanh", 2.0**-100),
        ("tanh", 45.0),
        ("sigmoid", 2.0**-140),
        ("sigmoid", -(2.0**-90)),
        ("log", 1 + 2.0**-25),
        ("rsqrt", 1 - 2.0**-26),
        ("erf", 9.0),
    ],
)
def test_digits_are_added_until_the_rounding_is_decided(name, x):
    """The first 40 digits of these end in the digits of a simpler number."""
    assert to_odd(name, x) == odd(exactly(name, x))
    # A tail, however small, makes the last digit odd.
    assert int(np.float64(to_odd(name, x)).view(np.uint64)) & 1 == 1


@pytest.mark.parametrize("digits", [10, 60])
def test_the_slope_of_erf(digits):
    for x in (Fraction(0), Fraction(1, 16), Fraction(3), Fraction(-95, 16)):
        with mpmath.workprec(800):
            argument = mpmath.mpf(x.numerator) / x.denominator
            slope = 2 / mpmath.sqrt(mpmath.pi) * mpmath.exp(-(argument**2))
            sign, man, exponent, _ = slope._mpf_
        exact = Fraction(int(man)) * Fraction(2) ** int(exponent)
        assert sign == 0
        assert abs(erf_slope(x, digits) - exact) < exact / 10**digits
