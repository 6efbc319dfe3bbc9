"""The oracle's rounding: golden answers of every mode and end of a range, then others' rounding.

Numbers of the golden tests follow by hand from docs/semantics.md §1 and §3; ml_dtypes and gfloat
are differential.
"""

from __future__ import annotations

import math
import random
from fractions import Fraction

import gfloat
import gfloat.formats as gff
import numpy as np
import pytest

from fpsim.judge.oracle import (
    OracleSettings,
    convert,
    decode,
    operate,
    round_exact,
)
from fpsim.records.flags import Flags
from fpsim.records.formats import (
    BFLOAT16,
    BINARY16,
    BINARY64,
    E2M1FN,
    E2M3FN,
    E3M2FN,
    E4M3,
    E4M3FN,
    E5M2,
    F143,
    F152,
    Format,
)
from fpsim.records.rounding import (
    MODES,
    RAZ,
    RNA,
    RNE,
    RNZ,
    RTN,
    RTO,
    RTP,
    RTZ,
    SR,
    SR_EQUAL,
    Rounding,
)
from tests.tiers import pick

X, U, O, D, V = Flags.INEXACT, Flags.UNDERFLOW, Flags.OVERFLOW, Flags.DIVBYZERO, Flags.INVALID  # noqa: E741
NONE = Flags.NONE
ONE, MAX, INF, MINUS_INF, ZERO, MINUS_ZERO = 0x3C00, 0x7BFF, 0x7C00, 0xFC00, 0x0000, 0x8000
QNAN, SNAN = 0x7E00, 0x7D01
TINY = Fraction(1, 2**24)  # smallest subnormal of binary16
DETERMINISTIC = [m for m in MODES.values() if not m.stochastic]


def word(r_bits: int, r: int) -> int:
    """The 32-bit word whose top r bits are R."""
    return r_bits << (32 - r)


# Rounding ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("mode", "ups"),
    # Of 1 + k/4 ulp and 1 ulp more, for + and -: which go away from zero.
    [
        (RNE, "---+ --++"), (RNA, "--++ --++"), (RNZ, "---+ ---+"), (RTZ, "---- ----"),
        (RAZ, "-+++ -+++"), (RTO, "-+++ ----"),
    ],
    ids=str,
)
def test_modes_decide_as_their_definitions(mode: Rounding, ups: str) -> None:
    for sign in (1, -1):
        result = ""
        for m in (2**10, 2**10 + 1):
            for quarters in range(4):
                x = sign * (m + Fraction(quarters, 4)) / 2**10
                code, flags = round_exact(x, BINARY16, mode)
                assert flags == (X if quarters else NONE)
                result += "+" if (code & 0x7FFF) > ONE + m - 2**10 else "-"
            result += " "
        assert result.strip() == ups


def test_directed_modes_look_at_the_sign() -> None:
    x = 1 + Fraction(1, 2**20)
    for mode, positive, negative in ((RTP, ONE + 1, ONE), (RTN, ONE, ONE + 1)):
        assert round_exact(x, BINARY16, mode) == (positive, X)
        assert round_exact(-x, BINARY16, mode) == (0x8000 | negative, X)


@pytest.mark.parametrize(
    ("residual", "counts"),
    # Round-ups among the 4 patterns of 2 bits for w = k/16.
    [
        ("truncate", [0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3]),
        ("half", [0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3, 4, 4]),
        ("even", [0, 0, 0, 1, 1, 1, 2, 2, 2, 2, 2, 3, 3, 3, 4, 4]),
    ],
)
@pytest.mark.parametrize("base", [ONE, 0x0005, 0x0000])
def test_sr_goes_up_as_often_as_its_residual_says(
    residual: str, counts: list[int], base: int
) -> None:
    value, q = decode(base, BINARY16).magnitude, TINY if base < 0x400 else Fraction(1, 2**10)
    for k, count in enumerate(counts):
        x = value + Fraction(k, 16) * q
        codes = [
            round_exact(x, BINARY16, SR(2, residual), word=word(r, 2))[0] - base for r in range(4)
        ]
        assert sorted(codes) == [0] * (4 - count) + [1] * count
        assert codes == sorted(codes)


def test_sr_equal_tosses_a_fair_coin_and_leaves_exact_values() -> None:
    x = 1 + Fraction(1, 2**30)
    assert round_exact(x, BINARY16, SR_EQUAL, word=1 << 31)[0] == ONE + 1
    assert round_exact(x, BINARY16, SR_EQUAL, word=2**31 - 1)[0] == ONE
    assert round_exact(1, BINARY16, SR_EQUAL, word=2**32 - 1) == (ONE, NONE)


def test_the_ipu_rule_uses_more_digits_below_the_normals() -> None:
    rule = SR(13, subnormal_bits=16)
    for below, digits in ((0, 13), (1, 14), (3, 16), (4, 16), (9, 16)):
        q = Fraction(1, 2**24)
        x = Fraction(1, 2 ** (14 + below)) + q / 2**digits
        base = round_exact(x, BINARY16, RTZ)[0]
        up = word(2**digits - 1, digits)
        assert round_exact(x, BINARY16, rule, word=up)[0] == base + 1
        assert round_exact(x, BINARY16, rule, word=up - 1)[0] == base


def test_exact_values_never_move() -> None:
    for fmt in (E2M1FN, E4M3FN, E5M2, F143):
        for code in range(fmt.n_codes):
            d = decode(code, fmt)
            if d.kind != "finite":
                continue
            for mode in (*MODES.values(), SR(5), SR(5, "half"), SR(5, "even")):
                result = round_exact(d.value, fmt, mode, word=2**32 - 1, sign_of_zero=d.sign)
                assert result == (code, NONE)


# The ends of the range -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("x", "mode", "code", "flags"),
    [
        (65519, RNE, MAX, X), (65520, RNE, INF, O | X), (65520, RNZ, MAX, X),
        (65520, RNA, INF, O | X), (65519, RTP, INF, O | X), (65536, RTZ, MAX, O | X),
        (65535, RTZ, MAX, X), (2**20, RTO, MAX, O | X), (65535, RTO, MAX, X),
        (2**20, RTN, MAX, O | X), (-(2**20), RTN, MINUS_INF, O | X),
        (-(2**20), RTP, 0x8000 | MAX, O | X), (65505, RAZ, INF, O | X), (2**20, RNE, INF, O | X),
    ],
)
def test_overflow(x: int, mode: Rounding, code: int, flags: Flags) -> None:
    assert round_exact(Fraction(x), BINARY16, mode) == (code, flags)


def test_overflow_policies_replace_infinities_only() -> None:
    for policy, code in (("infinity", INF), ("saturate", MAX), ("nan", QNAN)):
        assert round_exact(65520, BINARY16, overflow=policy) == (code, O | X)
        assert round_exact(65536, BINARY16, RTZ, overflow=policy) == (MAX, O | X)
        settings = OracleSettings(overflow=policy)
        assert operate("add", (INF, ONE), BINARY16, settings) == (INF, NONE)
    assert round_exact(-65520, BINARY16, overflow="nan") == (QNAN, O | X)


def test_default_overflow_is_what_the_format_can_hold() -> None:
    big = Fraction(10**6)
    for fmt, code in ((E5M2, 0xFC), (E4M3FN, 0x7F), (F143, 0x80), (E2M1FN, 0xF), (E2M3FN, 0x3F)):
        assert round_exact(-big, fmt) == (code, O | X)


def test_overflow_of_a_format_whose_largest_significand_is_even() -> None:
    largest = 0x7E  # 448; the grid goes on with 480
    assert round_exact(464, E4M3FN) == (largest, X)
    assert round_exact(465, E4M3FN) == (0x7F, O | X)
    assert round_exact(449, E4M3FN, RTZ) == (largest, X)
    assert round_exact(480, E4M3FN, RTZ) == (largest, O | X)
    assert round_exact(449, E4M3FN, RTO) == (largest, O | X)


def test_sr_overflows_only_for_draws_that_do() -> None:
    x = 65504 + Fraction(3, 4) * 32
    results = [round_exact(x, BINARY16, SR(2), word=word(r, 2)) for r in range(4)]
    assert results == [(MAX, X)] + [(INF, O | X)] * 3
    # Beyond the next grid point every draw does, and so do exact results.
    for x in (65536 + Fraction(3, 4) * 64, Fraction(2**17)):
        assert {round_exact(x, BINARY16, SR(2), word=word(r, 2)) for r in range(4)} == {
            (INF, O | X)
        }


def test_underflow_is_tiny_and_inexact() -> None:
    normal = 2**10 * TINY
    # With unbounded exponent the quantum below the normals is TINY/2: a tie at TINY/4.
    just_tiny = normal - Fraction(5, 16) * TINY
    for x, after, before in (
        (just_tiny, X | U, X | U),
        (normal - TINY / 4, X, X | U),
        (normal - TINY / 2**13, X, X | U),
        (normal + TINY / 4, X, X),
        (5 * TINY, NONE, NONE),
        (TINY / 2, X | U, X | U),
    ):
        assert round_exact(x, BINARY16)[1] == after
        assert round_exact(x, BINARY16, tininess="before")[1] == before
        assert round_exact(x, BINARY16, SR(8))[1] == before
    assert round_exact(just_tiny, BINARY16)[0] == 0x0400


@pytest.mark.source("facts: P1, P2")
def test_smallest_numbers_of_binary16() -> None:
    assert round_exact(TINY / 2, BINARY16)[0] == ZERO
    assert round_exact(-TINY / 2, BINARY16)[0] == MINUS_ZERO
    assert round_exact(Fraction(3.0e-8), BINARY16)[0] == 0x0001
    assert round_exact(Fraction(1e-8), BINARY16)[0] == ZERO
    assert round_exact(-TINY / 2, BINARY16, RTN)[0] == 0x8001
    assert round_exact(-TINY / 2, F143)[0] == 0


def test_flushed_results_keep_their_sign_and_raise() -> None:
    for how in ("flush_results", "flush_both"):
        assert round_exact(-5 * TINY, BINARY16, subnormals=how) == (MINUS_ZERO, U | X)
        assert round_exact(TINY / 3, BINARY16, RTP, subnormals=how) == (ZERO, U | X)
        # Tiny is judged after rounding with unbounded exponent: this one reaches the normals.
        x = 2**10 * TINY - TINY / 2**13
        assert round_exact(x, BINARY16, subnormals=how) == (0x0400, X)
        assert round_exact(x, BINARY16, subnormals=how, tininess="before") == (ZERO, U | X)


# Against others -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "fmt", [BINARY16, BFLOAT16, E4M3, E4M3FN, E5M2, F143, F152, E2M3FN, E3M2FN, E2M1FN], ids=str
)
def test_conversions_agree_with_ml_dtypes(fmt: Format) -> None:
    values = hard_floats(fmt, pick(500, 20_000, 100_000))
    with np.errstate(all="ignore"):
        theirs = values.astype(fmt.packed).view(fmt.code_dtype)
    for x, expected in zip(values.tolist(), theirs.tolist(), strict=True):
        result, _ = convert(int(np.float64(x).view(np.uint64)), BINARY64, fmt)
        nan = decode(expected, fmt).kind == decode(result, fmt).kind == "nan"
        assert result == expected or nan, x.hex()


def hard_floats(fmt: Format, n: int) -> np.ndarray:
    """Midpoints, their neighbours and the format's ends, exact in binary32 (no double rounding)."""
    pick_one = random.Random(3)
    digits, quantum = fmt.precision + 2, fmt.emin - fmt.precision - 2
    values = [fmt.max * k for k in (1, 1.015625, 1.03125, 1.0625, 1.125, 2)]
    values += [math.inf, -0.0, 0.0]
    while len(values) < n:
        e = pick_one.randint(quantum, fmt.emax - digits + 2)
        m = pick_one.getrandbits(digits)
        values.append(math.ldexp(pick_one.choice((-1, 1)) * m, e))
    array = np.array(values)
    finite: np.ndarray = array[np.abs(array) < 3e38]
    return finite


GFLOAT_MODES = {
    RNE: gfloat.RoundMode.TiesToEven, RNA: gfloat.RoundMode.TiesToAway,
    RTZ: gfloat.RoundMode.TowardZero, RTP: gfloat.RoundMode.TowardPositive,
    RTN: gfloat.RoundMode.TowardNegative,
}
GFLOAT_FORMATS = [
    (BINARY16, gff.format_info_binary16), (BFLOAT16, gff.format_info_bfloat16),
    (E4M3FN, gff.format_info_ocp_e4m3), (E5M2, gff.format_info_ocp_e5m2),
]


@pytest.mark.parametrize("mode", GFLOAT_MODES, ids=str)
@pytest.mark.parametrize(("fmt", "info"), GFLOAT_FORMATS)
def test_rounding_agrees_with_gfloat(fmt: Format, info: gfloat.FormatInfo, mode: Rounding) -> None:
    for x in hard_floats(fmt, pick(150, 5000, 50_000)).tolist():
        theirs = gfloat.round_float(info, x, GFLOAT_MODES[mode])
        result, _ = convert(int(np.float64(x).view(np.uint64)), BINARY64, fmt, OracleSettings(mode))
        d = decode(result, fmt)
        if math.isnan(theirs) or math.isinf(theirs):
            assert d.kind == ("nan" if math.isnan(theirs) else "infinite"), x.hex()
        else:
            assert (d.value, d.sign) == (Fraction(theirs), int(math.copysign(1, theirs) < 0))


def test_sr_agrees_with_gfloat_for_every_pattern() -> None:
    info = gff.format_info_ocp_e5m2
    fast, nearest = gfloat.RoundMode.StochasticFastest, gfloat.RoundMode.Stochastic
    for x in hard_floats(E5M2, 200).tolist():
        if abs(x) > E5M2.max:
            continue
        for r in range(8):
            for mode, how in ((fast, "truncate"), (nearest, "even")):
                theirs = gfloat.round_float(info, x, mode, srbits=r, srnumbits=3)
                result = round_exact(x, E5M2, SR(3, how), word=word(r, 3))[0]
                ours = decode(result, E5M2)
                assert ours.kind == "infinite" or ours.value == Fraction(theirs)
