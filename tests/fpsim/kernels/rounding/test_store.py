"""Rounding of stored partials against the elementwise conversion (differential)."""

from __future__ import annotations

import numpy as np
import pytest

import fpsim as fp
from fpsim.elementwise.constants import plan
from fpsim.kernels.random.words import NO_WORDS
from fpsim.kernels.rounding.store import store_kernel
from fpsim.records.settings import Settings


@pytest.mark.parametrize("rounding", [fp.RNE, fp.RTN], ids=repr)
@pytest.mark.parametrize("fmt", [fp.BINARY16, fp.E4M3FN], ids=str)
def test_partials_are_rounded_like_elements(fmt, rounding):
    """Midpoints of both signs, overflow, infinity, NaN; 35 of them, so the last few are alone."""
    ulp = 2.0 ** (1 - fmt.precision)
    x = [s * (1 + n * ulp / 4) for n in range(8) for s in (1, -1)]
    x += [fmt.max, 1.01 * fmt.max, 2 * fmt.max, -2 * fmt.max, np.inf, -np.inf, np.nan]
    x += [fmt.smallest_subnormal * n / 4 for n in range(-6, 6)]
    values = np.array(x, np.float32)
    assert len(values) == 35
    settings = Settings(fmt, rounding)
    chosen = plan("convert", settings, 32)
    element_flags = np.zeros(len(values), np.uint8)
    loop = store_kernel(chosen.mode, False, 0)
    context = fp.Context(fmt, rounding=rounding)
    expected = context.array(values.astype(np.float64))
    raised = loop(values, element_flags, NO_WORDS, chosen.constants)
    assert np.array_equal(values, expected.values, equal_nan=True)
    zero = values == 0
    assert np.array_equal(np.signbit(values)[zero], np.signbit(expected.values)[zero])
    assert raised == np.bitwise_or.reduce(element_flags)
    assert raised == int(context.flags) & int(fp.Flags.OVERFLOW | fp.Flags.INVALID)
    assert element_flags[:16].max() == 0
