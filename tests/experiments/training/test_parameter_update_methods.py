"""Updates to nearest are lost, others are not (golden)."""

from __future__ import annotations

import pytest

from ipu.experiments.training import parameter_update_methods
from tests.experiments.figures import assert_panels


@pytest.mark.source("S4-12")
@pytest.mark.tier("full")
def test_updates_to_nearest_are_lost_and_others_are_not():
    result = parameter_update_methods.run(quick=True, seed=0)
    _, plain, stochastic, mixed = (v.name for v in parameter_update_methods.VARIANTS)

    def share(name):
        return parameter_update_methods.gained(result, name, 1e-4).mean()

    assert share(plain) < 0.25
    assert abs(share(stochastic) - 1) < 0.1
    assert abs(share(mixed) - 1) < 0.01


def test_a_small_run_has_its_shares_panels_and_sentence(few_digits):
    result = parameter_update_methods.run(quick=True, seed=0)
    variants = [v.name for v in parameter_update_methods.VARIANTS]
    assert [r["method"] for r in result.rows] == variants * 2
    for name in variants[1:]:
        assert f"{name}: cannot tell (1 of 5 pairs)" in result.answer
    (lost,) = (r["lost"] for r in result.select(rate=1e-4, method=variants[1]))
    assert f"ignore {lost:.0%}" in result.answer
    assert_panels(parameter_update_methods.plot(result), 2)


def rows_at(rate, gains):
    """Losses that fall from 2.3 by so much, by method, one for each seed."""
    return [
        {"method": name, "rate": rate, "seed": seed, "before": 2.3, "after": 2.3 - gain,
         "gain": gain, "lost": 0.5}
        for name, of_seeds in gains.items() for seed, gain in enumerate(of_seeds)
    ]


def test_ways_are_judged_by_the_progress_that_is_lost():
    names = [v.name for v in parameter_update_methods.VARIANTS]
    good, half = [1.0, 1.1, 0.9, 1.0, 1.0], [0.5, 0.6, 0.4, 0.5, 0.5]
    wild = [1.0, 1.1, 0.2, 1.0, 1.0]
    rows = rows_at(1e-4, dict(zip(names, (good, half, good, wild), strict=True)))
    answer = parameter_update_methods._answer(rows)
    assert f"{names[1]}: worse (at least 39 %), 50 % ± " in answer
    assert f"{names[2]}: as good" in answer
    assert f"{names[3]}: cannot tell" in answer
