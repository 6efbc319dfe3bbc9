"""What products leave behind: flags seen on the way, NaN and zeros of the format (corners)."""

from __future__ import annotations

import numpy as np
import pytest

from fpsim.kernels.by_operation import results as r
from fpsim.kernels.by_operation.lane_rounding import BY_SIDE, GROWS, STOPS, MacRule, spread_macs
from fpsim.kernels.compiling import compiled
from fpsim.kernels.lanes.formula import formula
from fpsim.kernels.lanes.memory import load_float, splat_register, store
from fpsim.kernels.lanes.vectors import as_bits
from fpsim.kernels.target import PRODUCT_BITS

TINY, LIMIT, SIGN = 2.0**-14, 65520.0, 1 << 31
#: Of binary32, in a vector of a product.
LANES = PRODUCT_BITS // 32
ALL, OVERFLOW_ONLY, NONE = r.LOOK_FOR_ALL, r.LOOK_FOR_OVERFLOW, r.LOOK_FOR_NONE


def bits(x):
    return int(np.float32(x).view(np.uint32))


RULE = np.array(MacRule(
    floor=0, step=0, lift=0, below=0, last=0, over_pos=bits(LIMIT), over_neg=bits(-LIMIT),
    value_pos=bits(np.inf), value_neg=bits(-65504), tiny_pos=bits(TINY), tiny_neg=bits(-TINY),
    start=0, nan=0x7FC00000, zero=SIGN, split=0, calm=0,
), np.uint32)


@formula
def _seen(what, watched, x, rounded, lost, rule):
    never = x < x
    state = never, never, rule.nan ^ rule.nan
    if watched == ALL:
        state = r.look(x, rounded, lost != 0, rule, state)
    result, state = r.look_beyond(what, watched, x, rounded, rule, state)
    return as_bits(result), state


def looker(watched, what=BY_SIDE):
    WATCHED, WHAT = watched, what

    @compiled
    def loop(x, rounded, lost, constants, out):
        rule = spread_macs(constants)
        u, v = load_float(x, 0, rule.nan), load_float(rounded, 0, rule.nan)
        result, looks = _seen(WHAT, WATCHED, u, v, splat_register(lost, 0), rule)
        store(out, 0, result)
        return r.report(looks, rule.nan ^ rule.nan, rule)

    return loop


LOOK = {watched: looker(watched) for watched in (NONE, OVERFLOW_ONLY, ALL)}
BELOW, UNDER = (np.nextafter(np.float32(x), np.float32(0)) for x in (TINY, LIMIT))


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize(
    ("x", "rounded", "lost", "expected"),
    [
        (1.0, 1.0, 0, 0), (1.0, 1.0, 1, 1), (1.25, 1.0, 0, 1), (BELOW, TINY, 0, 3),
        (BELOW, BELOW, 0, 0), (BELOW, BELOW, 1, 3), (TINY, 2 * TINY, 0, 1), (LIMIT, LIMIT, 0, 4),
        (UNDER, 65504.0, 0, 1), (np.inf, np.inf, 0, 4),
    ],
)
def test_flags_are_seen_in_any_lane(x, rounded, lost, expected, sign):
    """Inexact, tiny only where inexact, overflow from the threshold on; each in one lane."""
    for lane in (0, LANES - 1):
        values = np.ones((2, 16), np.float32)
        values[:, lane] = np.float32([x, rounded]) * sign
        lost_lanes = np.full(1, lost, np.uint32)
        out = np.zeros(16, np.uint32)
        assert LOOK[ALL](*values, lost_lanes, RULE, out) == expected | lost
        assert LOOK[OVERFLOW_ONLY](*values, lost_lanes, RULE, out) == expected & 4
        assert LOOK[NONE](*values, lost_lanes, RULE, out) == 0
        beyond = np.inf if sign > 0 else -65504.0
        assert out[lane] == bits(beyond if expected & 4 else sign * rounded)


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize(("what", "most"), [(STOPS, 65504.0), (GROWS, np.inf)])
def test_the_largest_magnitude_tells_of_overflow_on_both_sides(what, most, sign):
    rule = np.array(MacRule(*RULE)._replace(value_pos=bits(most), value_neg=bits(-most)), np.uint32)
    loop, out = looker(OVERFLOW_ONLY, what), np.zeros(16, np.uint32)
    for x, rounded, expected in ((UNDER, 65504.0, 0), (LIMIT, 65536.0, 4), (1e30, 1e30, 4)):
        values = np.ones((2, 16), np.float32)
        values[:, 7] = np.float32([x, rounded]) * sign
        assert loop(*values, np.zeros(1, np.uint32), rule, out) == expected
        assert out[7] == bits(sign * (most if expected else rounded))


@compiled
def put(x, constants, out, checked):
    rule = spread_macs(constants)
    acc = load_float(x, 0, rule.nan)
    never = rule.nan != rule.nan
    if checked:
        top = r.put_result(out, 0, acc, True, rule)
    else:
        top = r.put_result(out, 0, acc, False, rule)
    return r.report((never, never, rule.nan ^ rule.nan), top, rule)


@pytest.mark.parametrize("keeps_sign", [True, False])
@pytest.mark.parametrize("checked", [True, False])
def test_results_have_the_zeros_and_the_nan_of_the_format(keeps_sign, checked):
    codes = np.full(LANES, bits(1.0), np.uint32)
    codes[:5] = 0x80000000, 0, 0xFFC12345, bits(-2.5), bits(2.0**-149)
    rule = RULE.copy()
    rule[MacRule._fields.index("zero")] = SIGN if keeps_sign else 0
    out = np.zeros(LANES, np.float32)
    put(codes.view(np.float32), rule, out, checked)
    expected = codes.copy()
    expected[0] = 0x80000000 if keeps_sign else 0
    expected[2] = 0x7FC00000 if checked else 0xFFC12345
    assert out.view(np.uint32).tolist() == expected.tolist()


@pytest.mark.parametrize(
    ("numbers", "expected"),
    [
        ([3e38, -3e38], 0), ([np.inf, 1], r.INFINITE), ([-np.inf, 1], r.INFINITE),
        ([np.nan, 1], r.NAN), ([np.nan, np.inf], r.NAN | r.INFINITE), ([-np.nan, 0.0], r.NAN),
    ],
)
def test_infinities_and_nan_are_reported(numbers, expected):
    for shift in (0, LANES - 2):
        x = np.ones(LANES, np.float32)
        x[shift : shift + 2] = numbers
        assert put(x, RULE, np.zeros(LANES, np.float32), True) == expected
