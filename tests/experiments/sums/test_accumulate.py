"""Running sums of many lanes have the exact expectation and spread (statistical).

Over 2 000 lanes the mean may be off by 0.0014, which is four standard errors (0.0154/sqrt(2000) =
0.00034; once in 15 000 seeds), and the standard deviation must lie in 0.0140 … 0.0162, three of
its own on the near side (once in 2 000 seeds). The seed is fixed.
"""

from __future__ import annotations

import numpy as np
import pytest

from fpsim import BINARY16, RNE, SR, Context
from ipu.experiments.sums.accumulate import running_sums
from ipu.experiments.sums.stochastic_accumulation import ADDITIONS, TERM
from tests.threads import on_threads

EXPECTATION = 10_000 * 839 / 2**23


def ends_of(rounding, lanes, seed=0):
    *_, (_, sums) = running_sums(
        Context(BINARY16, rounding=rounding, seed=seed), np.full(lanes, TERM), ADDITIONS, ""
    )
    return np.asarray(sums, np.float64)


def looks_unbiased(ends):
    """The bounds that the default generator must meet over 2 000 lanes."""
    return bool(abs(ends.mean() - EXPECTATION) < 0.0014 and 0.0140 < ends.std(ddof=1) < 0.0162)


def test_rounding_to_nearest_stops_at_a_quarter():
    assert ends_of(RNE, 3).tolist() == [0.25] * 3


@pytest.mark.source("S4-15")
def test_stochastic_lanes_have_the_exact_expectation_and_spread():
    ends = ends_of(SR(), 2_000)
    assert looks_unbiased(ends)
    assert np.unique(ends).size > 50


def test_six_random_bits_are_seen_to_be_too_few():
    assert not looks_unbiased(ends_of(SR(bits=6), 2_000))


def test_threads_do_not_show_in_the_sums():
    def sums():
        context = Context(BINARY16, rounding=SR(), seed=5)
        *_, (_, totals) = running_sums(context, np.full(5_000, TERM), 50, "")
        return totals.tolist()

    assert on_threads(1, sums) == on_threads(2, sums) == on_threads(3, sums)
