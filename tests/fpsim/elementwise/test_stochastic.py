"""Stochastic rounding by enumeration: every random pattern, counted against the definition.

Kinds: **exhaustive** (all 2**r patterns of every value), **golden** (moments of the ideal rule).
The definition (docs/semantics.md §1): with |x| = (m + w) q, the magnitude goes up iff w > 0 and
t + R >= 2**r, so of the 2**r patterns exactly t go up.
"""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest

import fpsim as fp
from fpsim.records.formats import CATALOGUE
from tests.tiers import pick

#: Every format that is rounded to: scales are not, and binary64 computes natively.
FORMATS = [
    *(f for f in CATALOGUE.values() if isinstance(f, fp.Format) and f != fp.BINARY64),
    fp.Format.custom(6, 26),
]
BITS = pick((1, 3, 8), *[tuple(range(1, 9))] * 2)


def values_of(fmt: fp.Format) -> np.ndarray:
    """Exact, ordinary, subnormal, below the smallest subnormal, around the largest value."""
    rng = np.random.default_rng(fmt.bits)
    ordinary = np.exp2(rng.uniform(fmt.emin, min(fmt.emax, 900), 40)) * rng.uniform(1, 2, 40)
    tiny = fmt.smallest_subnormal * np.concatenate(
        [rng.uniform(0, 9, 40), [0.5, 0.25, 2.0**-7, 2.0**-8, 2.0**-9, 1 - 2.0**-30, 1.5]]
    )
    step = fmt.ulp(fmt.max)
    top = fmt.max + step * np.array([0.0, 2.0**-9, 0.25, 0.5, 0.75, 1 - 2.0**-9, 1.0, 1.5, 7.3])
    exact = [0.0, fmt.smallest_subnormal, fmt.smallest_normal, 1.0, fmt.max]
    magnitudes = np.concatenate([exact, ordinary, tiny, top[np.isfinite(top)]])
    return np.concatenate([magnitudes, -magnitudes])


def parts(x: float, fmt: fp.Format) -> tuple[int, Fraction, Fraction]:
    """m, w and q of a magnitude, on the grid that goes on above the largest value."""
    exact = abs(Fraction(x))
    exponent = max(np.frexp(abs(x))[1] - 1, fmt.emin) if x else fmt.emin
    q = Fraction(2) ** int(exponent - fmt.precision + 1)
    m = int(exact / q)
    return m, exact / q - m, q


def residual_of(w: Fraction, r: int, residual: str) -> int:
    scaled = w * 2**r
    if residual == "truncate":
        return int(scaled)
    if residual == "half":
        return int(scaled + Fraction(1, 2))
    return round(scaled)  # Python rounds a Fraction's half to even


#: Formats and residuals; the quick tier has every residual in one format.
RESIDUALS = [(fmt, residual) for fmt in FORMATS for residual in ("truncate", "half", "even")]
FEW = [case for case in RESIDUALS if fp.BINARY16 in case or "truncate" in case]


@pytest.mark.parametrize("r", BITS)
@pytest.mark.parametrize(("fmt", "residual"), pick(FEW, RESIDUALS, RESIDUALS), ids=str)
def test_exactly_the_defined_patterns_go_up(fmt: fp.Format, r: int, residual: str) -> None:
    values = values_of(fmt)
    patterns = np.broadcast_to(np.arange(1 << r)[:, None], (1 << r, values.size))
    context = fp.Context(
        fmt, rounding=fp.SR(bits=r, residual=residual), overflow="saturate",
        bits=fp.Replay([patterns]),
    )
    got = context.array(np.broadcast_to(values, patterns.shape)).values
    for column, x in enumerate(values.tolist()):
        m, w, q = parts(x, fmt)
        t = residual_of(w, r, residual) if w else 0
        down, up = (float(min(n * q, Fraction(fmt.max))) for n in (m, m + 1))
        # R goes up iff R >= 2**r - t.
        magnitudes = [down] * ((1 << r) - t) + [up] * t
        assert np.abs(got[:, column]).tolist() == magnitudes, (fmt, r, residual, x)
        signs = np.signbit(got[:, column]) == np.signbit(x)
        assert (signs | ((got[:, column] == 0) & (not fmt.has_negative_zero))).all()


@pytest.mark.parametrize("fmt", [fp.BINARY16, fp.E4M3FN, fp.BFLOAT16], ids=str)
def test_overflow_is_raised_by_the_patterns_that_overflow(fmt: fp.Format) -> None:
    r, x = 4, fmt.max + fmt.ulp(fmt.max) * 0.75
    for pattern in range(1 << r):
        context = fp.Context(fmt, rounding=fp.SR(bits=r), bits=fp.Replay([[pattern]]))
        value = float(context.array([x])[0])
        goes_up = 12 + pattern >= 16
        assert (fp.Flags.OVERFLOW in context.flags) == goes_up
        assert (value == fmt.max) == (not goes_up)


@pytest.mark.parametrize("fmt", [fp.BINARY16, fp.BFLOAT16, fp.E4M3FN, fp.BINARY32], ids=str)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_what_no_digit_sees_never_goes_up(fmt: fp.Format, dtype: type) -> None:
    """R of all ones with the most bits: 0, and less than 2**-bits of the quantum, stay."""
    bits = fmt.sr_bits_max
    quantum = fmt.smallest_subnormal
    x = np.array([0.0, -0.0, quantum * 2.0**-bits / 2, quantum * 2.0**-bits], dtype)
    ones = np.full(x.size, (1 << bits) - 1)
    visible = [0, 0, 0, float(x[3] > 0)]  # the last is lost where the input type has no such number
    got = fp.round_to(x, fmt, fp.SR(bits), random=ones)
    np.testing.assert_array_equal(got / quantum, visible)


def test_one_fair_bit_moves_only_what_is_not_exact() -> None:
    values = [1.0, 1 + 2.0**-30, -(1 + 2.0**-30), 2.0**-40]
    for pattern, expected in (
        (0, [1, 1, -1, 0]),
        (1, [1, 1 + 2.0**-10, -(1 + 2.0**-10), 2.0**-24]),
    ):
        context = fp.Context(fp.BINARY16, rounding=fp.SR_EQUAL, bits=fp.Replay([[pattern] * 4]))
        assert context.array(values).values.tolist() == expected


@pytest.mark.parametrize("fmt", FORMATS, ids=str)
def test_a_fair_coin_is_off_by_half_a_quantum_less_the_tail(fmt: fp.Format) -> None:
    """S4: the mean is the middle, the bias (1/2 - w) q and the variance q**2 / 4, whatever w."""
    values = values_of(fmt)
    values = values[(values > 0) & (values <= fmt.max)]
    coin = np.repeat([[0], [1]], values.size, axis=1)
    context = fp.Context(fmt, rounding=fp.SR_EQUAL, bits=fp.Replay([coin]))
    down, up = (map(Fraction, ends) for ends in context.array([values, values]).values.tolist())
    for x, low, high in zip(values.tolist(), down, up, strict=True):
        _, w, q = parts(x, fmt)
        mean = (low + high) / 2
        variance = (low - mean) ** 2 / 2 + (high - mean) ** 2 / 2
        assert mean - Fraction(x) == ((Fraction(1, 2) - w) * q if w else 0)
        assert variance == (q**2 / 4 if w else 0)


@pytest.mark.parametrize("fmt", [fp.BINARY16, fp.BFLOAT16], ids=str)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_devices_rule_looks_at_more_digits_below_the_normals(
    fmt: fp.Format, dtype: type
) -> None:
    """A result k binades below the smallest normal uses min(13 + k, 16) digits."""
    rule = fp.SR(bits=13, subnormal_bits=16)
    for k in range(8):
        digits = min(13 + k, 16)
        value = 2.0 ** (fmt.emin - k) + fmt.smallest_subnormal * 2.0**-digits
        patterns = np.array([(1 << digits) - 1, (1 << digits) - 2])
        context = fp.Context(fmt, rounding=rule, bits=fp.Replay([patterns]))
        up, stays = context.array(np.array([value, value], dtype)).values.tolist()
        assert up > stays == 2.0 ** (fmt.emin - k), k


@pytest.mark.parametrize("operation", ["add", "multiply", "divide", "sqrt", "fma"])
def test_operations_keep_the_digits_that_the_rule_looks_at(operation: str) -> None:
    """The exact result, not a rounded one, decides: every pattern, at the most bits allowed."""
    rng = np.random.default_rng(6)
    fmt, r = fp.BINARY16, 8
    plain = fp.Context(fmt)
    x, y, z = (plain.array(rng.uniform(0.5, 8, 60)) for _ in range(3))
    operands = {"sqrt": (x,), "fma": (x, y, z)}.get(operation, (x, y))
    exact = [
        _exact(operation, *map(Fraction, row))
        for row in zip(*(o.values.tolist() for o in operands), strict=True)
    ]
    for pattern in range(1 << r):
        context = fp.Context(fmt, rounding=fp.SR(bits=r), bits=fp.Replay([np.full(60, pattern)]))
        got = getattr(context, operation)(*operands).values.tolist()
        for value, v in zip(got, exact, strict=True):
            m, w, q = _split(v, fmt)
            assert Fraction(value) == (m + (int(w * 2**r) + pattern >= 1 << r)) * q


def _exact(
    operation: str, x: Fraction, y: Fraction = Fraction(0), z: Fraction = Fraction(0)
) -> Fraction:
    if operation == "sqrt":
        # The root to 60 digits, cut; more than the 8 + 11 that matter, and exact where it is exact.
        scaled = x * 2**160
        root = int(scaled) if scaled.denominator == 1 else 0
        return Fraction(math.isqrt(root), 2**80)
    return {"add": x + y, "multiply": x * y, "divide": x / (y or 1), "fma": x * y + z}[operation]


def _split(v: Fraction, fmt: fp.Format) -> tuple[int, Fraction, Fraction]:
    exponent = v.numerator.bit_length() - v.denominator.bit_length()
    if Fraction(2) ** exponent > v:
        exponent -= 1
    q = Fraction(2) ** (max(exponent, fmt.emin) - fmt.precision + 1)
    m = int(v / q)
    return m, v / q - m, q


def test_the_mean_is_the_value_cut_to_the_digits_seen() -> None:
    """S2: with r bits E[SR(x)] is x cut to precision + r digits; with all of them it is x (S1)."""
    x, r = 1 + 2.0**-10 * 0.7, 8
    patterns = np.arange(1 << r)
    context = fp.Context(fp.BINARY16, rounding=fp.SR(bits=r), bits=fp.Replay([patterns]))
    values = context.array(np.full(1 << r, x)).values.astype(np.float64)
    assert values.mean() == 1 + 2.0**-10 * int(0.7 * 2**r) / 2**r
    w, q = int(0.7 * 2**r) / 2**r, 2.0**-10
    assert np.isclose(values.var(), w * (1 - w) * q * q, rtol=1e-12)
