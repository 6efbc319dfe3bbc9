"""Profiles: golden cases, and differential against the oracle on every number of hard arrays."""

from __future__ import annotations

from collections import Counter
from fractions import Fraction

import ml_dtypes
import numpy as np
import pytest

from fpsim.inspect.profile import profile
from fpsim.judge import oracle
from fpsim.records.flags import Flags
from fpsim.records.formats import (
    BFLOAT16,
    BINARY16,
    BINARY32,
    BINARY64,
    E2M1FN,
    E4M3FN,
    E5M2,
    F143,
    F152,
    TF32,
    Format,
)
from tests.tiers import pick

FORMATS = [BINARY16, BFLOAT16, TF32, BINARY32, E4M3FN, E5M2, F143, F152, E2M1FN]


def hard_array(fmt: Format, n: int, seed: int) -> np.ndarray:
    """Numbers over the whole range and beyond it, many at the thresholds and their neighbours."""
    rng = np.random.default_rng(seed)
    exponents = rng.integers(fmt.emin - fmt.precision - 4, fmt.emax + 3, n)
    x = np.ldexp(rng.integers(1, 1 << (fmt.precision + 2), n), exponents - fmt.precision)
    ends = np.array([
        fmt.max, fmt.max + fmt.ulp(fmt.max) / 2, 2 * fmt.max, fmt.smallest_normal,
        fmt.smallest_normal - fmt.smallest_subnormal / 2, fmt.smallest_subnormal,
        fmt.smallest_subnormal / 2, fmt.smallest_subnormal * 1.5,
    ])
    ends = np.concatenate([ends, np.nextafter(ends, 0), np.nextafter(ends, np.inf)])
    x = np.concatenate([x, ends, [0.0, -0.0, np.nan, np.inf, -np.inf, 5e-324, 1e308]])
    return x * np.where(rng.random(x.size) < 0.5, -1, 1)


@pytest.mark.parametrize("fmt", FORMATS, ids=str)
def test_counts_are_those_of_rounding_each_number(fmt: Format) -> None:
    x = hard_array(fmt, pick(600, 20_000, 200_000), 1)
    counted = profile(x, fmt)
    finite = [Fraction(v) for v in x.tolist() if np.isfinite(v) and v != 0]
    results = [oracle.round_exact(v, fmt) for v in finite]
    data = [oracle.decode(code, fmt) for code, _ in results]
    normal = Fraction(fmt.smallest_normal)
    assert counted.n == x.size
    assert counted.zeros == int((x == 0).sum())
    assert (counted.nans, counted.infinities) == (int(np.isnan(x).sum()), int(np.isinf(x).sum()))
    assert counted.overflows == sum(bool(f & Flags.OVERFLOW) for _, f in results)
    assert counted.inexact == sum(bool(f & Flags.INEXACT) for _, f in results)
    assert counted.underflows == sum(d.is_zero for d in data)
    assert counted.subnormals == sum(d.kind == "finite" and 0 < d.magnitude < normal for d in data)
    assert counted.counts.sum() == len(finite)


@pytest.mark.parametrize("fmt", FORMATS, ids=str)
def test_the_best_scale_loses_least_and_is_nearest_to_one(fmt: Format) -> None:
    rng = np.random.default_rng(2)
    for _ in range(pick(4, 40, 200)):
        centre = rng.integers(-60, 60)
        array = np.ldexp(rng.standard_normal(40), centre + rng.integers(-12, 12, 40))
        x = [Fraction(float(v)) for v in array]
        counted = profile(array, fmt)
        best = counted.scale_exponent
        total = Counter(outcome for v in x for outcome in outcomes(v, best, fmt))
        assert counted.scaled_underflows == total["underflow"]
        assert counted.scaled_overflows == total["overflow"]
        assert counted.scaled_subnormals == total["subnormal"]
        least = lost(x, best, fmt)
        nearer = [k for k in range(-abs(best), abs(best) + 1) if k not in (best, -abs(best))]
        for k in nearer[:: max(1, len(nearer) // 6)]:
            assert lost(x, k, fmt) > least
        for k in (best + 1, best - 1, best + 7, best - 7, best + 23, best - 23):
            assert lost(x, k, fmt) >= least
            if counted.scales[0] <= k <= counted.scales[-1]:
                curve = counted.lost[k - counted.scales[0]]
                assert curve == counted.lost_at(k) == float(lost(x, k, fmt) / len(x))


def outcomes(x: Fraction, k: int, fmt: Format) -> list[str]:
    """What the oracle makes of x times 2**k."""
    code, flags = oracle.round_exact(x * Fraction(2) ** k, fmt)
    datum = oracle.decode(code, fmt)
    if flags & Flags.OVERFLOW:
        return ["overflow"]
    if datum.is_zero:
        return ["underflow"]
    return ["subnormal"] if datum.magnitude < Fraction(fmt.smallest_normal) else []


def lost(x: list[Fraction], k: int, fmt: Format) -> Fraction:
    """Digits lost, as a share of those of one element."""
    return sum((lost_digits(v, k, fmt) for v in x), Fraction(0)) / fmt.precision


def lost_digits(x: Fraction, k: int, fmt: Format) -> int:
    match outcomes(x, k, fmt):
        case []:
            return 0
        case ["subnormal"]:
            top, binades = (1 - Fraction(1, 2**fmt.precision)) * Fraction(2) ** fmt.emin, 0
            while abs(x) * Fraction(2) ** k < top / 2**binades:
                binades += 1
            return min(binades, fmt.precision)
    return fmt.precision


@pytest.mark.source("Micikevicius et al. 2018: gradients are shifted into the range by a scale")
def test_small_gradients_are_lifted_until_none_is_subnormal() -> None:
    gradients = np.ldexp(1.0, np.arange(-40, -20))
    counted = profile(gradients, BINARY16)
    assert counted.underflows == 16  # below and at 2**-25
    assert (counted.scale_exponent, counted.scaled_subnormals) == (26, 0)
    assert (counted.scaled_underflows, counted.scaled_overflows) == (0, 0)
    assert counted.exponents.tolist() == list(range(-40, -20))
    assert counted.share("underflows") == 0.8


def test_a_scale_that_leaves_subnormals_is_not_the_best() -> None:
    """16 gives no underflow, and leaves ten of twenty gradients subnormal; 26 leaves none."""
    counted = profile(np.ldexp(1.0, np.arange(-40, -20)), BINARY16)
    assert counted.lost_at(16) == sum(range(1, 11)) / (20 * 11)
    assert counted.lost_at(26) == 0.0
    assert counted.lost_at(36) == 0.0
    assert counted.lost_at(37) == 1 / 20  # 2**-21 has become 2**16


def test_the_curve_goes_from_all_lost_to_all_lost() -> None:
    counted = profile(np.float32([2.0**-10, 3.0]), E4M3FN)
    assert counted.lost[[0, -1]].tolist() == [1.0, 1.0]
    assert counted.lost_at(-(10**6)) == counted.lost_at(10**6) == 1.0
    assert np.array_equal(np.diff(counted.scales), np.ones(counted.scales.size - 1))
    assert 0 in counted.scales


def test_a_value_just_below_a_power_of_two_is_rounded_to_it() -> None:
    """(1 - 2**-12) 2**-14 becomes normal in binary16, (1 - 2**-10) 2**-14 does not."""
    for digits, subnormals in ((12, 0), (11, 0), (10, 1)):
        x = np.ldexp([1 - 2.0**-digits], -14)
        for k in (0, 5):
            counted = profile(np.ldexp(x, -k), BINARY16)
            assert counted.subnormals == (subnormals if k == 0 else 1)
            assert counted.lost_at(k) == subnormals / 11


def test_scales_of_both_signs_at_equal_distance_prefer_the_larger() -> None:
    """2 saves a digit of eleven subnormals, 1/2 both values beyond the range: 22 digits each."""
    x = np.array([2.0**-15] * 11 + [2.0**16] * 2)
    counted = profile(x, BINARY16)
    assert counted.lost_at(1) == counted.lost_at(-1) < counted.lost_at(0)
    assert counted.scale_exponent == 1


def test_nan_and_infinity_are_counted_and_change_nothing_else() -> None:
    x = np.float32([1e-9, 1.0])
    few, many = profile(x, BINARY16), profile(np.append(x, [np.nan] * 6 + [np.inf]), BINARY16)
    assert (many.share("nans"), many.infinities, many.n) == (6 / 9, 1, 9)
    for name in ("underflows", "overflows", "subnormals", "inexact", "scale_exponent"):
        assert getattr(few, name) == getattr(many, name)
    assert np.array_equal(few.lost, many.lost)
    nothing = profile(np.float32([np.nan, np.inf]), BINARY16)
    assert (nothing.nans, nothing.scale_exponent, nothing.lost.tolist()) == (1, 0, [0.0])


def test_bytes_of_a_file_are_read_as_the_type_that_is_named() -> None:
    values = np.array([0.5, -3.0], ml_dtypes.bfloat16)
    unnamed = values.view("V2")
    counted = profile(unnamed, BINARY16, "bfloat16")
    assert counted.exponents.tolist() == [-1, 1]
    assert profile(values, BINARY16, "bfloat16").exponents.tolist() == [-1, 1]
    with pytest.raises(
        TypeError, match=r"dtype \|V2; .*; name the type of its bytes, as in dtype="
    ):
        profile(unnamed, BINARY16)
    with pytest.raises(TypeError, match="dtype='float8_e5m2' has 1 bytes, elements of the array"):
        profile(unnamed, BINARY16, "float8_e5m2")
    with pytest.raises(TypeError, match="dtype='bfloat' is no type of ml_dtypes"):
        profile(unnamed, BINARY16, "bfloat")


@pytest.mark.parametrize(
    "dtype",
    [np.float16, np.float32, ml_dtypes.bfloat16, ml_dtypes.float8_e5m2, ml_dtypes.float4_e2m1fn],
)
def test_every_float_type_is_read_exactly(dtype: type) -> None:
    x = np.array([[0.5, -2.0], [0.0, 6.0]], dtype)
    counted = profile(x, BINARY16)
    assert (counted.n, counted.zeros, counted.inexact) == (4, 1, 0)
    assert dict(zip(counted.exponents.tolist(), counted.counts.tolist(), strict=True)) == {
        -1: 1, 1: 1, 2: 1,
    }


def test_binary64_loses_nothing_of_binary64() -> None:
    x = np.array([5e-324, 1.7976931348623157e308, 0.1, 2.2250738585072014e-308])
    counted = profile(x, BINARY64)
    assert (counted.underflows, counted.overflows, counted.inexact, counted.subnormals) == (
        0,
        0,
        0,
        1,
    )
    assert counted.scale_exponent == 0


def test_chunks_add_up() -> None:
    x = np.random.default_rng(3).standard_normal(600_001).astype(np.float32)
    counted = profile(x, E4M3FN)
    assert counted.counts.sum() + counted.zeros == x.size
    parts = [profile(part, E4M3FN) for part in np.array_split(x, 7)]
    for name in ("underflows", "overflows", "subnormals", "inexact"):
        assert getattr(counted, name) == sum(getattr(p, name) for p in parts)


def test_empty_arrays_have_an_empty_profile() -> None:
    counted = profile(np.zeros((0, 3), np.float32), BINARY16)
    assert (counted.n, counted.scale_exponent, counted.exponents.size) == (0, 0, 0)
    assert counted.share("zeros") == 0.0


@pytest.mark.parametrize("wrong", [np.arange(3), np.array(["x"]), np.array([1j]), np.array([None])])
def test_other_dtypes_are_refused(wrong: np.ndarray) -> None:
    with pytest.raises(TypeError, match="give float16, float32, float64 or an ml_dtypes type"):
        profile(wrong, BINARY16)
