"""The general engine of units: differential (oracle) for records that no other engine knows."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import fpsim as fp
from fpsim.elementwise.codes import from_codes, to_codes
from fpsim.judge.oracle.random import product_word
from fpsim.judge.oracle.rounding import canonical_nan, encode, infinity
from fpsim.judge.oracle.units import Ask, one_output
from fpsim.products.by_unit import general
from fpsim.products.by_unit.general import run_general
from fpsim.products.by_unit.unit_settings import UnitSettings
from fpsim.products.jobs.job import Job
from fpsim.records.units import MatrixUnit
from fpsim.state.draws import draw_places

SEED = 4
HALF = MatrixUnit("TEST_F16_F32", "none", (fp.BINARY16,), fp.BINARY32, terms=4, window=23)
STORED = replace(HALF, partials=fp.BINARY16, calls=2)
UNITS = {
    "window": HALF,
    "sticky": replace(HALF, cut="sticky", window=12),
    "exact": replace(HALF, window=None),
    "cut": replace(HALF, rounding=fp.RTZ, accumulator=fp.Format.custom(8, 14)),
    "pairs": replace(HALF, order="pairs", calls=2, window=None),
    "join": replace(HALF, join=fp.BINARY32, calls=2),
    "rounded products": replace(HALF, product_rounded=True, terms=1, window=None),
    "stored": STORED,
    "quarter": replace(STORED, inputs=(fp.F143, fp.F152)),
}


def outcome(unit, context, a, b, start):
    formats = unit.inputs[0], unit.inputs[-1]
    settings = UnitSettings(unit, *formats, context.core.settings)
    places = draw_places(context.core, settings.rounding_places(len(b)), start.shape)
    values, flags = start.copy(), np.zeros(start.shape, np.uint8)
    assert run_general(Job(settings, a, b, values, flags, places))
    return to_codes(values, unit.partials).tolist(), flags.tolist()


def code_of(datum, fmt):
    if datum.kind == "nan":
        return canonical_nan(fmt)
    return infinity(datum.sign, fmt) if datum.kind == "infinite" else encode(*datum[1:3], fmt)


@pytest.mark.parametrize("special", [False, True])
@pytest.mark.parametrize("unit", UNITS.values(), ids=UNITS)
def test_every_output_is_that_of_the_oracle(unit, special):
    rng = np.random.default_rng([special, list(UNITS.values()).index(unit)])
    formats = unit.inputs[0], unit.inputs[-1], unit.partials
    shapes = (4, 11), (11, 5), (4, 5)
    arrays, codes = [], []
    for fmt, shape in zip(formats, shapes, strict=True):
        context = fp.Context(fmt, overflow="saturate")
        c = context.array(rng.standard_normal(shape) * 2.0 ** rng.integers(-8, 4, shape)).codes()
        if special:
            anything = rng.integers(0, fmt.n_codes, shape).astype(fmt.code_dtype)
            c = np.where(rng.random(shape) < 0.1, anything, c)
        codes.append(c)
        arrays.append(from_codes(c, fmt))
    rounding = fp.SR(9) if unit.partials == fp.BINARY16 else fp.RNE
    context = fp.Context(unit.partials, rounding=rounding, seed=SEED)
    values, flags = outcome(unit, context, *arrays)
    ask = Ask(unit, *formats[:2], context.core.settings)
    for i, (m, n) in enumerate(np.ndindex(4, 5)):

        def word(place, i=i):
            return product_word(SEED, 0, i, place, 9)

        datum, raised = one_output(
            ask, codes[0][m].tolist(), codes[1][:, n].tolist(), int(codes[2][m, n]), word
        )
        assert (values[m][n], flags[m][n]) == (code_of(datum, unit.partials), int(raised)), (m, n)


def test_blocks_of_rows_and_threads_change_nothing(monkeypatch):
    rng = np.random.default_rng(3)
    half = fp.Context(fp.BINARY16)
    a, b, start = (half.array(rng.standard_normal(s)).values for s in ((9, 11), (11, 7), (9, 7)))
    context = fp.Context(fp.BINARY16, rounding=fp.SR(9), seed=SEED)
    wanted = outcome(STORED, context, a, b, start)
    monkeypatch.setattr(general, "_ROWS", 2)
    monkeypatch.setattr(general, "_SMALLEST", 1)
    threads = fp.get_threads()
    try:
        for number in (1, 2):
            fp.set_threads(number)
            assert outcome(STORED, context, a, b, start) == wanted
    finally:
        fp.set_threads(threads)
