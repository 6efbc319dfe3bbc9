"""IEEE remainder and fmod: exhaustive (pairs of small formats), law, differential (C's library)."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest

import fpsim as fp
from fpsim.elementwise.codes import from_codes, to_codes
from fpsim.elementwise.remainder import remainder
from fpsim.judge.oracle import operate
from fpsim.judge.oracle.operations import read
from fpsim.judge.oracle.rounding import OracleSettings, infinity, round_real
from fpsim.records.settings import Settings

NAMES = {"ieee_remainder": True, "fmod": False}
INVALID = int(fp.Flags.INVALID)


@pytest.mark.parametrize("subnormals", ["keep", "flush_results", "flush_both"])
@pytest.mark.parametrize(
    "fmt", [fp.Format.custom(2, 3), fp.E2M1FN, fp.Format.custom(2, 3, specials="fnuz")],
    ids=str,
)
@pytest.mark.parametrize("name", NAMES)
def test_every_pair_has_the_remainder_of_the_oracle(name, fmt, subnormals):
    codes = np.arange(fmt.n_codes).astype(fmt.code_dtype)
    x, y = (c.ravel() for c in np.meshgrid(codes, codes, indexing="ij"))
    values, flags = remainder(
        from_codes(x, fmt), from_codes(y, fmt), Settings(fmt, subnormals=subnormals),
        nearest=NAMES[name],
    )
    results, judge = to_codes(values, fmt).tolist(), OracleSettings(subnormals=subnormals)
    for i, pair in enumerate(zip(x.tolist(), y.tolist(), strict=True)):
        code, raised = operate(name, pair, fmt, judge)
        assert (results[i], int(flags[i])) == (code, int(raised)), tuple(map(hex, pair))


def numbers(n):
    """binary32 numbers of every exponent, both signs."""
    codes = np.random.default_rng(5).integers(0, 1 << 32, n, np.uint64).astype(np.uint32)
    x = codes.view(np.float32)
    return x[np.isfinite(x) & (x != 0)]


def test_remainders_of_binary32_are_those_of_the_library():
    x = numbers(2_000)
    y = np.roll(x, 1)
    wide = zip(x.astype(float).tolist(), y.astype(float).tolist(), strict=True)
    pairs = list(wide)
    for nearest, function in ((True, math.remainder), (False, math.fmod)):
        values, flags = remainder(x, y, Settings(fp.BINARY32), nearest=nearest)
        expected = np.array([function(a, b) for a, b in pairs], np.float32)
        assert values.view(np.uint32).tolist() == expected.view(np.uint32).tolist()
        assert not flags.any()


def test_a_remainder_is_congruent_and_small():
    """(x - r) / y is whole; |r| <= |y| / 2, or |r| < |y| with the sign of x."""
    x = numbers(600)
    y = np.roll(x, 1)
    for nearest in (True, False):
        r, _ = remainder(x, y, Settings(fp.BINARY32), nearest=nearest)
        for a, b, c in zip(*(v.tolist() for v in (x, y, r)), strict=True):
            quotient = (Fraction(a) - Fraction(c)) / Fraction(b)
            assert quotient.denominator == 1
            if nearest:
                tie = 2 * abs(Fraction(c)) == abs(Fraction(b))
                assert 2 * abs(Fraction(c)) <= abs(Fraction(b))
                assert not tie or quotient.numerator % 2 == 0
            else:
                assert abs(c) < abs(b)
            if c == 0 or not nearest:
                assert math.copysign(1, c) == math.copysign(1, a)


def test_the_mode_of_the_context_does_not_matter():
    x = numbers(300)
    y = np.roll(x, 1)
    wanted, _ = remainder(x, y, Settings(fp.BINARY32), nearest=True)
    for rounding in (fp.RTP, fp.RTZ, fp.SR(8)):
        r, flags = remainder(x, y, Settings(fp.BINARY32, rounding), nearest=True)
        assert r.view(np.uint32).tolist() == wanted.view(np.uint32).tolist()
        assert not flags.any()


@pytest.mark.parametrize("nearest", [True, False])
def test_what_is_undefined_is_invalid(nearest):
    signalling = np.array([0x7F800001], np.uint32).view(np.float32)[0]
    x = np.float32([np.inf, 1.0, 1.0, np.nan, 1.0, -3.0, signalling, 0.0])
    y = np.float32([2.0, 0.0, -0.0, 1.0, np.nan, np.inf, 1.0, 0.0])
    values, flags = remainder(x, y, Settings(fp.BINARY32), nearest=nearest)
    assert flags.tolist() == [INVALID, INVALID, INVALID, 0, 0, 0, INVALID, INVALID]
    assert np.isnan(values).tolist() == [True, True, True, True, True, False, True, True]
    assert values[5] == -3.0
    _, loud = remainder(x, y, Settings(fp.BINARY32, quiet_nan_raises=True), nearest=nearest)
    assert loud.tolist() == [INVALID] * 5 + [0, INVALID, INVALID]


def test_operands_broadcast_and_stay_as_they_are():
    x, y = np.float32([[5.0], [np.inf]]), np.float32([3.0, 0.0, -2.0])
    copies = x.copy(), y.copy()
    values, flags = remainder(x, y, Settings(fp.BINARY32), nearest=False)
    assert values.shape == flags.shape == (2, 3)
    np.testing.assert_array_equal(values, [[2.0, np.nan, 1.0], [np.nan] * 3])
    assert flags.tolist() == [[0, INVALID, 0], [INVALID] * 3]
    five, three = np.asarray(np.float32(5.0)), np.asarray(np.float32(3.0))
    scalar, flag = remainder(five, three, Settings(fp.BINARY32), nearest=True)
    assert (scalar.shape, float(scalar), flag.shape) == ((), -1.0, ())
    for before, after in zip(copies, (x, y), strict=True):
        np.testing.assert_array_equal(before, after)


# The remainder of % --------------------------------------------------------------------------


def exact_remainder_of(x, y):
    return x - (x // y) * y


@pytest.mark.parametrize("subnormals", ["keep", "flush_results", "flush_both"])
@pytest.mark.parametrize("mode", ["RNE", "RTP", "RTN", "RTO"])
@pytest.mark.parametrize(
    "fmt", [fp.Format.custom(2, 3), fp.E2M1FN, fp.Format.custom(2, 3, specials="fnuz")], ids=str
)
def test_every_pair_has_the_floored_remainder_rounded_once(fmt, mode, subnormals):
    """By the oracle's one rounding of x - floor(x / y) y, in fractions."""
    judge = OracleSettings(rounding=fp.find_rounding(mode), subnormals=subnormals)
    codes = range(fmt.n_codes)
    for pair in ((a, b) for a in codes for b in codes):
        x, y = (read(code, fmt, judge) for code in pair)
        context = fp.Context(fmt, rounding=mode, subnormals=subnormals)
        ours = context.remainder(*(context.unpack(np.array(c, fmt.code_dtype)) for c in pair))
        wanted, raised = operate("fmod", pair, fmt, judge)
        finite = x.kind == "finite" and y.kind == "finite" and not y.is_zero
        if finite:
            rest = exact_remainder_of(x.value, y.value)
            sign = int(rest < 0) if rest else y.sign
            wanted, raised = round_real(rest, fmt, judge, sign)
        elif x.kind == "finite" and y.kind == "infinite":
            signed = x.sign == y.sign or x.is_zero
            rest = round_real(x.value, fmt, judge, y.sign)
            wanted, raised = rest if signed else (infinity(y.sign, fmt), fp.Flags.NONE)
        shown = tuple(map(hex, pair))
        assert (int(ours.codes()), context.flags) == (wanted, raised), shown


def test_the_operator_is_pythons():
    context = fp.Context(fp.BINARY32)
    x = context.array([5.25, -5.25, -0.0, 0.0, 1e-10, -1e-10, -3.0])
    for y in (1.0, -1.0, 0.75):
        expected = np.float32(np.mod(x.values, np.float32(y)))
        for result in (x % y, np.remainder(x, y), np.mod(x, y), context.remainder(x, y)):
            assert result.codes().tolist() == expected.view(np.uint32).tolist()
    assert (7.5 % context.array(2.0)).item() == 1.5
    memory = x.carrier
    x %= 2
    assert x.carrier is memory
    assert x.tolist()[:2] == [1.25, 0.75]


def test_a_remainder_that_is_rounded_has_a_number_and_random_bits():
    context = fp.Context(fp.BINARY16, rounding="SR", seed=1)
    x = context.wrap(np.full(1000, -(2.0**-12), np.float32))
    rounded = x % 1.0
    assert context.operation == 1
    assert set(rounded.tolist()) == {1.0, 1.0 - 2.0**-11}
    context.operation = 0
    assert (x + 1.0).codes().tolist() == rounded.codes().tolist()
