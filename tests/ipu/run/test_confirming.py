"""Remedies that cure the first steps, over more of them (golden, corners)."""

from __future__ import annotations

import math

import pytest

from ipu.run.budget import Budget
from ipu.run.diagnosing import diagnose
from tests.ipu.run.test_lessening import STEPS, WAY, advised, losses, program, told

MANY = 4 * STEPS


def alternating(harm, steps):
    """A training whose losses lie above and below binary32's in turn, by a harm."""
    return [x + (harm if i % 2 else -harm) for i, x in enumerate(losses(0.0, steps))]


def followed(monkeypatch, first, later, base=0.34, budget=None, ends=MANY):
    """The remedies eps=1e-4 and eps=1e-3 with these harms in 10 steps, and in 40."""
    advised(monkeypatch, "fp16+eps=1e-4", "fp16+eps=1e-3")
    asked = []

    def harms(of_remedies):
        return lambda way: of_remedies.get(way.changes.eps, base)

    def longer(steps, budget):
        asked.append(steps)
        return program(harms(later), steps=min(steps, ends))

    result = diagnose(program(harms(first)), WAY, STEPS, budget, longer=longer)
    return result, asked


def test_what_cures_is_told_with_the_steps_over_which_it_does(monkeypatch):
    result, asked = followed(monkeypatch, {1e-4: 0.01, 1e-3: 0.02}, {1e-4: 0.02, 1e-3: 0.03})
    assert asked == [MANY]  # one binary32, and one run as it is, for both
    assert str(result.cure).startswith("fp16+eps=0.0001: cures over 40 steps, harm 34.0% → 2.0%. ")
    assert "cures over 40 steps, harm 34.0% → 3.0%" in str(told(result, "fp16+eps=0.001"))
    assert len(result.cure.losses) == len(result.cure.reference) == MANY


def test_what_does_not_last_gives_way_to_what_does(monkeypatch):
    """A harm that comes after the first steps; the patch is of the other remedy."""
    result, _ = followed(monkeypatch, {1e-4: 0.01, 1e-3: 0.02}, {1e-4: 0.2, 1e-3: 0.03})
    assert str(result.cure.way) == "fp16+eps=0.001"
    assert not told(result, "fp16+eps=0.0001").helps
    assert "tried, does not help: fp16+eps=0.0001 (harm 20.0% over 40 steps)" in str(result)


@pytest.mark.parametrize("later", [0.2, math.inf])
def test_where_nothing_lasts_nothing_cures(monkeypatch, later):
    result, _ = followed(
        monkeypatch, {1e-4: 0.01, 1e-3: 0.02}, dict.fromkeys((1e-4, 1e-3), later))
    assert not any(str(remedy.way) in ("fp16+eps=0.0001", "fp16+eps=0.001")
                   for remedy in result.mending)


@pytest.mark.parametrize("about", [
    {"ends": STEPS}, {"budget": Budget(0.0)}, {"later": {1e-4: 0.02, None: 0.01}},
], ids=["the program ends", "no time", "no harm later"])
def test_what_was_followed_no_further_is_told_so(monkeypatch, about):
    later = about.pop("later", {1e-4: 0.02})
    result, _ = followed(monkeypatch, {1e-4: 0.01}, later, **about)
    assert ": cures, harm 1.0%" in str(result.cure)
    assert "a remedy cures these 10 steps; it was followed no further" in str(result)


def test_a_remedy_whose_few_steps_may_part_by_chance_is_followed_too(monkeypatch):
    """Its losses lie above and below binary32's in turn: of more steps that is less."""
    from ipu.run.endpoints import Outcome

    advised(monkeypatch, "fp16+eps=1e-4")

    def made(steps, left):
        whole = program(lambda way: 0.34, steps=steps)

        def replay(way, restoring, has_shadow):
            outcome = whole(way, restoring, has_shadow)
            if not way.changes.eps or restoring.sites:
                return outcome
            row = alternating(left, steps)
            return Outcome(row, {**outcome.report, "losses": row})

        return replay

    result = diagnose(made(STEPS, 0.07), WAY, STEPS, longer=lambda steps, budget: made(steps, 0.03))
    assert str(told(result, "fp16+eps=0.0001")).startswith(
        "fp16+eps=0.0001: cures over 40 steps, harm 34.0% → 3.0%")
