"""Powers are correctly rounded, with IEEE 754's special values and flags (differential).

Whole powers are judged by exact fractions, others by decimals of 200 digits.
"""

from __future__ import annotations

import math
from decimal import Context as DecimalContext
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest

import fpsim as fp
from fpsim import BFLOAT16, BINARY16, BINARY32, Flags
from fpsim.elementwise.codes import from_codes
from fpsim.elementwise.powers import evaluate
from fpsim.records.settings import Settings
from fpsim.state.draws import NO_DRAW
from tests.tiers import pick

WIDE = DecimalContext(prec=200, Emax=10**9, Emin=-(10**9), traps=[])


def power(x, y, fmt=BINARY16, rounding=fp.RNE, **choices):
    values, flags = evaluate(
        "pow", [np.asarray(v, fmt.carrier) for v in (x, y)],
        Settings(fmt, rounding, **choices), bits=NO_DRAW,
    )
    return values, Flags(flags)


def exact(x, y):
    """x**y as a fraction: exactly for whole y, else to 200 digits."""
    if y == int(y):
        return Fraction(x) ** int(y)
    return Fraction(WIDE.power(Decimal(x), Decimal(y)))


def is_nearest(value, wanted, fmt):
    """No other number of the format is nearer, and of two as near this one is even."""
    gap = abs(Fraction(value) - wanted)
    step = Fraction(float(fmt.ulp(value)))
    for other in (Fraction(value) - step, Fraction(value) + step):
        if abs(other - wanted) < gap:
            return False
    return gap * 2 < step or (Fraction(value) / step) % 2 == 0 or gap * 2 <= step


@pytest.mark.parametrize("fmt", [BINARY16, BFLOAT16], ids=lambda fmt: fmt.name)
@pytest.mark.parametrize("y", [2, 3, 4, 5, -1, -3, 0.5, 1.5, -0.75, 10])
def test_every_number_to_a_power_is_rounded_to_nearest(fmt, y):
    codes = np.arange(0, 1 << 15, pick(37, 3, 1), dtype=np.uint16)
    x = from_codes(codes, fmt)
    x = x[np.isfinite(x) & (x > 0)]
    values, _ = power(x, y, fmt)
    for base, value in zip(x.tolist(), values.tolist(), strict=True):
        wanted = exact(base, y)
        if math.isinf(value):
            assert wanted >= Fraction(float(fmt.max)) + Fraction(float(fmt.ulp(fmt.max))) / 2
        else:
            assert is_nearest(value, wanted, fmt), (base, value)


@pytest.mark.parametrize("rounding", ["RTZ", "RTP", "RTN"])
def test_directed_modes_see_exact_powers_and_what_is_just_beside_them(rounding):
    x = np.float32([2, 3, 1.5, 4, 1 + 2.0**-23, 181, 4096, 0.1])
    for y in (2.0, 3.0, 4.0, 0.5, 7.0, -1.0):
        values, _ = power(x, y, BINARY32, getattr(fp, rounding))
        for base, value in zip(x.tolist(), values.tolist(), strict=True):
            wanted = exact(base, y)
            if y == 0.5 and math.isqrt(int(base)) ** 2 == base:
                wanted = Fraction(math.isqrt(int(base)))
            got, step = Fraction(value), Fraction(float(BINARY32.ulp(value)))
            if rounding == "RTP":
                assert got - step < wanted <= got
            else:
                assert got <= wanted < got + step


def test_exact_powers_raise_nothing():
    for x, y in ((2.0, 10.0), (3.0, 4.0), (4.0, 0.5), (8.0, -1.0), (1.5, 2.0), (-2.0, 3.0)):
        values, flags = power(x, y)
        assert float(values) == x**y
        assert flags == Flags.NONE
    assert power(3.0, 0.5)[1] == Flags.INEXACT


@pytest.mark.source("IEEE 754-2019 §9.2.1")
@pytest.mark.parametrize(
    ("x", "y", "value", "flags"),
    [(math.nan, 0.0, 1.0, 0), (1.0, math.nan, 1.0, 0), (0.0, -1.0, math.inf, 2),
     (-0.0, -1.0, -math.inf, 2), (-0.0, -2.0, math.inf, 2), (-0.0, 3.0, -0.0, 0),
     (-0.0, 0.5, 0.0, 0), (-1.0, math.inf, 1.0, 0), (0.5, math.inf, 0.0, 0),
     (0.5, -math.inf, math.inf, 0), (-math.inf, 3.0, -math.inf, 0), (-math.inf, 0.5, math.inf, 0),
     (-math.inf, -1.0, -0.0, 0), (-8.0, 0.5, math.nan, 1), (math.nan, 1.0, math.nan, 0)],
)
def test_special_values(x, y, value, flags):
    got, raised = power(x, y)
    assert (math.isnan(got) and math.isnan(value)) or (
        got == value and math.copysign(1, got) == math.copysign(1, value)
    )
    expected = {0: Flags.NONE, 1: Flags.INVALID, 2: Flags.DIVBYZERO}[flags]
    assert raised == expected


def test_overflow_and_underflow_are_told_however_far_they_lie():
    for x, y in ((300.0, 4.0), (60000.0, 60000.0), (0.5, -1000.0)):
        assert power(x, y)[1] == Flags.OVERFLOW | Flags.INEXACT
    assert power(300.0, 4.0, overflow="saturate")[0] == 65504
    for x, y in ((0.01, 10.0), (0.5, 60000.0)):
        assert power(x, y)[1] == Flags.UNDERFLOW | Flags.INEXACT


def test_signalling_and_quiet_nans():
    signalling = from_codes(np.uint16([0x7C01]), BINARY16)
    assert power(signalling, 2.0)[1] == Flags.INVALID
    assert power(math.nan, 2.0, quiet_nan_raises=True)[1] == Flags.INVALID
