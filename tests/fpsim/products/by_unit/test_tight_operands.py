"""Units where one digit decides: midpoints, window edges, tiny accumulators (corners).

Differential: the oracle in exact fractions judges each engine, for every unit and every format that
a result may have.
"""

from __future__ import annotations

import numpy as np
import pytest

import fpsim as fp
from fpsim.products.by_unit.exact import run_exact
from fpsim.products.by_unit.fused import run_fused
from fpsim.products.by_unit.general import run_general
from fpsim.products.by_unit.window import run_window
from fpsim.records.units import UNITS, find_unit
from tests.fpsim.kinds_of_units import ONE_OF_EACH_KIND
from tests.fpsim.products.by_unit.tight import cases, judged, outcome, settings_of
from tests.tiers import TIER, pick

#: Formats that a result is rounded to after the partials.
NARROW = (fp.BINARY16, fp.BFLOAT16, fp.F143, fp.F152, fp.E4M3FN, fp.E5M2)

#: Engines with the units that the quick tier runs on them: each has kernels of its own to compile.
FAST = {
    run_window: ("V100_F16_F32", "ADA_E4M3_F32", "V100_F16_F16", "AMP_F16_F32", "AMP_F16_F16"),
    run_exact: ("AMP_F16_F32.exact",),
    run_fused: ("AMP_F32_F32",),
}
EVERY_FAST = [(e, n) for e, names in FAST.items() for n in (names if TIER == "quick" else UNITS)]


def results_of(unit):
    """The partials' format and every narrower one."""
    return [unit.partials, *(r for r in NARROW if r.precision < unit.partials.precision)]


def check(engine, unit, result, count, rounding=fp.RNE):
    """How many of the cases the engine takes; each has the code and the flags of the oracle."""
    settings, taken = settings_of(unit, result, rounding), 0
    every = list(cases(unit, settings.a, settings.b, result))
    order = np.random.default_rng(len(every)).permutation(len(every))[:count]
    for case in (every[i] for i in order):
        actual = outcome(settings, case, engine)
        if actual is not None:
            assert actual == judged(settings, case), (unit.name, str(result), case)
            taken += 1
    return taken


@pytest.mark.parametrize("name", pick(ONE_OF_EACH_KIND, sorted(UNITS), sorted(UNITS)))
def test_the_general_engine_decides_as_the_definition_does(name):
    """It takes every case; results of the partials' format and of narrower ones."""
    unit = find_unit(name)
    count = pick(40, 300, 2000)
    assert check(run_general, unit, unit.partials, count) >= 40
    for result in results_of(unit)[1:]:
        for rounding in pick((fp.RNE,), (fp.RNE, fp.RTZ), (fp.RNE, fp.RTZ)):
            check(run_general, unit, result, pick(4, 40, 2000), rounding)


@pytest.mark.parametrize(("engine", "name"), EVERY_FAST)
def test_a_fast_engine_decides_as_the_definition_does(engine, name):
    """The units of the quick tier have most of their cases run by the engine."""
    unit = find_unit(name)
    taken = check(engine, unit, unit.partials, pick(300, 600, 2000))
    assert taken > 50 or name not in FAST[engine], taken
    for result in results_of(unit)[1:]:
        check(engine, unit, result, pick(8, 40, 2000))
