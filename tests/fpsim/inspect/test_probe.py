"""Probe: golden fields, exhaustive neighbours of small formats, chances by enumeration (S1, S2)."""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import pairwise

import pytest

from fpsim.inspect.probe import fields, neighbours, probability_up, real, value_table
from fpsim.judge import oracle
from fpsim.records.formats import (
    BFLOAT16,
    BINARY16,
    CATALOGUE,
    E2M1FN,
    E4M3FN,
    E5M2,
    F143,
    TF32,
    Format,
)
from fpsim.records.rounding import MODES, SR, SR_EQUAL, Rounding
from tests.tiers import pick

TABLES = [f for f in CATALOGUE.values() if isinstance(f, Format) and f.bits <= 8]


@pytest.mark.parametrize(
    ("code", "kind", "pattern", "value"),
    [
        (0x3C00, "normal", "0 01111 0000000000", 1.0),
        (0xFBFF, "normal", "1 11110 1111111111", -65504.0),
        (0x0001, "subnormal", "0 00000 0000000001", 2.0**-24),
        (0x8000, "zero", "1 00000 0000000000", -0.0),
        (0xFC00, "infinity", "1 11111 0000000000", -math.inf),
        (0x7E00, "quiet NaN", "0 11111 1000000000", math.nan),
        (0x7D01, "signalling NaN", "0 11111 0100000001", math.nan),
    ],
)
def test_fields_of_binary16(code: int, kind: str, pattern: str, value: float) -> None:
    result = fields(code, BINARY16)
    assert (result.kind, result.pattern) == (kind, pattern)
    assert math.isnan(value) == math.isnan(result.value)
    if not math.isnan(value):
        assert (result.value, math.copysign(1, result.value)) == (value, math.copysign(1, value))


@pytest.mark.parametrize("fmt", TABLES, ids=str)
def test_every_number_is_its_significand_times_a_power(fmt: Format) -> None:
    table = value_table(fmt)
    assert [row.code for row in table] == list(range(fmt.n_codes))
    for row in table:
        if row.exponent is None or row.significand is None:
            assert row.ulp is None
            assert row.kind in ("infinity", "quiet NaN", "signalling NaN")
            continue
        q = Fraction(2) ** (row.exponent - fmt.precision + 1)
        assert abs(Fraction(row.value)) == row.significand * q
        assert row.ulp is not None
        assert Fraction(row.ulp) == q


def test_tables_of_wide_formats_and_codes_beyond_the_width_are_refused() -> None:
    with pytest.raises(ValueError, match="a table holds at most 65536"):
        value_table(TF32)
    with pytest.raises(ValueError, match="codes 0 to 0xf"):
        fields(16, E2M1FN)


@pytest.mark.parametrize("fmt", TABLES, ids=str)
def test_neighbours_are_the_next_values_of_the_table(fmt: Format) -> None:
    values = sorted({row.value for row in value_table(fmt) if not math.isnan(row.value)})
    finite = [v for v in values if math.isfinite(v)]
    between = [(Fraction(a) + Fraction(b)) / 2 for a, b in pairwise(finite)]
    for x in [*map(Fraction, finite), *between, 3 * Fraction(fmt.max), -3 * Fraction(fmt.max)]:
        below = max((v for v in values if v < x), default=None)
        above = min((v for v in values if v > x), default=None)
        assert neighbours(x, fmt) == (below, above)


@pytest.mark.source("Croci et al. 2022; El Arar et al. 2024")
@pytest.mark.parametrize("residual", ["truncate", "half", "even"])
@pytest.mark.parametrize("fmt", pick([E5M2], *[[BINARY16, E5M2, F143]] * 2), ids=str)
def test_chances_of_sr_are_the_counts_of_all_patterns(fmt: Format, residual: str) -> None:
    r = 4
    for x in hard_numbers(fmt):
        for rounding in (SR(r, residual), SR(r, residual, subnormal_bits=6)):
            ups = sum(goes_up(x, fmt, rounding, w << 26) for w in range(64))
            assert probability_up(x, fmt, rounding) == Fraction(ups, 64)


def goes_up(x: Fraction, fmt: Format, rounding: Rounding, word: int) -> bool:
    code, _ = oracle.round_exact(x, fmt, rounding, word=word)
    return abs(oracle.decode(code, fmt).value) > abs(x)


def hard_numbers(fmt: Format) -> list[Fraction]:
    q = Fraction(fmt.smallest_subnormal)
    starts = [Fraction(0), q, 5 * q, Fraction(fmt.smallest_normal) - q, Fraction(1)]
    tails = [Fraction(k, 64) for k in (0, 1, 2, 7, 31, 32, 33, 62, 63)]
    results = []
    for start in starts:
        unit = Fraction(fmt.ulp(float(start)))
        results += [sign * (start + tail * unit) for tail in tails for sign in (1, -1)]
    return results


@pytest.mark.parametrize("mode", [m for m in MODES.values() if not m.stochastic], ids=str)
def test_deterministic_modes_go_up_with_certainty_or_not_at_all(mode: Rounding) -> None:
    for x in hard_numbers(BFLOAT16):
        assert probability_up(x, BFLOAT16, mode) == goes_up(x, BFLOAT16, mode, 0)


def test_the_fair_coin_ignores_the_tail() -> None:
    assert probability_up(Fraction(1, 10), BINARY16, SR_EQUAL) == Fraction(1, 2)
    assert probability_up(1, BINARY16, SR_EQUAL) == 0


def test_reals_are_read_exactly() -> None:
    assert real(0.1) == Fraction(3602879701896397, 36028797018963968)
    assert real("0.1") == Fraction(1, 10)
    assert real("1e-8") == Fraction(1, 10**8)
    assert real("-0X1P-3") == Fraction(-1, 8)


def test_every_digit_of_a_hexadecimal_number_counts() -> None:
    assert real("0x1.00000000000000001p0") == 1 + Fraction(1, 2**68)
    assert real(" -0x.8P+1 ") == -1
    assert real("0x10") == 16
    assert real("0x0p99999999999999999999") == 0


def test_numbers_beyond_every_format_are_decided_at_once() -> None:
    for text in ("1e999999999", "0x1p999999999", "1e" + "9" * 5000, "0x1p" + "9" * 5000):
        assert neighbours(text, BINARY16) == (65504.0, math.inf)
        assert neighbours(f"-{text}", E4M3FN) == (None, -448.0)
    for text in ("1e-999999999", "0x1p-999999999", "1e-" + "9" * 5000):
        assert neighbours(text, BINARY16) == (0.0, 2.0**-24)
        assert probability_up(text, BINARY16, SR(4, "half")) == 0
        assert probability_up(text, BINARY16, MODES["RAZ"]) == 1
        assert len(str(real(text))) < 4300, "as long as Python prints integers"


@pytest.mark.parametrize("text", ["0x", "0x.p1", "0x1p", "0xg", "1x0", "x" * 9999])
def test_what_is_no_number_gets_one_short_sentence(text: str) -> None:
    with pytest.raises(ValueError, match="is no finite number") as error:
        real(text)
    assert len(str(error.value)) < 200


@pytest.mark.parametrize("text", ["one", "nan", "inf", math.inf, math.nan, "1/0", "0xz"])
def test_what_is_no_finite_number_is_refused(text: str | float) -> None:
    with pytest.raises(ValueError, match="give a decimal, a hexadecimal float or a fraction"):
        real(text)


def test_the_end_of_a_format_without_infinity_has_no_neighbour() -> None:
    assert neighbours(E4M3FN.max, E4M3FN) == (416.0, None)
    assert neighbours(-E4M3FN.max, E4M3FN) == (None, -416.0)
