"""The integer kernel of every unit (corners), against exact fractions (differential)."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from fpsim.kernels.by_unit.general import (
    QUIET,
    SIGNALLING,
    SPECIAL,
    UnitParameters,
    run_pass,
    split_operand,
)
from fpsim.products.by_unit.general import run_general
from fpsim.records.formats import BINARY16, BINARY32
from fpsim.records.rounding import RTZ
from fpsim.records.units import find_unit
from tests.fpsim.kernels.by_unit.by_engine import at_the_edge, check, job_of, multiply

UNITS = [
    "V100_F16_F32", "ADA_E4M3_F32", "V100_F16_F16", "AMP_F16_F32", "AMP_F16_F32.sticky",
    "AMP_F16_F32.sequential_f32", "B200_MMA_E4M3_F32",
]

NOTHING = -(1 << 30)


@pytest.mark.parametrize("unit", UNITS)
def test_addends_at_the_last_digit_and_below_it(unit):
    unit = find_unit(unit)
    top, window = (2, 13) if "E4M3" in unit.name else (4, unit.window or 24)
    a, b, c = at_the_edge(unit, 7, 9, unit.terms + 3, 3, top, window)
    check(run_general, unit, a, b, c)


@pytest.mark.parametrize(
    "unit", ["AMP_F16_F32", "V100_F16_F16", "B200_MMA_E5M2_F32", "AMP_F32_F32"]
)
@pytest.mark.parametrize("policy", ["keep", "flush_both"])
def test_what_is_no_number_beside_numbers(unit, policy):
    """Infinities of both signs, NaN, inf * 0, overflow and the least subnormal in every pair."""
    unit = find_unit(unit)
    fmt = unit.inputs[0]
    x = np.float32([np.inf, -np.inf, np.nan, 0.0, -0.0, 1.0, fmt.max, -fmt.max])
    x = np.append(x, np.float32([fmt.smallest_subnormal, -fmt.smallest_normal]))
    a = np.stack([x, np.roll(x, 3), np.full_like(x, 2)], axis=1)
    b = np.stack([x, x, np.roll(x, 1)])
    for start in (0.0, np.inf, -np.inf, np.nan, unit.partials.max):
        check(run_general, unit, a, b, start, subnormals=policy)


@pytest.mark.parametrize("sign", [1, -1])
def test_an_odd_last_digit_stands_for_what_is_cut(sign):
    """A cut addend makes its own last digit odd, so a midpoint is left to the side of the rest."""
    terms = [2.0**-12, 2.0**-16, 0, 0], [2.0**-12, 2.0**-16, 0, 0]
    a, b = [np.float32(terms[0]) * sign], np.float32(terms[1])[:, None]
    for unit, expected in (("AMP_F16_F32", 1.0), ("AMP_F16_F32.sticky", 1 + 2.0**-23)):
        values, _ = multiply(run_general, job_of(unit, a, b, sign))
        assert float(values[0, 0]) == sign * expected


def test_sums_toward_zero_stay_below_the_largest_number():
    unit = replace(find_unit("V100_F16_F16"), rounding=RTZ)
    for kind, expected, code in ((unit, 65504.0, 4), (find_unit("V100_F16_F16"), np.inf, 4)):
        values, flags = multiply(run_general, job_of(kind, [[-256.0, -256.0]], [[256.0], [256.0]]))
        assert (float(values[0, 0]), int(flags[0, 0])) == (-expected, code)


def test_operands_are_split_with_the_digits_of_their_format():
    """binary16: 11 digits; subnormals with the smallest exponent; what is missing is zero."""
    x = np.float32([1.0, -1.5, 2.0**-24, -(2.0**-14), 0.0, -0.0, np.inf, -np.inf, np.nan])
    codes = x.view(np.uint32)[None].copy()
    codes[0, 8] = 0xFFC00000
    codes = np.append(codes, [[np.uint32(0x7F800001)]], axis=1)
    significands, exponents = (np.ones((1, 12), np.int32) for _ in range(2))
    split_operand(codes, significands, exponents, 11, -14, 0)
    assert significands[0].tolist() == [
        1024, -1536, 1, -1024, 0, 0, 1, -1, QUIET, SIGNALLING, 0, 0,
    ]
    special, none = [SPECIAL] * 4, [NOTHING] * 2
    assert exponents[0].tolist() == [0, 0, -14, -14, *none, *special, *none]
    split_operand(codes, significands, exponents, 11, -14, 1)
    assert significands[0, :4].tolist() == [1024, -1536, 0, -1024]
    assert exponents[0, :4].tolist() == [0, 0, NOTHING, -14]


#: One product, uncut, to nearest even into binary32.
CALL = UnitParameters(
    terms=1, calls=1, window=-1, sticky=0, fraction=0, scale=0, precision=24, emin=-126, emax=127,
    to_zero=0, join=0, join_emin=0, join_emax=0, join_flush=0, product=0, product_emin=0,
    product_emax=0, product_flush=0, flush_in=0,
    flush_out=0, tiny_before=0, loud_nan=0,
)


def one(call, significand, exponent, start=0):
    """A code and flags: start + significand * 2**exponent."""
    x, one = np.full((1, 1), significand, np.int32), np.ones((1, 1), np.int32)
    partials, flags = np.full((1, 1), start, np.uint32), np.zeros((1, 1), np.uint8)
    e, none = np.full((1, 1), exponent, np.int32), np.zeros((1, 1), np.int32)
    raised = run_pass(x, e, one, none, 0, partials, flags, call)
    assert raised == flags[0, 0]
    return int(partials[0, 0]), raised


@pytest.mark.parametrize(
    ("change", "operands", "expected"),
    [
        # 2**24 + 1 and + 3 are midpoints, of an even and an odd number.
        ({}, (2**24 + 1, 0), 0x4B800000), ({}, (2**24 + 3, 0), 0x4B800002),
        ({"to_zero": 1}, (2**24 + 3, 0), 0x4B800001), ({}, (-(2**24) - 3, 0), 0xCB800002),
        # (2**24 - 1) * 2**-150 is 2**-126 less half a unit: to the even one, 2**-126.
        ({}, (2**24 - 1, -150), 0x00800000), ({"to_zero": 1}, (2**24 - 1, -150), 0x007FFFFF),
        ({"flush_out": 1}, (2**24 - 1, -150), 0), ({"flush_out": 1}, (2**23, -149), 0x00800000),
        # 2**-126 (1 - 2**-25) is tiny before rounding, not after.
        ({"flush_out": 1}, (2**25 - 1, -151), 0x00800000),
        ({"flush_out": 1, "tiny_before": 1}, (2**25 - 1, -151), 0),
        ({"scale": 3}, (1, 0), 0x41000000), ({"fraction": 3}, (1, 0), 0x3E000000),
        ({"precision": 14, "to_zero": 1}, (2**14 + 1, 0), 0x46800000),
        ({"precision": 14, "to_zero": 1}, (2**14 - 1, -14), 0x3F7FFC00),
    ],
)
def test_one_rounding(change, operands, expected):
    assert one(CALL._replace(**change), *operands) == (expected, 0)


def test_overflow_is_a_flag_with_infinity_or_the_largest_number():
    assert one(CALL, 2**24 - 1, 104) == (0x7F7FFFFF, 0)
    assert one(CALL, 2**25 - 1, 103) == (0x7F800000, 4)
    assert one(CALL._replace(to_zero=1), -(2**25 - 1), 103) == (0xFF7FFFFF, 0)
    assert one(CALL._replace(to_zero=1), -1, 128) == (0xFF7FFFFF, 4)


def test_subnormal_partials_are_read_as_the_policy_says():
    assert one(CALL, 1, -149, 1) == (2, 0)
    assert one(CALL._replace(flush_in=1), 1, -126, 1) == (0x00800000, 0)


def test_a_quiet_nan_raises_where_every_nan_does():
    assert one(CALL, QUIET, SPECIAL) == (0x7FC00000, 0)
    assert one(CALL, SIGNALLING, SPECIAL) == (0x7FC00000, 16)
    assert one(CALL._replace(loud_nan=1), QUIET, SPECIAL) == (0x7FC00000, 16)
    assert one(CALL, 1, SPECIAL, 0xFF800000) == (0x7FC00000, 16)


def test_the_join_has_a_rounding_of_its_own():
    """Into binary16: 2048 + 1 is a midpoint there, while the call alone is exact."""
    call = CALL._replace(join=11, join_emin=-14, join_emax=15)
    partial = int(np.float32(2048.0).view(np.uint32))
    for n, total in ((1, 2048.0), (3, 2052.0)):
        assert one(call, n, 0, partial) == (int(np.float32(total).view(np.uint32)), 0)
    assert one(call, 65520, 0) == (0x7F800000, 4)
    assert (BINARY16.emin, BINARY16.emax, BINARY32.precision) == (-14, 15, 24)
