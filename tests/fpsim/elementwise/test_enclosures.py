"""Enclosures of elementary functions: differential (mpmath with 400 bits), corners."""

from __future__ import annotations

import math

import numpy as np
import pytest

from fpsim.elementwise.enclosures import FUNCTIONS
from tests.tiers import pick

mpmath = pytest.importorskip("mpmath")

EXACT = {
    "exp": mpmath.exp,
    "expm1": lambda x: mpmath.exp(x) - 1,
    "log": mpmath.log,
    "log1p": lambda x: mpmath.log(1 + x),
    "sinh": mpmath.sinh,
    "cosh": mpmath.cosh,
    "tanh": mpmath.tanh,
    "sigmoid": lambda x: 1 / (1 + mpmath.exp(-x)),
    "rsqrt": lambda x: 1 / mpmath.sqrt(x),
    "erf": mpmath.erf,
    "sin": mpmath.sin,
    "cos": mpmath.cos,
}
POSITIVE = ("log", "rsqrt")
#: Where the functions change their formula, with the neighbours of precision 26.
EDGES = {
    "exp": (math.log(2) / 64, 1.0, 88.0, 699.0),
    "expm1": (math.log(2) / 64, 0.0108, 1.0, 88.0, 600.0),
    "log1p": (0.25, 0.4, 1 - 2.0**-26, 2.0**-30, 0.75, 3.0),
    "sinh": (0.25, 1.0, 88.0, 600.0),
    "cosh": (0.25, 1.0, 88.0, 600.0),
    "log": (0.7071067811865476, 1.4142135623730951, 2.0, 0.5),
    "tanh": (0.25, 1.0, 20.0, 39.0),
    "sigmoid": (1.0, 0.5, 40.0, 80.0, 699.0),
    "rsqrt": (1.0, 2.0, 3.0),
    "erf": (1 / 32, 1 / 16, 3 / 32, 1.0, 5.97, 6.0),
    # Around quarter turns; 2**-30 from one is 367.5 pi/2 rounded, far ones need many digits of pi.
    "sin": (0.75, 1 / 128, math.pi / 4, math.pi / 2, math.pi, 710 * math.pi, 2.0**510),
    "cos": (0.75, 1 / 128, math.pi / 4, math.pi / 2, math.pi, 710 * math.pi, 2.0**510),
}


def short(x):
    """Numbers of precision 26, the most that an argument may have."""
    fraction, exponent = np.frexp(x)
    return np.ldexp(np.rint(fraction * 2.0**26), exponent - 26)


def arguments(name):
    rng = np.random.default_rng(11)
    n = pick(60, 2_000, 20_000)
    limit = {"erf": 7.0, "tanh": 42.0}.get(name, 90.0)
    edges = np.array(EDGES[name])
    x = np.concatenate([
        rng.uniform(-limit, limit, n), rng.uniform(-2, 2, n), 2.0 ** rng.uniform(-140, 0, n),
        1 + rng.integers(-99, 99, n) * 2.0**-24,
        *(edges * (1 + k * 2.0**-24) for k in (-1, 0, 1)), -edges,
    ])
    x = short(x[x != 0])
    if name in ("sin", "cos"):
        x = np.concatenate([x, short(2.0 ** rng.uniform(-484, 511, n)), _near_quarter_turns(rng,
        n)])
    if name in POSITIVE:
        x = np.abs(x)
        x = np.concatenate([x, short(2.0 ** rng.uniform(-149, 128, n))])
    if name == "log1p":
        x = np.concatenate([x, short(2.0 ** rng.uniform(-149, 128, n)), short(
            2.0 ** -rng.uniform(1, 26, n) - 1)])
        x = x[x > -1]
    return x[x != 1] if name == "log" else x


def _near_quarter_turns(rng, n):
    """The numbers of precision 26 next to multiples of pi/2."""
    with mpmath.workprec(700):
        turns = [mpmath.mpf(2) ** k * mpmath.pi / 2 for k in rng.uniform(0, 500, n).tolist()]
        exact = [mpmath.nint(t / (mpmath.pi / 2)) * mpmath.pi / 2 for t in turns]
        return short(np.array([float(t) for t in exact]))


def distances(name, x):
    """|f(x) - (high + low)| and the error bound, as mpmath numbers."""
    enclosure = FUNCTIONS[name](x)
    for part in zip(x.tolist(), *(v.tolist() for v in enclosure), strict=True):
        value, high, low, error = (mpmath.mpf(v) for v in part)
        yield part, abs(EXACT[name](value) - (high + low)), error


@pytest.mark.parametrize("name", FUNCTIONS)
def test_the_value_lies_in_its_enclosure(name):
    with mpmath.workprec(1500 if name in ("sin", "cos") else 400):
        for part, distance, error in distances(name, arguments(name)):
            assert distance <= error, part


@pytest.mark.parametrize("name", FUNCTIONS)
def test_an_enclosure_decides_nearly_every_rounding(name):
    """Its width is below 2**-47 of the value: a rounding to 24 digits is open once in 2**22."""
    x = arguments(name)
    inside = np.abs(x) < {"tanh": 17.0, "erf": 5.0}.get(name, 600.0)
    high, low, error = (v[inside] for v in FUNCTIONS[name](x))
    assert (error <= np.abs(high + low) * 2.0**-47).all()


@pytest.mark.parametrize(("name", "simple"), [("exp", 1.0), ("tanh", None), ("sigmoid", 0.5)])
def test_near_a_simple_number_the_rest_is_known_as_well(name, simple):
    """exp(x) = 1 + x …: `low` holds the rest with 40 digits, so ties at 1 + x are decided."""
    x = 2.0 ** np.arange(-140.0, -55.0)
    high, low, error = FUNCTIONS[name](x)
    assert (high == (x if simple is None else simple)).all()
    assert (low != 0).all()
    assert (error <= np.abs(low) * 2.0**-40).all()


def test_powers_of_four_have_an_exact_reciprocal_root():
    exponents = np.arange(-148, 128)
    values, low, error = FUNCTIONS["rsqrt"](2.0**exponents)
    even = exponents % 2 == 0
    assert (error == 0).tolist() == even.tolist()
    assert (values[even] == 2.0 ** -(exponents[even] // 2)).all()
    assert not low.any()


@pytest.mark.parametrize("name", ["tanh", "erf"])
def test_far_out_the_enclosure_has_the_side_of_the_limit(name):
    """Below 1 by something, and never 1 itself."""
    high, low, error = FUNCTIONS[name](np.array([50.0, 1e30, -50.0, -1e30]))
    assert high.tolist() == [1, 1, -1, -1]
    assert (np.sign(low) == -np.sign(high)).all()
    assert (error <= np.abs(low)).all()
    assert (np.abs(low) < 2.0**-55).all()


@pytest.mark.parametrize("name", ["tanh", "erf"])
def test_odd_functions_are_odd(name):
    x = arguments(name)
    for plus, minus in zip(FUNCTIONS[name](x)[:2], FUNCTIONS[name](-x)[:2], strict=True):
        np.testing.assert_array_equal(plus, -minus)


def test_beyond_every_format_the_numbers_stay_finite():
    for name in ("exp", "sigmoid"):
        high, low, error = FUNCTIONS[name](np.array([-1e30, -701.0, 701.0, 1e30]))
        assert np.isfinite(high + low).all()
        assert error[0] == error[1] == 0
        assert high[0] == high[1] > 0
