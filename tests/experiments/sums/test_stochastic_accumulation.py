"""The stochastic accumulation and its exact law (golden, law)."""

from __future__ import annotations

import math
import statistics

import pytest

from ipu.experiments.sums import stochastic_accumulation
from ipu.experiments.sums.stochastic_accumulation import ADDITIONS, exact_law, law_moments
from tests.experiments.figures import assert_panels

EXPECTATION = 10_000 * 839 / 2**23


def test_exact_law_has_the_exact_expectation():
    law = exact_law(839 / 2**23, ADDITIONS)
    probability = sum(p for _, p in law)
    assert probability == pytest.approx(1, abs=1e-8)
    assert sum(x * p for x, p in law) == pytest.approx(EXPECTATION, rel=1e-8)


@pytest.fixture(scope="module")
def accumulated():
    return stochastic_accumulation.run(quick=True, seed=1)


def test_caption_of_the_accumulation_is_its_data(accumulated):
    mean, sd = law_moments(accumulated)
    (measured,) = accumulated.select(part="summary")
    for number in (f"{mean:.7f}", f"{sd:.4f}", f"{measured['mean']:.5f}", f"{measured['sd']:.4f}"):
        assert number in accumulated.answer


def test_a_mean_that_is_off_is_not_called_unbiased(accumulated):
    assert accumulated.answer.startswith("Yes.")
    off = [{**row, "mean": 1.1} if row["part"] == "summary" else row for row in accumulated.rows]
    answer = stochastic_accumulation._answer(off, 200)
    assert answer.startswith("No.")
    assert ": biased" in answer


def test_a_gain_within_the_uncertainty_decides_nothing(accumulated):
    """One lane: four standard deviations of the law are more than the gain over to nearest."""
    rows = [{**row, "mean": 0.27} if row["part"] == "summary" else row for row in accumulated.rows]
    near = [{**row, "final": 0.27 + 3 * (row["final"] - 1)} if row["part"] == "law" else row
            for row in rows]
    assert stochastic_accumulation._answer(near, 1).startswith("Undecided by this run; more lanes")


def test_the_verdict_is_computed_a_second_time(accumulated):
    ends = accumulated.column("final", part="final", rounding="SR")
    law = [(row["final"], row["probability"]) for row in accumulated.select(part="law")]
    mean = math.fsum(x * p for x, p in law)
    sd = math.sqrt(math.fsum((x - mean) ** 2 * p for x, p in law))
    is_unbiased = abs(statistics.mean(ends) - mean) < 4 * sd / math.sqrt(len(ends))
    assert accumulated.answer.startswith("Yes." if is_unbiased else "No.")
    assert f"ends at {statistics.mean(ends):.5f} on average over {len(ends)} lanes" in (
        accumulated.answer
    )


def test_every_panel_shows_data(accumulated):
    assert_panels(stochastic_accumulation.plot(accumulated), 2)
