"""Windowed calls at the edge of their window (corners), against exact fractions (differential)."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from fpsim.kernels.by_unit.tiles import WINDOW_31, WINDOW_32, WINDOW_64, WINDOW_PAIR
from fpsim.kernels.target import HAS_QUIET_ADD
from fpsim.products.by_unit import window as products
from fpsim.products.by_unit.window import _in_pairs, _task, run_window
from fpsim.records.units import find_unit
from tests.fpsim.kernels.by_unit.by_engine import at_the_edge, check, job_of, multiply
from tests.tiers import pick, reaches

#: Toward zero into 24 and 14 digits and to nearest into binary16; to nearest into 24.
UNITS = ["V100_F16_F32", "ADA_E4M3_F32", "V100_F16_F16", "AMP_F16_F32", "AMP_F16_F16"]


@pytest.fixture(params=[False, True], ids=["AVX", "AVX-512"])
def quiet(request, monkeypatch):
    """Sums with and without the conversions that cut them and the fused multiply-add."""
    if request.param and not HAS_QUIET_ADD:
        pytest.skip("the processor has no such conversion")
    monkeypatch.setattr("fpsim.products.by_unit.task.HAS_QUIET_ADD", request.param)
    monkeypatch.setattr("fpsim.products.by_unit.task.HAS_FMA", request.param)
    _task.cache_clear()
    yield
    _task.cache_clear()


def one(unit, terms, start=0.0):
    """c + the sum of terms (x, y), padded with zeros."""
    x, y = zip(*terms, strict=True)
    values, _ = multiply(run_window, job_of(unit, [x], [[v] for v in y], start))
    return float(values[0, 0])


#: Units with and without the conversions that cut, each with a kernel: the quick tier has all units
#: as this processor runs them, and one of each width of lanes the other way.
BOTH_WAYS = ("V100_F16_F32", "AMP_F16_F32", "H100_F16_F32")
CUTS = [
    (quiet, unit)
    for quiet in (False, True)
    for unit in [*UNITS, "H100_F16_F32"]
    if quiet == HAS_QUIET_ADD or reaches("full") or unit in BOTH_WAYS
]


@pytest.mark.parametrize(("quiet", "unit"), CUTS, indirect=["quiet"])
@pytest.mark.parametrize("seed", range(2))
@pytest.mark.usefixtures("quiet")
def test_addends_at_the_last_digit_and_below_it(unit, seed):
    top = 2 if "E4M3" in unit else 4
    unit = find_unit(unit)
    a, b, c = at_the_edge(unit, 9, 17, 2 * unit.terms, seed, top)
    check(run_window, unit, a, b, c)


@pytest.mark.parametrize("sign", [1, -1])
def test_the_last_digit_is_kept_and_the_next_one_is_cut(sign):
    """1 + 2**-24 is a midpoint; one digit at 2**-31 moves it, at 2**-32 it is not seen."""
    middle = (sign * 2.0**-12, 2.0**-12)
    for last, expected in ((31, 1 + 2.0**-23), (32, 1.0)):
        terms = [middle, (sign * 2.0**-15, 2.0 ** (15 - last))]
        assert one("AMP_F16_F32", terms, sign) == sign * expected
    # Toward zero there is no midpoint: the last digit itself is seen, at 2**-23 of the V100.
    for last, expected in ((23, 1 + 2.0**-23), (24, 1.0)):
        assert one("V100_F16_F32", [(sign * 2.0**-12, 2.0 ** (12 - last))], sign) == sign * expected


def test_magnitudes_are_cut_so_digits_below_the_window_do_not_cancel():
    """Each addend is cut for itself: 2**-24 four times is 0, and -(2**-24) does not borrow."""
    half = (2.0**-12, 2.0**-12)
    assert one("V100_F16_F32", [half] * 4, 1.0) == 1.0
    assert one("V100_F16_F32", [(-half[0], half[1])] * 4, 1.0) == 1.0
    assert one("V100_F16_F32", [(-half[0], half[1])] * 4, 1 - 2.0**-24) == 1 - 2.0**-22 - 2.0**-24


@pytest.mark.parametrize("sign", [1, -1])
def test_sums_of_14_digits_go_toward_zero(sign):
    """1 + 2**-13 is the next number of 14 digits; 2 - 2**-13 lies just below a power of two."""
    unit = "ADA_E4M3_F32"
    step = (sign * 2.0**-6, 2.0**-6)  # 2**-12, four times, and one 2**-13
    less = (sign * 2.0**-7, 2.0**-6)
    assert one(unit, [step, less], sign) == sign * (1 + 2.0**-12 + 2.0**-13)
    # The accumulator is 2: 2**-12 is a unit of it, 2**-13 the digit below, which no window shows.
    assert one(unit, [step, less], 2 * sign) == sign * (2 + 2.0**-12)
    # 1.875 * 1.75 * 15 terms and more carry into higher binades: digits that were kept are cut.
    assert one(unit, [(sign * 1.875, 1.875)] * 15 + [less], 0.0) == sign * 52.734375


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("start", [2 - 2.0**-23, 1.0, -1.0, -(2 - 2.0**-23)])
@pytest.mark.usefixtures("quiet")
def test_words_of_32_bits_hold_sums_beyond_their_sign(sign, start):
    """16 products just below 4 and an accumulator of the same sign pass 2**31 units."""
    x = 2 - 2.0**-10
    check(run_window, "H100_F16_F32", [[sign * x] * 16], [[x]] * 16, start)


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("terms", [7, 8])
@pytest.mark.parametrize(
    "quiet", pick([HAS_QUIET_ADD], *[[False, True]] * 2), indirect=True, ids=repr
)
@pytest.mark.usefixtures("quiet")
def test_signed_words_hold_sums_just_below_their_sign(sign, terms):
    """7 products just below 4 and an accumulator below 2 stay below 2**31 units; 8 pass it."""
    unit = replace(find_unit("V100_F16_F32"), terms=terms, window=26)
    x, start = 2 - 2.0**-10, 2 - 2.0**-23
    check(run_window, unit, [[sign * x] * terms], [[x]] * terms, sign * start)
    check(run_window, unit, [[-sign * x] * terms], [[x]] * terms, sign * start)


#: Terms of a call whose sums of 31 and more digits are pairs: the integer is carried where four
#: products of 22 digits, or fewer of more, would not leave it more than 24.
PAIRS = [(1, 31), (1, 48), (2, 24), (3, 31), (5, 31), (32, 31), (4, 39), (8, 36), (8, 38)]


def paired(terms, window):
    """A unit of such calls, of inputs whose exponents span its window."""
    unit = find_unit("AMP_F16_F32" if window <= 31 else "AMP_BF16_F32")
    unit = replace(unit, terms=terms, calls=1, window=window)
    assert _in_pairs(unit)
    return unit


#: The quick tier has the fewest and the most terms, the widest window, and kernels of other tests.
SOME_PAIRS = pick([p for p in PAIRS if p not in ((2, 24), (5, 31), (8, 36))], PAIRS, PAIRS)


@pytest.mark.parametrize(("terms", "window"), SOME_PAIRS)
def test_pairs_of_floats_hold_every_digit(terms, window):
    """Addends that end at the last digit of a wide window, and 32 terms of 31 digits."""
    unit = paired(terms, window)
    a, b, c = at_the_edge(unit, 9, 17, 2 * terms, terms)
    check(run_window, unit, a, b, c)


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize(("terms", "window"), SOME_PAIRS)
def test_pairs_of_floats_hold_sums_of_the_largest_addends(terms, window, sign):
    """Products just below 4 and an accumulator just below 2, all of one sign but the last."""
    unit = paired(terms, window)
    x, start = 2 - 2.0 ** (1 - unit.inputs[0].precision), 2 - 2.0**-23
    for last in (x, -x, 2.0**-12, 0.0):
        left = [[sign * x] * (terms - 1) + [sign * last]]
        check(run_window, unit, left, [[x]] * terms, sign * start)


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize(("x", "y", "place"), [(1401, 1403, 2), (1401, 1419, 3), (1401, 1427, 4)])
def test_integers_of_more_than_24_digits_are_not_rounded_before_their_sum(x, y, place, sign):
    """21 odd products below 2**21 units of the window make 26 digits, beside 2**27 units and more.

    Rounded to 24 digits first, they would move the sum to a midpoint, and it to the other number.
    """
    factors = (sign * x * 2.0**-16, y * 2.0**-15)
    terms = [(1.0, 1.0), (-1.0, 1.0)] + [factors] * 21 + [(0.0, 0.0)] * 9
    left, right = zip(*terms, strict=True)
    check(run_window, paired(32, 31), [left], [[v] for v in right], sign * 2.0**-place)


def test_sums_that_pairs_of_floats_do_not_hold_take_wider_lanes():
    """Sums of 32 terms in a window of 38 digits are below 2**46, half of what a float begins as."""
    unit = replace(find_unit("AMP_F16_F32"), terms=32)
    assert [w for w in range(31, 49) if _in_pairs(replace(unit, window=w))] == [*range(31, 39)]


@pytest.mark.parametrize("unit", ["V100_F16_F32", "AMP_F16_F32", "V100_F16_F16"])
def test_a_product_of_zero_and_a_large_number_has_no_exponent(unit):
    """With 0 * 32768 as the largest exponent the small addends would be cut away."""
    terms = [(0.0, 32768.0), (2.0**-8, 2.0**-7), (32768.0, 0.0), (2.0**-9, 2.0**-8)]
    assert one(unit, terms) == 2.0**-15 + 2.0**-17
    assert one(unit, [(0.0, 32768.0)] * 4, 2.0**-15) == 2.0**-15
    assert one(unit, [(0.0, 32768.0)] * 4) == 0


def test_subnormal_operands_count_with_the_smallest_exponent():
    """2**-24 * 2**8 has the exponent -14 + 8, so 2**-30 is cut off 24 digits below, not 40."""
    tiny = 2.0**-24
    for exponent, expected in ((-29, 2.0**-29), (-30, 0.0)):
        terms = [(tiny, 2.0**8), (2.0**-13, 2.0 ** (exponent + 13))]
        assert one("V100_F16_F32", terms) == tiny * 2.0**8 + expected


@pytest.mark.parametrize(
    ("unit", "exponent", "kind"),
    [
        ("V100_F16_F32", 0, WINDOW_31), ("ADA_E4M3_F32", 0, WINDOW_31),
        ("V100_F16_F16", 0, WINDOW_31), ("H100_F16_F32", 0, WINDOW_32),
        ("AMP_F16_F32", 0, WINDOW_PAIR),
        # The same of 31 digits.
        ("AMP_F16_F32", -94, WINDOW_PAIR), ("AMP_F16_F32", -95, WINDOW_64),
        # The scale of a window of 23 digits is 2**126 for the one and a subnormal for the other.
        ("V100_F16_F32", -102, WINDOW_31), ("V100_F16_F32", -103, WINDOW_64),
    ],
)
def test_all_lanes_are_under_test(unit, exponent, kind, monkeypatch):
    tasks = []
    monkeypatch.setattr(products, "run_tiles", lambda job, task: tasks.append(task.variant.kind))
    job = job_of(unit, [[1.0]], [[1.0]], 2.0**exponent)
    assert run_window(job)
    assert tasks == [kind]


def test_lanes_of_64_bits_give_what_those_of_32_give(monkeypatch):
    """The same calls where an engine takes the wider lanes for the same operands."""
    unit = find_unit("V100_F16_F32")
    a, b, c = at_the_edge(unit, 9, 17, 8, 5)
    monkeypatch.setattr(products, "_narrow", lambda *_: False)
    check(run_window, unit, a, b, c)


def test_other_records_are_refused():
    for change in ({"cut": "sticky"}, {"window": None}, {"order": "pairs"}):
        unit = replace(find_unit("V100_F16_F32"), **change)
        assert not run_window(job_of(unit, [[1.0]], [[1.0]]))
    assert not run_window(job_of("V100_F16_F32", [[np.inf]], [[1.0]]))
