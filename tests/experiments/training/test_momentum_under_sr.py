"""Momentum shrinks the scatter of stochastic rounding; verdicts by the rows (golden, law)."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from ipu.experiments.training import momentum_under_sr
from tests.experiments.figures import assert_panels


@pytest.mark.source("S4-47")
@pytest.mark.tier("full")
def test_scatter_of_stochastic_rounding_shrinks_with_momentum():
    result = momentum_under_sr.run(quick=True, seed=0)
    (_, factor) = momentum_under_sr.ratios(result)[0]
    assert factor > 1


def test_a_small_run_has_its_rows_panels_and_sentence(few_digits):
    result = momentum_under_sr.run(quick=True, seed=0)
    assert [(r["rate"], r["method"], r["trainings"]) for r in result.rows] == [
        (rate, method, 3) for rate in (0.03, 0.001) for method in momentum_under_sr.METHODS
    ]
    assert all(row["spread"] > 0 for row in result.rows)
    assert result.answer.startswith(second_verdict(result.rows))
    assert_panels(momentum_under_sr.plot(result), 2)


def second_verdict(rows):
    """The interval of each logarithm of the ratio, from the rows alone."""
    sides = []
    for rate in {row["rate"] for row in rows}:
        plain, averaged = (next(r for r in rows if (r["rate"], r["method"]) == (rate, method))
                           for method in momentum_under_sr.METHODS)
        ratio = 2 * math.log(plain["spread"] / averaged["spread"])
        error = math.hypot(plain["log_variance_error"], averaged["log_variance_error"])
        low, high = stats.t.interval(0.95, 2 * plain["trainings"] - 2, ratio, error)
        sides.append(1 if low > 0 else -1 if high < 0 else 0)
    return (
        {1: "Yes.", -1: "No."}[sides[0]] if set(sides) in ({1}, {-1}) else "Undecided by this run"
    )


def rows_of(factors, error):
    return [
        {"method": method, "rate": rate, "spread": spread, "off": 0.1, "trainings": 10,
         "log_variance_error": error}
        for rate, factor in zip((0.1, 0.01), factors, strict=True)
        for method, spread in zip(momentum_under_sr.METHODS, (math.sqrt(factor), 1.0), strict=True)
    ]


@pytest.mark.parametrize(
    ("factors", "error", "opening"),
    [((1.5, 2.0), 0.01, "Yes."), ((0.5, 0.7), 0.01, "No."), ((0.9, 1.7), 0.01, "Undecided"),
     ((1.5, 2.0), 0.5, "Undecided"), ((1.5, 2.0), math.inf, "Undecided")],
)
def test_the_verdict_follows_from_the_rows(factors, error, opening):
    rows = rows_of(factors, error)
    assert momentum_under_sr._answer(rows).startswith(opening)
    assert second_verdict(rows).startswith(opening)


def test_the_jackknife_finds_the_spread_of_a_variance():
    """Of one parameter with normal values log var has the variance 2/(n - 1), nearly."""
    draw = np.random.default_rng(0)
    errors = [momentum_under_sr.jackknife(draw.standard_normal((40, 1))) for _ in range(200)]
    assert np.sqrt(np.mean(np.square(errors))) == pytest.approx(math.sqrt(2 / 39), rel=0.15)
    assert math.isinf(momentum_under_sr.jackknife(np.ones((2, 5))))
