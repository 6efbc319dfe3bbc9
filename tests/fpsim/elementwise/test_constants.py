"""Constants of kernels: corners (each threshold and its neighbour) against the oracle; law (lanes).

A threshold is right if the oracle's rounding changes its mind between it and the number below.
"""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest

import fpsim as fp
from fpsim.elementwise import apply as evaluation
from fpsim.elementwise.codes import from_codes, to_codes
from fpsim.elementwise.constants import LANES, exact_width, mode_number, plan
from fpsim.judge.oracle.rounding import OracleSettings, decode, is_tiny, round_real
from fpsim.kernels.rounding.rule import RoundingRule
from fpsim.records.rounding import MODES
from fpsim.records.settings import Settings
from fpsim.state.draws import Draw
from tests.tiers import pick

DETERMINISTIC = [mode for mode in MODES.values() if not mode.stochastic]
FORMATS = [
    fp.BINARY16, fp.BFLOAT16, fp.TF32, fp.E4M3FN, fp.E5M2, fp.F143, fp.E2M1FN, fp.BINARY32,
    fp.Format.custom(9, 26), fp.Format.custom(3, 4),
]
#: Formats and the lanes that can round into them.
PLACES = [
    (fmt, width)
    for fmt in FORMATS
    for width in LANES
    if width == 64 or exact_width("convert", Settings(fmt), 4) == 32
]


def rule_of(settings, width, operation="convert"):
    return RoundingRule(*(int(c) for c in plan(operation, settings, width).constants))


def number(bits, width):
    """The exact number of a lane's bit pattern."""
    return Fraction(float(np.array(bits, f"u{width // 8}").view(f"f{width // 8}")))


def signed(bits, width, negative):
    x = number(bits, width)
    return -x if negative else x


@pytest.mark.parametrize("mode", DETERMINISTIC, ids=repr)
@pytest.mark.parametrize(("fmt", "width"), PLACES, ids=str)
def test_the_overflow_threshold_is_the_smallest_magnitude_that_overflows(fmt, width, mode):
    rule, judge = rule_of(Settings(fmt, mode), width), OracleSettings(mode)
    for negative, over in ((False, rule.over_pos), (True, rule.over_neg)):
        if over >= LANES[width].infinity:
            # No finite number of the lanes overflows: binary32's largest in its own lanes.
            continue
        for bits, expected in ((over - 1, fp.Flags.NONE), (over, fp.Flags.OVERFLOW)):
            _, flags = round_real(signed(bits, width, negative), fmt, judge)
            assert flags & fp.Flags.OVERFLOW == expected, (negative, hex(bits))


@pytest.mark.parametrize("tininess", ["after", "before"])
@pytest.mark.parametrize("mode", [*DETERMINISTIC, fp.SR_EQUAL], ids=repr)
@pytest.mark.parametrize(("fmt", "width"), PLACES, ids=str)
def test_the_tiny_threshold_is_the_smallest_magnitude_that_is_not_tiny(fmt, width, mode, tininess):
    rule = rule_of(Settings(fmt, mode, tininess=tininess), width)
    judge = OracleSettings(mode, tininess=tininess)
    for negative, tiny in ((False, rule.tiny_pos), (True, rule.tiny_neg)):
        assert not is_tiny(number(tiny, width), int(negative), fmt, judge), hex(tiny)
        assert is_tiny(number(tiny - 1, width), int(negative), fmt, judge), hex(tiny)


@pytest.mark.parametrize("mode", DETERMINISTIC, ids=repr)
@pytest.mark.parametrize(("fmt", "width"), PLACES, ids=str)
def test_above_the_up_threshold_a_number_below_the_quantum_goes_up_to_it(fmt, width, mode):
    rule, judge = rule_of(Settings(fmt, mode), width), OracleSettings(mode)
    assert number(rule.quantum, width) == Fraction(fmt.smallest_subnormal)

    def result(bits, negative):
        code, _ = round_real(signed(bits, width, negative), fmt, judge)
        return decode(code, fmt).magnitude

    for negative, up in ((False, rule.up_pos), (True, rule.up_neg)):
        threshold = min(up, rule.quantum - 1)
        if threshold:
            assert result(threshold, negative) == 0
        if up < rule.quantum - 1:
            assert result(up + 1, negative) == Fraction(fmt.smallest_subnormal)


@pytest.mark.parametrize("overflow", ["infinity", "saturate", "nan"])
@pytest.mark.parametrize("mode", [*DETERMINISTIC, fp.SR_EQUAL], ids=repr)
def test_values_beyond_the_range_are_those_of_the_policy(mode, overflow):
    fmt, width = fp.BINARY16, 32
    rule = rule_of(Settings(fmt, mode, overflow=overflow), width)
    judge = OracleSettings(mode, overflow=overflow)
    for negative, bits in ((False, rule.over_value_pos), (True, rule.over_value_neg)):
        # Random bits of zeros; far beyond the range they do not matter.
        code, _ = round_real(Fraction(-(10**9) if negative else 10**9), fmt, judge)
        assert from_codes(np.array([code], fmt.code_dtype), fmt).view(np.uint32)[0] == bits


@pytest.mark.parametrize("mode", DETERMINISTIC, ids=repr)
@pytest.mark.parametrize("fmt", [fp.BINARY16, fp.E2M1FN, fp.Format.custom(3, 6)], ids=str)
def test_whole_numbers_overflow_at_their_own_threshold(fmt, mode):
    """2.5, 3.5 … beyond the last whole number round to one that the format may not have."""
    rule = rule_of(Settings(fmt, mode), 64, "round_to_integral")
    most = math.floor(fmt.max)
    if fmt.max >= 2 ** (fmt.precision - 1):
        return  # every number there is whole
    for sign, over in ((1, rule.over_pos), (-1, rule.over_neg)):
        for bits in (over - 1, over):
            x = number(bits, 64)
            up = mode.steps_of(sign < 0)[most & 1]
            tail = x - most
            goes_up = {0: False, 1: tail > Fraction(1, 2), 2: tail >= Fraction(1, 2), 3: tail > 0}
            assert (goes_up[up] or tail >= 1) == (bits == over)


@pytest.mark.parametrize("width", [32, 64])
def test_the_bits_of_a_lane_are_those_of_the_processor(width):
    lane, kind = LANES[width], np.dtype(f"f{width // 8}")
    info = np.finfo(kind)
    for value in (0.0, 1.0, 1.5, 3.0, info.max, info.smallest_normal, info.smallest_subnormal,
                  info.smallest_subnormal * 5, info.smallest_normal * 1.25):
        assert lane.bits(float(value)) == int(np.array(value, kind).view(f"u{width // 8}"))
    assert lane.infinity == int(np.array(np.inf, kind).view(f"u{width // 8}"))
    assert number(lane.infinity - 1, width) == Fraction(float(info.max))
    assert lane.sign == int(np.array(-0.0, kind).view(f"u{width // 8}"))
    assert np.isnan(np.array(lane.infinity | lane.quiet, f"u{width // 8}").view(kind))


@pytest.mark.parametrize(
    ("operation", "settings", "size", "width"),
    [
        ("convert", Settings(fp.BINARY16), 4, 32),
        ("convert", Settings(fp.BINARY16), 8, 64),
        ("convert", Settings(fp.BINARY32), 4, 64),
        ("convert", Settings(fp.BINARY16, fp.SR(8, "half")), 4, 64),
        ("convert", Settings(fp.BFLOAT16, fp.SR(8)), 4, 32),
        ("convert", Settings(fp.BFLOAT16, fp.SR(8, subnormal_bits=9)), 4, 64),
        # Every digit that SR looks at: 11 + 13 of 24; two more where the residual is rounded.
        ("add", Settings(fp.BINARY16, fp.SR(13, subnormal_bits=16)), 4, 32),
        ("add", Settings(fp.BINARY16, fp.SR(14)), 4, 64),
        ("subtract", Settings(fp.BFLOAT16, fp.SR(16)), 4, 32),
        ("subtract", Settings(fp.BFLOAT16, fp.SR(17)), 4, 64),
        # Just below 2**128 a sum of 13 digits and more becomes infinite in the lanes.
        ("add", Settings(fp.TF32), 4, 32),
        ("add", Settings(fp.Format.custom(8, 13)), 4, 64),
        ("multiply", Settings(fp.BINARY16), 4, 32),
        ("multiply", Settings(fp.Format.custom(5, 12)), 4, 32),
        ("multiply", Settings(fp.Format.custom(5, 13)), 4, 64),
        ("multiply", Settings(fp.BFLOAT16), 4, 64),
        # What a quotient leaves of 12 digits, or of bfloat16's range, is not in the lanes.
        ("divide", Settings(fp.E4M3FN), 4, 32),
        ("divide", Settings(fp.BINARY16), 4, 32),
        ("divide", Settings(fp.BINARY16), 8, 64),
        ("divide", Settings(fp.Format.custom(5, 12)), 4, 64),
        ("divide", Settings(fp.BFLOAT16), 4, 64),
        ("sqrt", Settings(fp.BINARY16, fp.SR(13)), 4, 32),
        ("sqrt", Settings(fp.BINARY16, fp.SR(14)), 4, 64),
        ("fma", Settings(fp.E4M3FN), 4, 64),
    ],
)
def test_the_narrow_lanes_end_where_a_digit_would_be_missing(operation, settings, size, width):
    assert exact_width(operation, settings, size) == width


#: Formats, operations and modes; the quick tier has each once beside an addition to nearest.
NARROW = [
    (fmt, operation, mode)
    for fmt in (fp.BINARY16, fp.E5M2, fp.F143)
    for operation in ("add", "multiply")
    for mode in (fp.RNE, fp.SR(11), fp.RTP, fp.SR(13, subnormal_bits=16), fp.SR_EQUAL)
    if operation == "add" or mode in (fp.RNE, fp.SR(11), fp.RTP)
]
ONCE = [c for c in NARROW if (c[0] != fp.BINARY16) + (c[1] != "add") + (c[2] != fp.RNE) <= 1]


@pytest.mark.parametrize(("fmt", "operation", "mode"), pick(ONCE, NARROW, NARROW), ids=repr)
def test_narrow_lanes_give_what_wide_ones_give(fmt, operation, mode, monkeypatch):
    settings = Settings(fmt, mode)
    assert exact_width(operation, settings, 4) == 32
    rng = np.random.default_rng(3)
    x, y = (
        from_codes(rng.integers(0, fmt.n_codes, 4096).astype(fmt.code_dtype), fmt) for _ in "xy"
    )
    outcomes = []
    for forced in (None, 64):
        with monkeypatch.context() as patch:
            if forced:
                patch.setattr(evaluation, "exact_width", lambda *_: 64)
            flags = np.zeros(x.shape, np.uint8)
            fresh = Settings(fmt, mode)  # settings keep the kernels that were chosen for them
            values, _ = evaluation.apply(
                operation,
                (x, y),
                fresh,
                element_flags=flags,
                bits=Draw(np.uint64(7), np.uint64(0), None),
            )
        outcomes.append((to_codes(values, fmt).tolist(), flags.tolist()))
    assert outcomes[0] == outcomes[1]


def test_every_mode_has_a_number_of_its_own():
    modes = [*MODES.values(), fp.SR()]
    assert len({mode_number(mode) for mode in modes}) == len(modes)
    assert mode_number(fp.SR(5)) == mode_number(fp.SR(20, "half"))
    ties_up = fp.Rounding(
        "RNU",
        steps=(fp.Up.FROM_HALF, fp.Up.FROM_HALF),
        negative_steps=(fp.Up.ABOVE_HALF, fp.Up.ABOVE_HALF),
    )
    assert mode_number(ties_up) not in {mode_number(mode) for mode in modes}


def test_a_plan_says_what_is_compiled_in():
    usual = plan("add", Settings(fp.BINARY16), 32)
    assert usual.constants.dtype == np.uint32
    assert not any((usual.flush, usual.one_zero, usual.stochastic, usual.whole_words))
    assert plan("add", Settings(fp.BINARY16), 64).constants.dtype == np.uint64
    assert plan("add", Settings(fp.BINARY16, subnormals="flush_results"), 32).flush
    assert plan("add", Settings(fp.F143), 32).one_zero
    halves = [plan("add", Settings(fp.BINARY16, fp.SR(bits)), 64) for bits in (16, 17)]
    assert [p.whole_words for p in halves] == [False, True]
    assert all(p.stochastic for p in halves)


def test_operands_are_flushed_where_they_are_of_the_format():
    both = Settings(fp.BINARY16, subnormals="flush_both")
    assert rule_of(both, 32, "add").daz == LANES[32].bits(2.0**-14)
    assert rule_of(both, 32, "convert").daz == 0
    assert rule_of(Settings(fp.BINARY16, subnormals="flush_results"), 32, "add").daz == 0
