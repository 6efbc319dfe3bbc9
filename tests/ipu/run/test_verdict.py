"""Verdicts: an answer needs an effect beyond its uncertainty (law, differential: scipy)."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from scipy import stats

from ipu.run.verdict import UNDECIDED, Effect, over_seeds, verdict

samples = st.lists(st.floats(-100, 100), min_size=2, max_size=8)


@given(samples)
def test_the_interval_of_paired_values_is_students(values):
    effect = over_seeds(values)
    error = stats.sem(values)
    low, high = (
        stats.t.interval(0.95, len(values) - 1, np.mean(values), error)
        if error else (np.mean(values),) * 2
    )
    assert effect.value - effect.uncertainty == pytest.approx(low, abs=1e-9)
    assert effect.value + effect.uncertainty == pytest.approx(high, abs=1e-9)


def test_one_seed_decides_nothing():
    effect = over_seeds([5.0])
    assert math.isinf(effect.uncertainty)
    assert not effect.is_above(-1e9)
    assert not effect.is_below(1e9)


def test_a_known_error_bounds_the_uncertainty_from_below():
    assert over_seeds([3.0, 3.0], least=2.0).uncertainty == pytest.approx(1.959964 * 2)
    assert over_seeds([0.0, 30.0], least=2.0).uncertainty > 100


@given(st.floats(-10, 10), st.floats(0, 10), st.floats(-10, 10))
@example(1.0, 1.0, -2e-124)  # the interval is above, though its distance rounds to its width
def test_no_effect_is_above_and_below(value, uncertainty, threshold):
    effect = Effect(value, uncertainty)
    assert not (effect.is_above(threshold) and effect.is_below(threshold))
    if abs(Fraction(value) - Fraction(threshold)) <= Fraction(uncertainty):
        opening = verdict(effect.is_above(threshold), effect.is_below(threshold), needs="more")
        assert opening == f"{UNDECIDED}; more would decide it."


def test_an_exact_effect_is_decided():
    assert verdict(Effect(1.5).is_above(1.0), False, needs="") == "Yes."
    assert verdict(False, Effect(0.5).is_below(1.0), needs="") == "No."
