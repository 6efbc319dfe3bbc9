"""Rounding of stored partials against the elementwise conversion (differential)."""

from __future__ import annotations

import numpy as np
import pytest
from numba import njit

import fpsim as fp
from fpsim.elementwise.constants import plan
from fpsim.kernels.lanes.memory import load_float, store_float
from fpsim.kernels.lanes.vectors import as_bits, infinity_like
from fpsim.kernels.rounding.rule import spread
from fpsim.kernels.rounding.store import BY_INTEGERS, LOUD, QUIET, store_lanes, store_ordinary
from fpsim.kernels.target import HAS_QUIET_ADD
from fpsim.records.settings import Settings

WAYS = [LOUD, BY_INTEGERS, *([QUIET] if HAS_QUIET_ADD else [])]


def ordinary(mode, care):
    how = (mode, False, 0, care)

    @njit
    def rounded(values, constants):
        rule = spread(constants)
        bits = as_bits(load_float(values, 0, rule.drop))
        field = bits & infinity_like(bits)
        store_float(values, 0, store_ordinary(how, bits, field, bits, rule))

    return rounded


def any_partial(mode):
    what = (mode, False, 0)

    @njit
    def rounded(values, constants):
        rule = spread(constants)
        bits = as_bits(load_float(values, 0, rule.drop))
        bits, _ = store_lanes(what, bits, bits, rule)
        store_float(values, 0, bits)

    return rounded


@pytest.mark.parametrize("rounding", [fp.RNE, fp.RTZ], ids=repr)
@pytest.mark.parametrize("fmt", [fp.BINARY16, fp.E4M3FN], ids=str)
def test_partials_that_cannot_overflow_are_rounded_like_elements(fmt, rounding):
    """Midpoints of both signs around one and below the smallest normal number."""
    ulp = 2.0 ** (1 - fmt.precision)
    x = [s * (1 + n * ulp / 4) for n in range(4) for s in (1, -1)]
    x += [fmt.smallest_subnormal * n / 4 for n in (1, 2, 3, 5, 6, 7, 9, 10)]
    program = plan("convert", Settings(fmt, rounding), 32)
    expected = fp.Context(fmt, rounding=rounding).array(np.array(x)).values
    for care in WAYS:
        values = np.array(x, np.float32)
        ordinary(program.mode, care)(values, program.constants)
        assert np.array_equal(values, expected)
    values = np.array(x, np.float32)
    any_partial(program.mode)(values, program.constants)
    assert np.array_equal(values, expected)
