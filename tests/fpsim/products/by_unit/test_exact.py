"""The engine of exact units: what it takes and refuses; law (equal to the general engine)."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import fpsim as fp
from fpsim.products.by_unit.exact import run_exact
from fpsim.products.by_unit.general import run_general
from fpsim.products.by_unit.unit_settings import UnitSettings
from fpsim.products.jobs.job import Job
from fpsim.records.units import MatrixUnit
from tests.tiers import pick

HALF = MatrixUnit("TEST_F16_F32", "none", (fp.BINARY16,), fp.BINARY32, terms=4, window=None)
SHORT = replace(HALF, inputs=(fp.BFLOAT16,))
UNITS = {
    "four terms": HALF,
    "one term": replace(HALF, terms=1),
    "sixteen terms": replace(HALF, terms=16),
    "half partials": replace(HALF, partials=fp.BINARY16, calls=4),
    "bfloat16": SHORT,
}


def run(engine, unit, a, b, start=None, scale=0):
    """Whether the engine takes the job; values and flags, as bytes."""
    context = fp.Context(unit.partials)
    settings = UnitSettings(unit, unit.inputs[0], unit.inputs[0], context.core.settings, scale)
    values = np.zeros((len(a), b.shape[1]), np.float32) if start is None else start.copy()
    flags = np.zeros(values.shape, np.uint8)
    taken = engine(Job(settings, a, b, values, flags))
    return taken, values.tobytes(), flags.tobytes()


def same_as_general(*arguments):
    """Whether the engine takes it; where it does, its outcome is the general one's."""
    taken, *outcome = run(run_exact, *arguments)
    assert not taken or outcome == list(run(run_general, *arguments)[1:])
    return taken


#: In the quick tier one of each store: each unit is a kernel.
CHOSEN = pick(["one term", "sixteen terms", "half partials"], list(UNITS), list(UNITS))


@pytest.mark.parametrize("scale", [0, -7])
@pytest.mark.parametrize("spread", [0, 10])
@pytest.mark.parametrize("unit", [UNITS[name] for name in CHOSEN], ids=CHOSEN)
def test_it_gives_what_the_general_engine_gives(unit, spread, scale):
    rng = np.random.default_rng(1)
    context = fp.Context(unit.inputs[0])
    a, b = (
        context.array(rng.choice([-1, 1], s) * 2.0 ** rng.integers(-spread, spread + 1, s)).values
        for s in ((5, 35), (35, 18))
    )
    start = fp.Context(unit.partials).array(rng.standard_normal((5, 18))).values
    for begin in (None, start):
        assert same_as_general(unit, a, b, begin, scale)


@pytest.mark.parametrize(
    "change",
    [
        {"window": 23},
        {"join": fp.BINARY32},
        {"order": "pairs", "calls": 2},
        {"terms": 17},
        {"rounding": fp.RTZ},
        {"accumulator": fp.BINARY16, "partials": fp.BINARY16},
        {"inputs": (fp.Format.custom(5, 14),)},
    ],
    ids=str,
)
def test_records_that_two_limbs_do_not_serve_are_refused(change):
    ones = np.ones((2, 2), np.float32)
    assert not run(run_exact, replace(HALF, **change), ones, ones)[0]
    assert run(run_exact, replace(HALF, inputs=(fp.Format.custom(5, 13),)), ones, ones)[0]


@pytest.mark.parametrize("special", [np.inf, np.nan])
@pytest.mark.parametrize("operand", [0, 1, 2])
def test_infinities_and_nan_are_refused_and_nothing_is_written(operand, special):
    arrays = [np.ones((2, 2), np.float32) for _ in range(3)]
    arrays[operand][1, 1] = special
    taken, values, flags = run(run_exact, HALF, *arrays)
    assert (taken, values, flags) == (False, arrays[2].tobytes(), bytes(4))


def test_two_limbs_hold_98_digits():
    """Products 2**low … 2**high of precision 8: 14 digits below low, and 2 + bits of K above."""
    taken = []
    for e in range(-110, 1):
        a = np.float32([[1.0, np.ldexp(1.0078125, e), -1.0, np.ldexp(-1.9921875, e)]])
        b = np.float32([[1.0], [1.0078125], [1.0], [1.9921875]])
        if same_as_general(SHORT, a, b):
            taken.append(e)
    # top = 0 + 2 + 3 and last = e - 14.
    assert taken == list(range(5 - 98 + 14, 1))


def test_results_are_normal_numbers_of_binary32():
    def number(e):
        return np.full((1, 1), np.ldexp(1.9921875, e), np.float32)

    taken = [e for e in range(-126, 127) if same_as_general(SHORT, number(e), number(0))]
    assert taken == list(range(14 - 126, 118))


def test_a_start_takes_room_of_its_own():
    one = np.ones((1, 1), np.float32)
    starts = [e for e in range(-126, 127) if same_as_general(SHORT, one, one, one * 2.0**e)]
    assert starts[0] <= -60
    assert starts[-1] >= 60
    assert starts == list(range(starts[0], starts[-1] + 1))
    assert -126 not in starts
    assert 126 not in starts
