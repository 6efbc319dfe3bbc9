"""The engine of fused multiply-adds: what it takes and refuses; law (equal to the general one)."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import fpsim as fp
from fpsim.products.by_unit.fused import run_fused
from fpsim.products.by_unit.general import run_general
from fpsim.products.by_unit.unit_settings import UnitSettings
from fpsim.products.jobs.job import Job
from fpsim.records.units import MatrixUnit

UNIT = MatrixUnit(
    "TEST_F32_F32", "none", (fp.BINARY32,), fp.BINARY32, terms=1, window=None, calls=8
)
POLICIES = ("keep", "flush_results", "flush_both")


def run(engine, a, b, start=None, *, unit=UNIT, scale=0, policy="keep"):
    """Whether the engine takes the job; values and flags, as bytes."""
    fmt = unit.inputs[0]
    settings = UnitSettings(unit, fmt, fmt, fp.Context(unit.partials).core.settings, scale, policy)
    values = np.zeros((len(a), b.shape[1]), np.float32) if start is None else start.copy()
    flags = np.zeros(values.shape, np.uint8)
    taken = engine(Job(settings, a, b, values, flags))
    return taken, values.tobytes(), flags.tobytes()


def same_as_general(*arguments, **choices):
    """Whether the engine takes it; where it does, its outcome is the general one's."""
    taken, *outcome = run(run_fused, *arguments, **choices)
    assert not taken or outcome == list(run(run_general, *arguments, **choices)[1:])
    return taken


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("exponent", [0, -40, 60, 63])
def test_it_gives_what_the_general_engine_gives(exponent, policy):
    rng = np.random.default_rng(1)
    a, b = (np.float32(rng.standard_normal(s) * 2.0**exponent) for s in ((9, 20), (20, 33)))
    start = np.float32(rng.standard_normal((9, 33)))
    taken = [same_as_general(a, b, begin, policy=policy) for begin in (None, start)]
    assert taken[0] or exponent < 0


@pytest.mark.parametrize("policy", POLICIES)
def test_sums_at_the_smallest_normal_are_those_of_the_general_engine(policy):
    rng = np.random.default_rng(2)
    for exponent in range(-66, -50):
        a, b = (np.float32(rng.standard_normal(s) * 2.0**exponent) for s in ((4, 9), (9, 17)))
        same_as_general(a, b, policy=policy)
        same_as_general(a, b, np.float32(rng.standard_normal((4, 17)) * 2.0**-127), policy=policy)


def test_a_subnormal_sum_is_refused_and_nothing_is_written_where_it_is_flushed():
    a, b = np.full((1, 1), 1.5 * 2.0**-64, np.float32), np.full((1, 1), 2.0**-64, np.float32)
    start = np.full((1, 1), 2.0**-126, np.float32)
    for begin in (None, -start):
        taken, values, flags = run(run_fused, a, b, begin, policy="flush_results")
        if not taken:
            assert values == (np.zeros((1, 1), np.float32) if begin is None else begin).tobytes()
            assert flags == bytes(1)
        same_as_general(a, b, begin, policy="flush_results")


@pytest.mark.parametrize(
    "change",
    [
        {"terms": 2},
        {"window": 31},
        {"join": fp.BINARY32},
        {"inputs": (fp.BINARY16,)},
        {"rounding": fp.RTZ},
        {"partials": fp.BINARY16},
        {"accumulator": fp.TF32},
    ],
    ids=str,
)
def test_other_records_are_refused(change):
    ones = np.ones((2, 2), np.float32)
    assert not run(run_fused, ones, ones, unit=replace(UNIT, **change))[0]
    assert not run(run_fused, ones, ones, scale=1)[0]
    assert run(run_fused, ones, ones)[0]


@pytest.mark.parametrize("special", [np.inf, np.nan])
@pytest.mark.parametrize("operand", [0, 1, 2])
def test_infinities_and_nan_are_refused_and_nothing_is_written(operand, special):
    arrays = [np.ones((2, 2), np.float32) for _ in range(3)]
    arrays[operand][1, 1] = special
    taken, values, flags = run(run_fused, *arrays)
    assert (taken, values, flags) == (False, arrays[2].tobytes(), bytes(4))


def test_an_overflow_is_seen_in_each_output():
    a, b = np.float32([[2.0**100], [1.0]]), np.float32([[2.0**27, 2.0**28]])
    taken, values, flags = run(run_fused, a, b)
    assert taken
    assert np.frombuffer(values, np.float32).tolist() == [2.0**127, np.inf, 2.0**27, 2.0**28]
    assert list(flags) == [0, int(fp.Flags.OVERFLOW), 0, 0]


def test_each_term_is_rounded_once():
    """(1 + 2**-12)**2 - (1 + 2**-11) is 2**-24, which a rounded product would lose."""
    x = 1 + 2.0**-12
    a, b = np.float32([[-1.0, x]]), np.float32([[1 + 2.0**-11], [x]])
    _, values, _ = run(run_fused, a, b)
    assert np.frombuffer(values, np.float32).tolist() == [2.0**-24]
