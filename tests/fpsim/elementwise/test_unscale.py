"""Quotients by binary32 numbers against exact fractions, values and flags (exhaustive, corners)."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

import fpsim as fp
from fpsim.elementwise.codes import from_codes, to_codes
from fpsim.judge import oracle
from fpsim.judge.oracle.operations import divide, nan_flags, nan_result, read
from fpsim.operations import divide_by
from tests.tiers import pick

FORMATS = [fp.BINARY16, fp.BFLOAT16, fp.BINARY32, fp.E4M3FN, fp.F143, fp.Format.custom(9, 26)]
DIVISORS = [2.0**17, 2.0**24, 65504.0, 3.0, 1000.0, 0.3, 1.0, 2.0**-20, 2.0**-126, 2.0**127,
            float(np.finfo(np.float32).max), 1e30, 1e-30]
CHOICES = [
    {}, {"overflow": "saturate"}, {"subnormals": "flush_both"}, {"subnormals": "flush_results"},
    {"rounding": "RTO"}, {"rounding": "SR"},
    {"quiet_nan_raises": True, "divide_by_zero": "nan", "infinite_input": "keep"},
]
#: Policies with modes, each with a kernel of its own.
PAIRS = [
    {"overflow": "saturate", "rounding": "RTZ"}, {"rounding": "SR", "subnormals": "flush_both"},
    {"subnormals": "flush_results", "rounding": "RTP"},
]


def codes(fmt):
    if fmt.bits <= 8:
        return np.arange(1 << fmt.bits)
    rng = np.random.default_rng(0)
    edges = [0, 1, 2, (1 << (fmt.precision - 1)) - 1, 1 << (fmt.precision - 1)]
    top = [(1 << (fmt.bits - 1)) - 1 - k for k in (0, 1 << (fmt.precision - 2))]
    both = [c + sign for c in (*edges, *top) for sign in (0, 1 << (fmt.bits - 1))]
    infinity = ((1 << fmt.exponent_bits) - 1) << (fmt.precision - 1)
    return np.array([*both, infinity, infinity - 1,
                     *rng.integers(0, 1 << fmt.bits, pick(60, 1000, 20000))])


#: The quick tier has every choice in one format and every format once.
EVERY = [(fmt, choices) for fmt in FORMATS for choices in CHOICES + PAIRS]
FEW = [(f, c) for f, c in EVERY if not c or (f == fp.BINARY16 and c not in PAIRS)]


@pytest.mark.parametrize(("fmt", "choices"), pick(FEW, EVERY, EVERY), ids=str)
def test_every_quotient_is_the_exact_one_rounded_once(fmt, choices):
    if choices.get("infinite_input") == "keep" and not fmt.has_infinity:
        choices = {k: v for k, v in choices.items() if k != "infinite_input"}
    context = fp.Context(fmt, seed=7, **choices)
    operands = codes(fmt).astype(to_codes(np.zeros(1, fmt.carrier), fmt).dtype)
    x = fp.Array(from_codes(operands, fmt), context)
    r = context.core.settings.random_most
    for divisor in DIVISORS:
        context.clear_flags()
        number = context.operation
        got = divide_by(context.core, x, divisor)
        assert context.operation == number + ("SR" in choices.values())
        y = oracle.Datum("finite", 0, Fraction(float(np.float32(divisor))))
        flags = fp.Flags.NONE
        for i, (code, result) in enumerate(
            zip(operands.tolist(), got.codes().tolist(), strict=True)
        ):
            word = oracle.elementwise_word(7, number, i, r) if r else 0
            policies = {"rounding": context.rounding, "overflow": context.core.settings.overflow}
            s = oracle.OracleSettings(**{**choices, **policies}, word=word)
            datum = read(code, fmt, s)
            wanted, raised = nan_result([datum], fmt, s) or divide(datum, y, fmt, s)
            assert result == wanted, (fmt, divisor, hex(code))
            flags |= raised | nan_flags([datum], s)
        assert context.flags == flags, divisor


def test_a_quotient_beyond_the_range_of_the_format_does_not_saturate_the_divisor():
    half = fp.Context(fp.BINARY16)
    assert divide_by(half.core, half.array([2.0]), 2.0**17).values.tolist() == [2.0**-16]
    assert half.divide(half.array([2.0]), 65504.0).values.tolist() != [2.0**-16]


def test_the_native_format_divides_natively():
    double = fp.Context(fp.BINARY64)
    assert divide_by(double.core, double.array([1.0]), 3.0).values.tolist() == [1 / 3]


@pytest.mark.parametrize("divisor", [0.0, -1.0, float("inf"), float("nan"), 1e-40, 1e39])
def test_what_is_no_scale_is_refused(divisor):
    half = fp.Context(fp.BINARY16)
    with pytest.raises(ValueError, match=r"divisor=.* is not a scale; use a positive number"):
        divide_by(half.core, half.array([1.0]), divisor)


def test_a_trap_publishes_nothing():
    half = fp.Context(fp.BINARY16, traps=fp.Flags.OVERFLOW, rounding="SR")
    with pytest.raises(fp.FloatingPointTrap):
        divide_by(half.core, half.array([1.0, 1000.0]), 2.0**-10)
    assert half.operation == 1  # the array
    assert half.flags == fp.Flags.OVERFLOW | fp.Flags.INEXACT
