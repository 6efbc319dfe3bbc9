"""The engine of windowed units: what it takes and refuses; law (equal to the general engine)."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import fpsim as fp
from fpsim.products.by_unit.general import run_general
from fpsim.products.by_unit.unit_settings import UnitSettings
from fpsim.products.by_unit.window import run_window
from fpsim.products.jobs.job import Job
from fpsim.records.units import MatrixUnit
from tests.tiers import pick

HALF = MatrixUnit("TEST_F16_F32", "none", (fp.BINARY16,), fp.BINARY32, terms=4, window=23)
SHORT = replace(HALF, inputs=(fp.BFLOAT16,))
UNITS = {
    "nearest": HALF,
    "cut": replace(HALF, rounding=fp.RTZ),
    "half partials": replace(HALF, partials=fp.BINARY16, calls=2),
    "half accumulators": replace(HALF, partials=fp.BINARY16, accumulator=fp.BINARY16),
    "wide window": replace(HALF, window=31),
    "bfloat16": SHORT,
}


def run(engine, unit, a, b, start=None, scale=0, **choices):
    """Whether the engine takes the job; values and flags, as bytes."""
    context = fp.Context(unit.partials, **choices)
    settings = UnitSettings(unit, unit.inputs[0], unit.inputs[0], context.core.settings, scale)
    values = np.zeros((len(a), b.shape[1]), np.float32) if start is None else start.copy()
    flags = np.zeros(values.shape, np.uint8)
    taken = engine(Job(settings, a, b, values, flags))
    return taken, values.tobytes(), flags.tobytes()


def same_as_general(*arguments, **choices):
    """Whether the engine takes it; where it does, its outcome is the general one's."""
    taken, *outcome = run(run_window, *arguments, **choices)
    assert not taken or outcome == list(run(run_general, *arguments, **choices)[1:])
    return taken


#: In the quick tier one of each store and width of lanes: each unit is a kernel.
CHOSEN = pick(["cut", "half partials", "bfloat16"], list(UNITS), list(UNITS))


@pytest.mark.parametrize("scale", [0, 5])
@pytest.mark.parametrize("spread", [0, 6])
@pytest.mark.parametrize("unit", [UNITS[name] for name in CHOSEN], ids=CHOSEN)
def test_it_gives_what_the_general_engine_gives(unit, spread, scale):
    rng = np.random.default_rng(1)
    context = fp.Context(unit.inputs[0])
    a, b = (
        context.array(rng.standard_normal(s) * 2.0 ** rng.integers(-spread, spread + 1, s)).values
        for s in ((5, 19), (19, 18))
    )
    start = fp.Context(unit.partials).array(rng.standard_normal((5, 18))).values
    for begin in (None, start):
        assert same_as_general(unit, a, b, begin, scale)


def test_a_pass_may_be_longer_than_the_stretches_of_the_loop():
    """48 products of a pass, eight passes of which are more than the loop takes at a time."""
    unit = replace(UNITS["half partials"], terms=16, calls=3)
    rng = np.random.default_rng(2)
    half = fp.Context(fp.BINARY16)
    a, b = (half.array(rng.standard_normal(s)).values for s in ((3, 500), (500, 17)))
    assert same_as_general(unit, a, b)


#: Window, accumulator's rounding: one more digit than the window has, all of them, many more.
WINDOWS = [(22, fp.RNE), (23, fp.RNE), (31, fp.RNE), (22, fp.RTZ), (23, fp.RTZ)]


@pytest.mark.parametrize(("window", "rounding"), pick(WINDOWS[:3], WINDOWS, WINDOWS), ids=str)
def test_calls_of_zeros_leave_the_sums_as_they_are(window, rounding):
    """A pass of four calls ends with up to three of zeros, which cut sums that are too long."""
    unit = replace(HALF, terms=2, calls=4, window=window, rounding=rounding)
    rng, half = np.random.default_rng(8), fp.Context(fp.BINARY16)
    for terms in range(1, 18):
        a, b = (
            half.array(rng.standard_normal(s) * 2.0 ** rng.integers(-9, 9, s)).values
            for s in ((3, terms), (terms, 17))
        )
        start = rng.standard_normal((3, 17)).astype(np.float32)
        start[0, :2] = 0.0, -0.0
        for begin in (None, start):
            assert same_as_general(unit, a, b, begin)


@pytest.mark.parametrize("partials", [fp.BFLOAT16, fp.TF32], ids=str)
def test_sums_near_the_largest_number_are_rounded(partials):
    """1.5 * 2**k with k digits more than a sum is no number of binary32 for sums from 2**112 on."""
    unit = replace(SHORT, partials=partials, terms=2, window=10)
    for exponent in (110, 112, 113, 115):
        a = np.float32([[2.0 ** (exponent - 58), 2.0 ** (exponent - 70)]])
        b = np.float32([[1.5 * 2.0**58] * 3, [2.0**59] * 3])
        assert same_as_general(unit, a, b), exponent


def test_infinite_partials_stay_beside_pairs_of_floats():
    """Products of up to 2**17 overflow in partials of binary16 in one pass and meet in the next."""
    unit = replace(UNITS["half partials"], window=31)
    rng = np.random.default_rng(6)
    half = fp.Context(fp.BINARY16)
    a, b = (half.array(rng.standard_normal(s) * 100).values for s in ((9, 64), (64, 17)))
    taken, values, _ = run(run_window, unit, a, b)
    assert taken
    assert np.isinf(np.frombuffer(values, np.float32)).any()
    assert same_as_general(unit, a, b)


@pytest.mark.parametrize(
    "change",
    [
        {"window": None},
        {"cut": "sticky"},
        {"join": fp.BINARY32},
        {"order": "pairs", "calls": 2},
        {"terms": 33},
        {"accumulator": fp.TF32},
        {"window": 48},
    ],
    ids=str,
)
def test_records_that_the_loop_does_not_know_are_refused(change):
    ones = np.ones((2, 2), np.float32)
    unit = replace(HALF, **change)
    if "window" in change and change["window"] == 48:
        # 48 digits and the carries of 4 terms are more than 50; of one term they are not.
        assert run(run_window, replace(unit, terms=1), ones, ones)[0]
    assert not run(run_window, unit, ones, ones)[0]
    assert run(run_window, HALF, ones, ones)[0]


@pytest.mark.parametrize("special", [np.inf, np.nan])
@pytest.mark.parametrize("operand", [0, 1, 2])
def test_infinities_and_nan_are_refused_and_nothing_is_written(operand, special):
    arrays = [np.ones((2, 2), np.float32) for _ in range(3)]
    arrays[operand][1, 1] = special
    taken, values, flags = run(run_window, HALF, *arrays)
    assert (taken, values, flags) == (False, arrays[2].tobytes(), bytes(4))


def edge(unit, job):
    """Exponents for which the engine takes a job, all judged by the general engine."""
    return [e for e in range(-126, 127) if same_as_general(unit, *job(e))]


def number(e):
    return np.full((1, 1), np.ldexp(1.5, e), np.float32)


def test_products_are_taken_from_their_smallest_to_their_largest():
    """Sums are multiples of 2**(e - window), normal in binary32, and below 2**(e + 2)."""
    taken = edge(SHORT, lambda e: (number(e), number(0)))
    assert taken == list(range(23 - 126, 118))
    wide = edge(replace(SHORT, window=10), lambda e: (number(e), number(0)))
    assert wide == list(range(10 - 126, 118))


def test_a_start_is_taken_where_its_digits_stay_normal():
    taken = edge(SHORT, lambda e: (number(0), number(0), number(e)))
    assert taken == list(range(23 - 126, 120))


def test_a_scale_counts_with_the_products():
    assert same_as_general(SHORT, number(60), number(50), None, 7)
    assert not same_as_general(SHORT, number(60), number(50), None, 8)


@pytest.mark.parametrize("top", [59, 60, 61])
def test_both_kinds_of_lanes_give_the_same_at_the_end_of_the_narrow_ones(top):
    unit = replace(SHORT, window=12)
    a = np.float32([[np.ldexp(1.25, top), 1.0, -3.0, 0.0, np.ldexp(-1.75, top - 9)]])
    b = np.float32([[1.5], [0.125], [1.0], [2.0**50], [1.0]])
    assert same_as_general(unit, a, b)
    assert same_as_general(unit, a, b, np.float32([[2.0**-20]]))
