"""Magnitudes of operands against numpy, at every length beside whole vectors (differential)."""

from __future__ import annotations

import numpy as np
import pytest

from fpsim.kernels.by_unit.reach import extents

NONE = np.zeros(0, np.uint32)


def of(x):
    """The least magnitude that is not zero, and the largest."""
    size = np.abs(np.float32(x))
    return float(size[size > 0].min(initial=np.inf)), float(size.max(initial=0.0))


@pytest.mark.parametrize("n", [0, 1, 15, 16, 17, 31, 32, 47])
def test_magnitudes_at_every_place(n):
    """The least and the largest number stand in each place once, in the vectors and behind them."""
    rng = np.random.default_rng(n)
    x = np.float32(rng.uniform(1, 2, n) * rng.choice([-1, 1], n))
    for place in range(n):
        low, high = x.copy(), x.copy()
        low[place], high[place] = -(2.0**-149), -3e38
        ends = extents(*(v.view(np.uint32) for v in (low, high, x)))
        assert ends == (*of(low), *of(high), *of(x))
    assert extents(*(v.view(np.uint32) for v in (x, x[:0], x))) == (*of(x), np.inf, 0.0, *of(x))


@pytest.mark.parametrize("n", [3, 16, 20])
def test_zeros_are_never_the_smallest(n):
    x = np.zeros(n, np.float32)
    x[::2] = -0.0
    assert extents(x.view(np.uint32), NONE, NONE)[:2] == (np.inf, 0.0)
    x[-1] = 2.0**-149
    assert extents(x.view(np.uint32), NONE, NONE)[:2] == (2.0**-149, 2.0**-149)


@pytest.mark.parametrize("n", [3, 16, 20])
def test_what_is_no_number_is_the_largest(n):
    x = np.ones(n, np.float32)
    x[0] = -np.inf
    assert extents(NONE, x.view(np.uint32), NONE)[2:4] == (1.0, np.inf)
    x[-1] = np.nan
    low, high = extents(NONE, NONE, x.view(np.uint32))[4:]
    assert low == 1.0
    assert np.isnan(high)
    x[:] = -np.inf
    assert extents(x.view(np.uint32), NONE, NONE)[:2] == (np.inf, np.inf)
