"""Profiles: golden cases, and differential against the oracle on every number of hard arrays."""

from __future__ import annotations

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
    ])  # fmt: skip
    ends = np.concatenate([ends, np.nextafter(ends, 0), np.nextafter(ends, np.inf)])
    x = np.concatenate([x, ends, [0.0, -0.0, np.nan, np.inf, -np.inf, 5e-324, 1e308]])
    return x * np.where(rng.random(x.size) < 0.5, -1, 1)


@pytest.mark.parametrize("fmt", FORMATS, ids=str)
def test_counts_are_those_of_rounding_each_number(fmt: Format) -> None:
    x = hard_array(fmt, pick(600, 20_000, 200_000), 1)
    found = profile(x, fmt)
    finite = [Fraction(v) for v in x.tolist() if np.isfinite(v) and v != 0]
    results = [oracle.round_exact(v, fmt) for v in finite]
    data = [oracle.decode(code, fmt) for code, _ in results]
    normal = Fraction(fmt.smallest_normal)
    assert found.n == x.size
    assert found.zeros == int((x == 0).sum())
    assert (found.nans, found.infinities) == (int(np.isnan(x).sum()), int(np.isinf(x).sum()))
    assert found.overflows == sum(bool(f & Flags.OVERFLOW) for _, f in results)
    assert found.inexact == sum(bool(f & Flags.INEXACT) for _, f in results)
    assert found.underflows == sum(d.is_zero for d in data)
    assert found.subnormals == sum(d.kind == "finite" and 0 < d.magnitude < normal for d in data)
    assert found.counts.sum() == len(finite)


@pytest.mark.parametrize("fmt", FORMATS, ids=str)
def test_the_best_scale_loses_least_and_is_nearest_to_one(fmt: Format) -> None:
    rng = np.random.default_rng(2)
    for _ in range(pick(4, 40, 200)):
        centre = rng.integers(-60, 60)
        x = [
            Fraction(float(v))
            for v in np.ldexp(rng.standard_normal(40), centre + rng.integers(-12, 12, 40))
        ]
        found = profile(np.array([float(v) for v in x]), fmt)
        best = found.scale_exponent
        least = losses(x, best, fmt)
        assert least == found.scaled_underflows + found.scaled_overflows
        nearer = [k for k in range(-abs(best), abs(best) + 1) if k not in (best, -abs(best))]
        for k in nearer[:: max(1, len(nearer) // 6)]:
            assert losses(x, k, fmt) > least
        for k in (best + 1, best - 1, best + 7, best - 7):
            assert losses(x, k, fmt) >= least


def losses(x: list[Fraction], k: int, fmt: Format) -> int:
    return sum(loss(v * Fraction(2) ** k, fmt) for v in x)


def loss(x: Fraction, fmt: Format) -> bool:
    code, flags = oracle.round_exact(x, fmt)
    return bool(flags & Flags.OVERFLOW) or (x != 0 and oracle.decode(code, fmt).is_zero)


@pytest.mark.source("Micikevicius et al. 2018: gradients are shifted into the range by a scale")
def test_small_gradients_are_lifted() -> None:
    gradients = np.ldexp(1.0, np.arange(-40, -20))
    found = profile(gradients, BINARY16)
    assert found.underflows == 16  # below and at 2**-25
    assert (found.scale_exponent, found.scaled_underflows, found.scaled_overflows) == (16, 0, 0)
    assert found.exponents.tolist() == list(range(-40, -20))
    assert found.share("underflows") == 0.8


def test_scales_of_both_signs_at_equal_distance_prefer_the_larger() -> None:
    x = np.array([2.0**-25, 2.0**16])
    assert profile(x, BINARY16).scale_exponent == 1


@pytest.mark.parametrize(
    "dtype",
    [np.float16, np.float32, ml_dtypes.bfloat16, ml_dtypes.float8_e5m2, ml_dtypes.float4_e2m1fn],
)
def test_every_float_type_is_read_exactly(dtype: type) -> None:
    x = np.array([[0.5, -2.0], [0.0, 6.0]], dtype)
    found = profile(x, BINARY16)
    assert (found.n, found.zeros, found.inexact) == (4, 1, 0)
    assert dict(zip(found.exponents.tolist(), found.counts.tolist(), strict=True)) == {
        -1: 1, 1: 1, 2: 1,
    }  # fmt: skip


def test_binary64_loses_nothing_of_binary64() -> None:
    x = np.array([5e-324, 1.7976931348623157e308, 0.1, 2.2250738585072014e-308])
    found = profile(x, BINARY64)
    assert (found.underflows, found.overflows, found.inexact, found.subnormals) == (0, 0, 0, 1)
    assert found.scale_exponent == 0


def test_chunks_add_up() -> None:
    x = np.random.default_rng(3).standard_normal(600_001).astype(np.float32)
    found = profile(x, E4M3FN)
    assert found.counts.sum() + found.zeros == x.size
    parts = [profile(part, E4M3FN) for part in np.array_split(x, 7)]
    for name in ("underflows", "overflows", "subnormals", "inexact"):
        assert getattr(found, name) == sum(getattr(p, name) for p in parts)


def test_empty_arrays_have_an_empty_profile() -> None:
    found = profile(np.zeros((0, 3), np.float32), BINARY16)
    assert (found.n, found.scale_exponent, found.exponents.size) == (0, 0, 0)
    assert found.share("zeros") == 0.0


@pytest.mark.parametrize("wrong", [np.arange(3), np.array(["x"]), np.array([1j]), np.array([None])])
def test_other_dtypes_are_refused(wrong: np.ndarray) -> None:
    with pytest.raises(TypeError, match="give float16, float32, float64 or an ml_dtypes type"):
        profile(wrong, BINARY16)
