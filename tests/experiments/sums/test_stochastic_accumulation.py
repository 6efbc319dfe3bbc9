"""The stochastic accumulation and its exact law (golden, law)."""

from __future__ import annotations

import pytest

from ipu.experiments.sums import stochastic_accumulation
from ipu.experiments.sums.stochastic_accumulation import ADDITIONS, exact_law, law_moments

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
    said = stochastic_accumulation._answer(off, 200)
    assert said.startswith("No.")
    assert ": biased" in said
