"""The judge judged: golden answers of every ruling, then numpy, ml_dtypes, gfloat and TestFloat.

Numbers of the golden tests follow by hand from docs/semantics.md §1 and §3.
"""

from __future__ import annotations

import gzip
import math
import random
from collections.abc import Iterator
from fractions import Fraction
from itertools import islice

import gfloat
import gfloat.formats as gff
import numpy as np
import pytest

from fpsim.judge.oracle import (
    Settings,
    convert,
    decode,
    elementwise_R,
    from_integer,
    operate,
    philox,
    product_R,
    round_exact,
    spawn_seed,
    to_integer,
)
from fpsim.records.flags import Flags
from fpsim.records.formats import (
    BFLOAT16,
    BINARY16,
    BINARY32,
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
from tests.vectors import TESTFLOAT, recorded_lines

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
)  # fmt: skip
def test_modes_decide_as_their_definitions(mode: Rounding, ups: str) -> None:
    for sign in (1, -1):
        found = ""
        for m in (2**10, 2**10 + 1):
            for quarters in range(4):
                x = sign * (m + Fraction(quarters, 4)) / 2**10
                code, flags = round_exact(x, BINARY16, mode)
                assert flags == (X if quarters else NONE)
                found += "+" if (code & 0x7FFF) > ONE + m - 2**10 else "-"
            found += " "
        assert found.strip() == ups


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
                found = round_exact(d.value, fmt, mode, word=2**32 - 1, sign_of_zero=d.sign)
                assert found == (code, NONE)


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
)  # fmt: skip
def test_overflow(x: int, mode: Rounding, code: int, flags: Flags) -> None:
    assert round_exact(Fraction(x), BINARY16, mode) == (code, flags)


def test_overflow_policies_replace_infinities_only() -> None:
    for policy, code in (("infinity", INF), ("saturate", MAX), ("nan", QNAN)):
        assert round_exact(65520, BINARY16, overflow=policy) == (code, O | X)
        assert round_exact(65536, BINARY16, RTZ, overflow=policy) == (MAX, O | X)
        settings = Settings(overflow=policy)
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
    found = [round_exact(x, BINARY16, SR(2), word=word(r, 2)) for r in range(4)]
    assert found == [(MAX, X)] + [(INF, O | X)] * 3
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


def test_flush_both_reads_subnormal_operands_as_zero() -> None:
    both = Settings(subnormals="flush_both")
    assert operate("add", (ONE, 0x0001), BINARY16, both) == (ONE, NONE)
    assert operate("divide", (ONE, 0x8001), BINARY16, both) == (MINUS_INF, D)
    assert operate("equal", (0x0001, 0x8002), BINARY16, both) == (1, NONE)
    assert operate("negative", (0x0001,), BINARY16, both) == (0x8001, NONE)
    # Of conversions only those of the format itself; binary16's subnormals are numbers here.
    assert convert(0x0001, BINARY16, BINARY16, both) == (ZERO, NONE)
    assert convert(0x0001, BINARY16, BINARY32, both) == (0x33800000, NONE)
    assert convert(0x3E70000000000000, BINARY64, BINARY16, both) == (ZERO, U | X)


# Operations ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("op", "codes", "result"),
    [
        ("add", (INF, MINUS_INF), (QNAN, V)), ("subtract", (INF, INF), (QNAN, V)),
        ("add", (INF, ONE), (INF, NONE)), ("multiply", (INF, MINUS_ZERO), (QNAN, V)),
        ("multiply", (MINUS_INF, ONE), (MINUS_INF, NONE)), ("divide", (ZERO, ZERO), (QNAN, V)),
        ("divide", (INF, INF), (QNAN, V)), ("divide", (INF, ZERO), (INF, NONE)),
        ("divide", (ONE, MINUS_ZERO), (MINUS_INF, D)),
        ("divide", (ONE, MINUS_INF), (MINUS_ZERO, NONE)),
        ("sqrt", (MINUS_ZERO,), (MINUS_ZERO, NONE)), ("sqrt", (0xBC00,), (QNAN, V)),
        ("sqrt", (MINUS_INF,), (QNAN, V)), ("sqrt", (INF,), (INF, NONE)),
        ("sqrt", (0x4000,), (0x3DA8, X)), ("sqrt", (0x4400,), (0x4000, NONE)),
        ("fma", (INF, ZERO, ONE), (QNAN, V)), ("fma", (INF, ONE, MINUS_INF), (QNAN, V)),
        ("fma", (INF, ZERO, QNAN), (QNAN, V)), ("fma", (ONE, ONE, MINUS_INF), (MINUS_INF, NONE)),
        ("fma", (0x2E66, 0x4900, 0xBC00), (0x8C00, NONE)),
        ("ieee_remainder", (0x4500, 0x4200), (0xBC00, NONE)),
        ("fmod", (0x4500, 0x4200), (0x4000, NONE)),
        ("ieee_remainder", (0xC400, 0x4000), (MINUS_ZERO, NONE)),
        ("ieee_remainder", (ONE, ZERO), (QNAN, V)), ("ieee_remainder", (INF, ONE), (QNAN, V)),
        ("ieee_remainder", (0x8001, INF), (0x8001, NONE)),
        ("round_to_integral", (0x3800,), (ZERO, X)),
        ("round_to_integral", (0xB800,), (MINUS_ZERO, X)),
        ("round_to_integral", (0x3E00,), (0x4000, X)),
        ("round_to_integral", (MINUS_INF,), (MINUS_INF, NONE)),
        ("negative", (SNAN,), (0x8000 | SNAN, NONE)), ("absolute", (0xFD01,), (SNAN, NONE)),
        ("equal", (ZERO, MINUS_ZERO), (1, NONE)), ("equal", (QNAN, QNAN), (0, NONE)),
        ("less", (QNAN, ONE), (0, NONE)), ("less", (SNAN, ONE), (0, V)),
        ("less_signalling", (QNAN, ONE), (0, V)), ("less_equal_signalling", (ONE, INF), (1, NONE)),
        ("equal_signalling", (ONE, QNAN), (0, V)),
        ("less_equal", (MINUS_INF, MINUS_INF), (1, NONE)),
        ("maximum", (MINUS_ZERO, ZERO), (ZERO, NONE)),
        ("minimum", (ZERO, MINUS_ZERO), (MINUS_ZERO, NONE)),
        ("maximum", (ONE, QNAN), (QNAN, NONE)), ("fmax", (ONE, QNAN), (ONE, NONE)),
        ("fmin", (SNAN, ONE), (ONE, V)), ("fmin", (QNAN, QNAN), (QNAN, NONE)),
        ("minimum", (MINUS_INF, ONE), (MINUS_INF, NONE)),
    ],
)  # fmt: skip
def test_special_cases_of_binary16(
    op: str, codes: tuple[int, ...], result: tuple[int, Flags]
) -> None:
    assert operate(op, codes, BINARY16) == result


def test_an_exact_zero_sum_is_negative_only_when_rounding_down() -> None:
    for mode in DETERMINISTIC:
        s = Settings(rounding=mode)
        expected = MINUS_ZERO if mode is RTN else ZERO
        assert operate("add", (ONE, 0xBC00), BINARY16, s)[0] == expected
        assert operate("subtract", (ONE, ONE), BINARY16, s)[0] == expected
        assert operate("fma", (ONE, ONE, 0xBC00), BINARY16, s)[0] == expected
        assert operate("add", (ZERO, MINUS_ZERO), BINARY16, s)[0] == expected
        assert operate("add", (MINUS_ZERO, MINUS_ZERO), BINARY16, s)[0] == MINUS_ZERO
        assert operate("multiply", (MINUS_ZERO, ONE), BINARY16, s)[0] == MINUS_ZERO


def test_fnuz_zeros_have_no_sign() -> None:
    one, nan = 0x40, 0x80
    assert operate("multiply", (0, 0xC0), F143) == (0, NONE)
    assert operate("negative", (0,), F143) == (0, NONE)
    assert operate("negative", (nan,), F143) == (nan, NONE)
    assert operate("add", (one, 0xC0), F143, Settings(rounding=RTN)) == (0, NONE)
    assert operate("divide", (one, 0), F143) == (nan, D)


@pytest.mark.parametrize(
    ("policy", "op", "codes", "result"),
    [
        ("canonical", "add", (0xFE07, ONE), (QNAN, NONE)),
        ("canonical", "add", (SNAN, ONE), (QNAN, V)),
        ("propagate_first", "add", (0xFE07, 0x7E01), (0xFE07, NONE)),
        ("propagate_first", "add", (ONE, 0xFD01), (0xFF01, V)),
        ("propagate_first", "subtract", (ONE, 0x7E01), (0x7E01, NONE)),
        ("propagate_first", "divide", (ZERO, ZERO), (QNAN, V)),
        ("propagate_first", "fma", (INF, ZERO, 0xFE07), (0xFE07, V)),
        ("x86", "divide", (ZERO, ZERO), (0xFE00, V)),
        ("x86", "sqrt", (0xBC00,), (0xFE00, V)),
        ("x86", "add", (0x7E07, 0xFE01), (0x7E07, NONE)),
        ("x86", "fma", (INF, ZERO, 0x7E07), (0xFE00, V)),
        ("x86", "fma", (0x7E07, ZERO, SNAN), (0x7E07, V)),
    ],
)
def test_nan_policies(
    policy: str, op: str, codes: tuple[int, ...], result: tuple[int, Flags]
) -> None:
    assert operate(op, codes, BINARY16, Settings(nan=policy)) == result


def test_nan_payloads_keep_their_top_bits_in_conversions() -> None:
    keep = Settings(nan="propagate_first")
    assert convert(0xFF802001, BINARY32, BINARY16, keep) == (0xFE01, V)
    assert convert(0x7D01, BINARY16, BINARY32, keep) == (0x7FE02000, V)
    assert convert(0x7E00, BINARY16, E4M3FN, keep) == (0x7F, NONE)
    assert convert(0xFE00, BINARY16, E4M3FN, keep) == (0xFF, NONE)
    assert convert(0xFE00, BINARY16, F143, keep) == (0x80, NONE)
    assert convert(0xFF, E4M3FN, BINARY16, keep) == (0xFE00, NONE)


def test_quiet_nan_raises_is_a_choice() -> None:
    strict = Settings(quiet_nan_raises=True)
    assert operate("add", (QNAN, ONE), BINARY16, strict) == (QNAN, V)
    assert operate("equal", (QNAN, ONE), BINARY16, strict) == (0, V)
    assert convert(QNAN, BINARY16, BINARY32, strict) == (0x7FC00000, V)


def test_formats_without_nan_give_their_largest_value() -> None:
    assert operate("divide", (0, 0), E2M1FN) == (0x7, V)
    assert convert(QNAN, BINARY16, E2M3FN) == (0x1F, V)
    assert convert(0xFE00, BINARY16, E3M2FN, Settings(nan="x86")) == (0x1F, V)


def test_division_by_zero_follows_its_policy() -> None:
    nan = Settings(divide_by_zero="nan")
    assert operate("divide", (ONE, ZERO), BINARY16, nan) == (QNAN, D)
    saturate = Settings(overflow="saturate")
    assert operate("divide", (ONE, ZERO), BINARY16, saturate) == (INF, D)
    assert operate("divide", (0x38, 0x80), E4M3FN) == (0x7F, D)
    assert operate("divide", (0x38, 0x80), E4M3FN, saturate) == (0xFE, D)
    assert operate("divide", (0x2, 0x0), E2M1FN) == (0x7, D)


@pytest.mark.parametrize(
    ("fmt", "settings", "result"),
    [
        (BINARY32, Settings(), (0xFF800000, NONE)),
        (E5M2, Settings(infinite_input="saturate"), (0xFB, O | X)),
        (E5M2, Settings(infinite_input="nan"), (0x7E, O | X)),
        (E5M2, Settings(overflow="saturate"), (0xFC, NONE)),
        (E4M3FN, Settings(), (0x7F, O | X)),
        (E4M3FN, Settings(overflow="saturate"), (0xFE, O | X)),
        (E4M3FN, Settings(overflow="saturate", infinite_input="nan"), (0x7F, O | X)),
        (E2M1FN, Settings(), (0xF, O | X)),
    ],
)
def test_infinite_operands_of_conversions(
    fmt: Format, settings: Settings, result: tuple[int, Flags]
) -> None:
    assert convert(MINUS_INF, BINARY16, fmt, settings) == result


def test_conversions_round_once() -> None:
    code = int(np.float64(1 + 2.0**-11 + 2.0**-52).view(np.uint64))
    assert convert(code, BINARY64, BINARY16) == (ONE + 1, X)
    assert from_integer(2**24 + 1, BINARY32) == (0x4B800000, X)
    assert from_integer(2**64 - 1, BINARY32, Settings(rounding=RTZ)) == (0x5F7FFFFF, X)
    assert from_integer(0, BINARY32, Settings(rounding=RTN)) == (0, NONE)


@pytest.mark.parametrize(
    ("code", "kind", "mode", "result"),
    [
        (0x3E00, "i32", RNE, (2, X)), (0xBE00, "i32", RTZ, (-1, X)), (0xBE00, "i32", RTO, (-1, X)),
        (0x87FF, "i32", RTO, (-1, X)), (0x4100, "ui32", RNA, (3, X)), (0xB800, "ui32", RNE, (0, X)),
        (0xB800, "ui32", RTN, (2**32 - 1, V)), (QNAN, "i64", RNE, (-(2**63), V)),
        (SNAN, "ui64", RNE, (2**64 - 1, V)), (INF, "i32", RNE, (-(2**31), V)),
        (MINUS_ZERO, "ui32", RNE, (0, NONE)), (MAX, "ui32", RNE, (65504, NONE)),
    ],
)  # fmt: skip
def test_to_integers(code: int, kind: str, mode: Rounding, result: tuple[int, Flags]) -> None:
    assert to_integer(code, BINARY16, kind, Settings(rounding=mode)) == result


def test_integers_out_of_range_are_judged_after_rounding() -> None:
    half_below = int(np.float64(2**31 - 0.5).view(np.uint64))
    assert to_integer(half_below, BINARY64, "i32", Settings(rounding=RTZ)) == (2**31 - 1, X)
    assert to_integer(half_below, BINARY64, "i32") == (-(2**31), V)


def test_an_integral_that_the_format_lacks_overflows() -> None:
    assert operate("round_to_integral", (0x1F,), E2M3FN) == (0x1F, O | X)  # 7.5 -> 8
    assert operate("round_to_integral", (0x1F,), E2M3FN, Settings(rounding=RTZ)) == (0x1E, X)


# Against others ------------------------------------------------------------------------------


@pytest.mark.parametrize("op", ["add", "subtract", "multiply", "divide", "sqrt"])
def test_binary16_agrees_with_numpy(op: str) -> None:
    rng = np.random.default_rng(7)
    codes = rng.integers(0, 1 << 16, (pick(2000, 30_000, 200_000), 2), dtype=np.uint16)
    x, y = codes.view(np.float16).T
    with np.errstate(all="ignore"):
        theirs = np.sqrt(x) if op == "sqrt" else getattr(np, op)(x, y)
    for (a, b), expected in zip(codes.tolist(), theirs, strict=True):
        found, _ = operate(op, (a,) if op == "sqrt" else (a, b), BINARY16)
        same = found == int(expected.view(np.uint16))
        assert same or (found == QNAN and np.isnan(expected)), (hex(a), hex(b))


@pytest.mark.parametrize(
    "fmt", [BINARY16, BFLOAT16, E4M3, E4M3FN, E5M2, F143, F152, E2M3FN, E3M2FN, E2M1FN], ids=str
)
def test_conversions_agree_with_ml_dtypes(fmt: Format) -> None:
    values = hard_floats(fmt, pick(1500, 20_000, 100_000))
    with np.errstate(all="ignore"):
        theirs = values.astype(fmt.packed).view(fmt.code_dtype)
    for x, expected in zip(values.tolist(), theirs.tolist(), strict=True):
        found, _ = convert(int(np.float64(x).view(np.uint64)), BINARY64, fmt)
        nan = decode(expected, fmt).kind == decode(found, fmt).kind == "nan"
        assert found == expected or nan, x.hex()


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
    kept: np.ndarray = array[np.abs(array) < 3e38]
    return kept


GFLOAT_MODES = {
    RNE: gfloat.RoundMode.TiesToEven, RNA: gfloat.RoundMode.TiesToAway,
    RTZ: gfloat.RoundMode.TowardZero, RTP: gfloat.RoundMode.TowardPositive,
    RTN: gfloat.RoundMode.TowardNegative,
}  # fmt: skip
GFLOAT_FORMATS = [
    (BINARY16, gff.format_info_binary16), (BFLOAT16, gff.format_info_bfloat16),
    (E4M3FN, gff.format_info_ocp_e4m3), (E5M2, gff.format_info_ocp_e5m2),
]  # fmt: skip


@pytest.mark.parametrize("mode", GFLOAT_MODES, ids=str)
@pytest.mark.parametrize(("fmt", "info"), GFLOAT_FORMATS)
def test_rounding_agrees_with_gfloat(fmt: Format, info: gfloat.FormatInfo, mode: Rounding) -> None:
    for x in hard_floats(fmt, pick(400, 5000, 50_000)).tolist():
        theirs = gfloat.round_float(info, x, GFLOAT_MODES[mode])
        found, _ = convert(int(np.float64(x).view(np.uint64)), BINARY64, fmt, Settings(mode))
        d = decode(found, fmt)
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
                found = round_exact(x, E5M2, SR(3, how), word=word(r, 3))[0]
                ours = decode(found, E5M2)
                assert ours.kind == "infinite" or ours.value == Fraction(theirs)


# TestFloat: function name -> operation, operand formats
TESTFLOAT_MODES = {"near_even": RNE, "minMag": RTZ, "min": RTN, "max": RTP}
TESTFLOAT_OPS = {
    "add": "add", "sub": "subtract", "mul": "multiply", "div": "divide", "sqrt": "sqrt",
    "mulAdd": "fma", "rem": "ieee_remainder", "roundToInt": "round_to_integral", "eq": "equal",
    "le": "less_equal_signalling", "lt": "less_signalling",
}  # fmt: skip
FLOATS = {"f16": BINARY16, "f32": BINARY32, "f64": BINARY64, "bf16": BFLOAT16}


@pytest.mark.vectors
@pytest.mark.source("Berkeley TestFloat 3e, level 1, seed 1")
@pytest.mark.parametrize("function", TESTFLOAT)
def test_testfloat_vectors(function: str) -> None:
    for mode in TESTFLOAT[function]:
        settings = Settings(TESTFLOAT_MODES[mode], nan="x86")
        lines = list(sampled_lines(recorded_lines(function, mode), pick(150, 3000, 50_000)))
        assert lines
        for line in lines:
            *operands, expected, flags = (int(field, 16) for field in line.split())
            assert testfloat(function, operands, settings) == (expected, flags), line


def sampled_lines(path: object, n: int) -> Iterator[str]:
    """About n lines, evenly spread over the first 100 n and starting with the corners."""
    with gzip.open(path, "rt") as lines:  # type: ignore[call-overload]
        yield from islice(islice(lines, 100 * n), 0, None, 97)


def testfloat(function: str, operands: list[int], s: Settings) -> tuple[int, Flags]:
    source, _, target = function.partition("_to_")
    if not target:
        name, _, op = function.partition("_")
        return operate(TESTFLOAT_OPS[op], tuple(operands), FLOATS[name], s)
    if source == "i32":
        return from_integer(operands[0] - ((operands[0] >> 31) << 32), FLOATS[target], s)
    if target == "i32":
        n, flags = to_integer(operands[0], FLOATS[source], "i32", s)
        return n & 0xFFFFFFFF, flags
    return convert(operands[0], FLOATS[source], FLOATS[target], s)


testfloat.__test__ = False  # type: ignore[attr-defined]


# Random bits ---------------------------------------------------------------------------------


@pytest.mark.source("Random123 kat_vectors, philox4x32-10")
@pytest.mark.parametrize(
    ("counter", "key", "words"),
    [
        ("00000000 00000000 00000000 00000000", "00000000 00000000",
         "6627e8d5 e169c58d bc57ac4c 9b00dbd8"),
        ("ffffffff ffffffff ffffffff ffffffff", "ffffffff ffffffff",
         "408f276d 41c83b0e a20bc7c6 6d5451fd"),
        ("243f6a88 85a308d3 13198a2e 03707344", "a4093822 299f31d0",
         "d16cfe09 94fdcceb 5001e420 24126ea1"),
    ],
)  # fmt: skip
def test_philox_known_answers(counter: str, key: str, words: str) -> None:
    found = philox(numbers(counter), numbers(key))  # type: ignore[arg-type]
    assert " ".join(f"{w:08x}" for w in found) == words


def numbers(text: str) -> tuple[int, ...]:
    return tuple(int(part, 16) for part in text.split())


def test_layout_of_elementwise_bits() -> None:
    seed, n = 0x1234_5678_9ABC_DEF0, 0x1_0000_0002
    key = (0x9ABCDEF0, 0x12345678)
    for i, lane, h in ((0, 0, 0), (15, 15, 0), (16, 0, 1), (64, 0, 4), (127, 15, 7), (128, 16, 0)):
        half = philox((lane, 0, 2, 1), key)[h % 4] >> (16 if h >= 4 else 0) & 0xFFFF
        assert elementwise_R(seed, n, i, 16) == half
        assert elementwise_R(seed, n, i, 5) == half >> 11
    for i, lane, h in ((0, 0, 0), (63, 15, 3), (64, 16, 0), (100, 20, 2)):
        block = philox((lane, 0, 2, 1), key)
        assert elementwise_R(seed, n, i, 27) == block[h] >> 5


def test_layout_of_the_bits_of_sums() -> None:
    for s, counter, place in ((0, 1, 0), (3, 1, 3), (7, 1, 7), (8, 2, 0), (21, 3, 5)):
        half = philox((9, counter, 4, 0), (3, 0))[place % 4] >> (16 if place >= 4 else 0) & 0xFFFF
        assert product_R(3, 4, 9, s, 13) == half >> 3
    for s, counter, place in ((0, 1, 0), (3, 1, 3), (4, 2, 0), (21, 6, 1)):
        assert product_R(3, 4, 9, s, 20) == philox((9, counter, 4, 0), (3, 0))[place] >> 12


def test_neighbouring_elements_of_an_operation_share_nothing() -> None:
    words = {(i, elementwise_R(1, 0, i, 32)) for i in range(512)}
    assert len({w for _, w in words}) == 512


def test_spawned_seeds_differ_and_stay_within_64_bits() -> None:
    seeds = [spawn_seed(5, k) for k in range(100)]
    assert len(set(seeds)) == 100
    assert all(0 <= seed < 2**64 for seed in seeds)
    first = philox((1, 0, 2**32 - 1, 2**32 - 1), (5, 0))
    assert seeds[1] == first[0] | first[1] << 32
