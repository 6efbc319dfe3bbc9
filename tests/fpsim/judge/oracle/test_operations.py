"""The oracle's operations: golden special cases, then numpy and TestFloat (differential).

Numbers of the golden tests follow by hand from docs/semantics.md §1 and §3.
"""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from fractions import Fraction
from itertools import islice

import numpy as np
import pytest

from fpsim.judge.oracle import (
    OracleSettings,
    convert,
    decode,
    encode,
    from_integer,
    operate,
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
    E4M3FN,
    E5M2,
    F143,
    Format,
)
from fpsim.records.rounding import (
    MODES,
    RNA,
    RNE,
    RTN,
    RTO,
    RTP,
    RTZ,
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


def test_flush_both_reads_subnormal_operands_as_zero() -> None:
    both = OracleSettings(subnormals="flush_both")
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
)
def test_special_cases_of_binary16(
    op: str, codes: tuple[int, ...], result: tuple[int, Flags]
) -> None:
    assert operate(op, codes, BINARY16) == result


def test_an_exact_zero_sum_is_negative_only_when_rounding_down() -> None:
    for mode in DETERMINISTIC:
        s = OracleSettings(rounding=mode)
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
    assert operate("add", (one, 0xC0), F143, OracleSettings(rounding=RTN)) == (0, NONE)
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
    assert operate(op, codes, BINARY16, OracleSettings(nan=policy)) == result


def test_nan_payloads_keep_their_top_bits_in_conversions() -> None:
    keep = OracleSettings(nan="propagate_first")
    assert convert(0xFF802001, BINARY32, BINARY16, keep) == (0xFE01, V)
    assert convert(0x7D01, BINARY16, BINARY32, keep) == (0x7FE02000, V)
    assert convert(0x7E00, BINARY16, E4M3FN, keep) == (0x7F, NONE)
    assert convert(0xFE00, BINARY16, E4M3FN, keep) == (0xFF, NONE)
    assert convert(0xFE00, BINARY16, F143, keep) == (0x80, NONE)
    assert convert(0xFF, E4M3FN, BINARY16, keep) == (0xFE00, NONE)


def test_quiet_nan_raises_is_a_choice() -> None:
    strict = OracleSettings(quiet_nan_raises=True)
    assert operate("add", (QNAN, ONE), BINARY16, strict) == (QNAN, V)
    assert operate("equal", (QNAN, ONE), BINARY16, strict) == (0, V)
    assert convert(QNAN, BINARY16, BINARY32, strict) == (0x7FC00000, V)


def test_formats_without_nan_give_their_largest_value() -> None:
    assert operate("divide", (0, 0), E2M1FN) == (0x7, V)
    assert convert(QNAN, BINARY16, E2M3FN) == (0x1F, V)
    assert convert(0xFE00, BINARY16, E3M2FN, OracleSettings(nan="x86")) == (0x1F, V)


def test_division_by_zero_follows_its_policy() -> None:
    nan = OracleSettings(divide_by_zero="nan")
    assert operate("divide", (ONE, ZERO), BINARY16, nan) == (QNAN, D)
    saturate = OracleSettings(overflow="saturate")
    assert operate("divide", (ONE, ZERO), BINARY16, saturate) == (INF, D)
    assert operate("divide", (0x38, 0x80), E4M3FN) == (0x7F, D)
    assert operate("divide", (0x38, 0x80), E4M3FN, saturate) == (0xFE, D)
    assert operate("divide", (0x2, 0x0), E2M1FN) == (0x7, D)


@pytest.mark.parametrize(
    ("fmt", "settings", "result"),
    [
        (BINARY32, OracleSettings(), (0xFF800000, NONE)),
        (E5M2, OracleSettings(infinite_input="saturate"), (0xFB, O | X)),
        (E5M2, OracleSettings(infinite_input="nan"), (0x7E, O | X)),
        (E5M2, OracleSettings(overflow="saturate"), (0xFC, NONE)),
        (E4M3FN, OracleSettings(), (0x7F, O | X)),
        (E4M3FN, OracleSettings(overflow="saturate"), (0xFE, O | X)),
        (E4M3FN, OracleSettings(overflow="saturate", infinite_input="nan"), (0x7F, O | X)),
        (E2M1FN, OracleSettings(), (0xF, O | X)),
    ],
)
def test_infinite_operands_of_conversions(
    fmt: Format, settings: OracleSettings, result: tuple[int, Flags]
) -> None:
    assert convert(MINUS_INF, BINARY16, fmt, settings) == result


def test_conversions_round_once() -> None:
    code = int(np.float64(1 + 2.0**-11 + 2.0**-52).view(np.uint64))
    assert convert(code, BINARY64, BINARY16) == (ONE + 1, X)
    assert from_integer(2**24 + 1, BINARY32) == (0x4B800000, X)
    assert from_integer(2**64 - 1, BINARY32, OracleSettings(rounding=RTZ)) == (0x5F7FFFFF, X)
    assert from_integer(0, BINARY32, OracleSettings(rounding=RTN)) == (0, NONE)


@pytest.mark.parametrize(
    ("code", "kind", "mode", "result"),
    [
        (0x3E00, "i32", RNE, (2, X)), (0xBE00, "i32", RTZ, (-1, X)), (0xBE00, "i32", RTO, (-1, X)),
        (0x87FF, "i32", RTO, (-1, X)), (0x4100, "ui32", RNA, (3, X)), (0xB800, "ui32", RNE, (0, X)),
        (0xB800, "ui32", RTN, (2**32 - 1, V)), (QNAN, "i64", RNE, (-(2**63), V)),
        (SNAN, "ui64", RNE, (2**64 - 1, V)), (INF, "i32", RNE, (-(2**31), V)),
        (MINUS_ZERO, "ui32", RNE, (0, NONE)), (MAX, "ui32", RNE, (65504, NONE)),
    ],
)
def test_to_integers(code: int, kind: str, mode: Rounding, result: tuple[int, Flags]) -> None:
    assert to_integer(code, BINARY16, kind, OracleSettings(rounding=mode)) == result


def test_integers_out_of_range_are_judged_after_rounding() -> None:
    half_below = int(np.float64(2**31 - 0.5).view(np.uint64))
    assert to_integer(half_below, BINARY64, "i32", OracleSettings(rounding=RTZ)) == (2**31 - 1, X)
    assert to_integer(half_below, BINARY64, "i32") == (-(2**31), V)


def test_an_integral_that_the_format_lacks_overflows() -> None:
    assert operate("round_to_integral", (0x1F,), E2M3FN) == (0x1F, O | X)  # 7.5 -> 8
    assert operate("round_to_integral", (0x1F,), E2M3FN, OracleSettings(rounding=RTZ)) == (0x1E, X)


def test_subnormal_integers_are_flushed() -> None:
    """Where the smallest normal value is 4, 1, 2 and 3 are subnormal."""
    fmt = Format.custom(3, 5, bias=-1)
    assert fmt.smallest_normal == 4.0
    codes = [encode(0, Fraction(n, 4), fmt) for n in (1, 3, 4, 7, 12, 15, 16)]
    rounded = [operate("round_to_integral", (code,), fmt) for code in codes]
    values = [decode(code, fmt).value for code, _ in rounded]
    assert values == [0, 1, 1, 2, 3, 4, 4]
    assert [flags for _, flags in rounded] == [X, X, NONE, X, NONE, X, NONE]
    results = OracleSettings(subnormals="flush_results")
    flushed = [operate("round_to_integral", (code | 0x80,), fmt, results) for code in codes]
    minus_zero, minus_four = 0x80, encode(1, Fraction(4), fmt)
    assert flushed == [
        (minus_zero, X), *[(minus_zero, U | X)] * 4, (minus_four, X), (minus_four, NONE),
    ]
    both = OracleSettings(subnormals="flush_both")
    assert operate("round_to_integral", (codes[5],), fmt, both) == (0, NONE)


# Against others -----------------------------------------------------------------------------


@pytest.mark.parametrize("op", ["add", "subtract", "multiply", "divide", "sqrt"])
def test_binary16_agrees_with_numpy(op: str) -> None:
    rng = np.random.default_rng(7)
    codes = rng.integers(0, 1 << 16, (pick(2000, 30_000, 200_000), 2), dtype=np.uint16)
    x, y = codes.view(np.float16).T
    with np.errstate(all="ignore"):
        theirs = np.sqrt(x) if op == "sqrt" else getattr(np, op)(x, y)
    for (a, b), expected in zip(codes.tolist(), theirs, strict=True):
        result, _ = operate(op, (a,) if op == "sqrt" else (a, b), BINARY16)
        same = result == int(expected.view(np.uint16))
        assert same or (result == QNAN and np.isnan(expected)), (hex(a), hex(b))


# TestFloat: function name -> operation, operand formats
TESTFLOAT_MODES = {"near_even": RNE, "minMag": RTZ, "min": RTN, "max": RTP}
TESTFLOAT_OPS = {
    "add": "add", "sub": "subtract", "mul": "multiply", "div": "divide", "sqrt": "sqrt",
    "mulAdd": "fma", "rem": "ieee_remainder", "roundToInt": "round_to_integral", "eq": "equal",
    "le": "less_equal_signalling", "lt": "less_signalling",
}
FLOATS = {"f16": BINARY16, "f32": BINARY32, "f64": BINARY64, "bf16": BFLOAT16}


@pytest.mark.vectors
@pytest.mark.source("Berkeley TestFloat 3e, level 1, seed 1")
@pytest.mark.parametrize("function", TESTFLOAT)
def test_testfloat_vectors(function: str) -> None:
    for mode in TESTFLOAT[function]:
        settings = OracleSettings(TESTFLOAT_MODES[mode], nan="x86")
        lines = list(sampled_lines(recorded_lines(function, mode), pick(150, 3000, 50_000)))
        assert lines
        for line in lines:
            *operands, expected, flags = (int(field, 16) for field in line.split())
            assert testfloat(function, operands, settings) == (expected, flags), line


def sampled_lines(path: object, n: int) -> Iterator[str]:
    """About n lines, evenly spread over the first 100 n and starting with the corners."""
    with gzip.open(path, "rt") as lines:  # type: ignore[call-overload]
        yield from islice(islice(lines, 100 * n), 0, None, 97)


def testfloat(function: str, operands: list[int], s: OracleSettings) -> tuple[int, Flags]:
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
