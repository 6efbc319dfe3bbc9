"""Random units: every one is allowed, and together they are of all kinds (law)."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import fpsim as fp
from fpsim.elementwise.codes import from_codes
from fpsim.judge.verify.random_units import KINDS, SHAPES, codes_of, draw_case, named_case, ties
from fpsim.records.units import find_unit

CASES = [
    draw_case(np.random.default_rng([3, n]), SHAPES[n % len(SHAPES)], n)
    for n in range(20 * len(SHAPES))
]


def test_what_is_compiled_in_is_that_of_the_shape():
    for n, case in enumerate(CASES):
        shape = SHAPES[n % len(SHAPES)]
        assert (case.unit.terms, case.unit.calls) == (shape.terms, shape.calls)
        assert case.settings.rounding == shape.stores
        assert {case.a, case.b} == set(case.unit.inputs)


def test_the_sample_has_units_of_every_kind():
    units = [case.unit for case in CASES]
    for name, least in (
        ("window", 25), ("accumulator", 25), ("partials", 25), ("inputs", 100), ("join", 3),
    ):
        assert len({str(getattr(unit, name)) for unit in units}) >= least, name
    assert {unit.order for unit in units} == {"ascending", "pairs"}
    assert {unit.cut for unit in units} == {"truncate", "sticky"}
    assert {unit.stores for unit in units} == {True, False}
    assert {unit.products is None for unit in units} == {True, False}
    assert {case.kind for case in CASES} == set(KINDS)
    assert {case.settings.subnormals for case in CASES} == {"keep", "flush_results", "flush_both"}
    assert any(case.scale for case in CASES)


def test_a_named_unit_stays_what_it_is():
    unit = find_unit("V100_F16_F32")
    assert named_case(np.random.default_rng(0), unit, SHAPES[0]).unit is unit


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "tie"])
@pytest.mark.parametrize("name", ["BINARY16", "E4M3FN", "F143", "E2M1FN", "BFLOAT16"])
def test_operands_are_codes_of_the_format(kind, name):
    fmt, rng = getattr(fp, name), np.random.default_rng(1)
    codes = codes_of(rng, fmt, (40, 40), kind, 0, 20)
    values = from_codes(codes.astype(fmt.code_dtype), fmt)
    finite = np.isfinite(values)
    assert (codes < fmt.n_codes).all()
    assert finite.all() or kind == "special"
    if kind == "top":
        assert np.abs(values[finite]).max() == fmt.max
    if kind == "subnormal":
        assert np.abs(values).max() < 2 * fmt.smallest_normal


def test_ties_are_decided_far_below_the_last_digit():
    """Some sums are a tie of binary16 in their first 24 digits and not one in all of them."""
    unit = find_unit("V100_F16_F16")
    case = replace(CASES[2], unit=replace(unit, window=40), a=fp.BINARY16, b=fp.BINARY16)
    decided = 0
    for seed in range(40):
        a, b = ties(np.random.default_rng(seed), case, (4, 4, 4))
        a, b = (from_codes(x.astype(np.uint16), fp.BINARY16).astype(np.float64) for x in (a, b))
        sums = a @ b  # exact: all digits are within 53
        with np.errstate(over="ignore"):
            short = sums.astype(np.float32)
            decided += (short.astype(np.float16) != sums.astype(np.float16)).sum()
    assert decided >= 5
