"""Remedies that take away a part of a harm, over few steps and more (golden, corners)."""

from __future__ import annotations

import math

import pytest

from ipu.learn.policy import FP32
from ipu.run.advice import Advice
from ipu.run.budget import Budget, TimeOverError
from ipu.run.diagnosing import diagnose
from ipu.run.endpoints import Outcome
from ipu.run.ways import Way
from tests.ipu.run.test_diagnosis import report_of

WAY = Way.parse("fp16")
SR = Way.parse("fp16+sr")
STEPS = 10
SWALLOWED = {"layer1": {"nonzero": 100, "swallowed": 99, "share": 0.99, "in_ulps": {}}}


def losses(harm, steps=STEPS):
    """Those of a training that falls from 2 to 1 in the first half, and stays; or with a harm."""
    fall = [2.0 - min(i / (STEPS - 1), 1.0) for i in range(steps)]
    return [loss + harm for loss in fall]


def advised(monkeypatch, *ways):
    monkeypatch.setattr("ipu.run.remedies.find_advice", lambda report, base: [
        Advice("Try", "", "", tuple(Way.parse(way) for way in ways))])


def program(harm_of_way, *, steps=STEPS, moved=None, is_standing=False):
    """A replay: the harm of each way, and of a run whose results are moved."""

    def replay(way, restoring, has_shadow):
        is_low = way.policy != FP32 and not restoring.sites
        harm = 0.0 if not is_low else harm_of_way(way)
        if is_low and restoring.moved and moved is not None:
            harm = moved
        report = report_of(losses(harm, steps)) | {"steps": steps}
        if is_low and is_standing and not way.sr:
            report["swallowed"] = SWALLOWED
        report["stochastic_rounding"] = way.sr
        return Outcome(report["losses"], report)

    return replay


def told(result, way):
    (remedy,) = [remedy for remedy in result.remedies if str(remedy.way) == way]
    return remedy


@pytest.mark.parametrize(("left", "lessens"), [(0.093, True), (0.17, True), (0.171, False),
                                               (0.341, False), (0.5, False), (math.inf, False)])
def test_most_of_a_harm_that_goes_is_told_with_both_harms(monkeypatch, left, lessens):
    advised(monkeypatch, "fp16+eps=1e-4")
    replay = program(lambda way: left if way.changes.eps else 0.341, moved=0.36)
    result = diagnose(replay, WAY, STEPS)
    text = str(result)
    assert told(result, "fp16+eps=0.0001").lessens == lessens
    assert ("remedy fp16+eps=0.0001: lessens, harm 34.1% → " in text) == lessens
    assert ("tried, does not help: " in text and "fp16+eps" in text.partition("help: ")[2]) != (
        lessens)
    assert result.cure is None or str(result.cure.way) != "fp16+eps=0.0001"


@pytest.mark.parametrize(("moved", "lessens"), [(0.3, True), (0.15, False)])
def test_what_wanders_by_chance_is_not_lessened(monkeypatch, moved, lessens):
    """A unit in the last place of each result leaves 15% of 34%: so does any other change."""
    advised(monkeypatch, "fp16+eps=1e-4")
    replay = program(lambda way: 0.1 if way.changes.eps else 0.34, moved=moved)
    result = diagnose(replay, WAY, STEPS)
    assert told(result, "fp16+eps=0.0001").lessens == lessens


def test_without_time_for_the_control_nothing_lessens(monkeypatch):
    advised(monkeypatch, "fp16+eps=1e-4")
    whole = program(lambda way: 0.1 if way.changes.eps else 0.34)

    def replay(way, restoring, has_shadow):
        if restoring.moved:
            raise TimeOverError
        return whole(way, restoring, has_shadow)

    assert not told(diagnose(replay, WAY, STEPS), "fp16+eps=0.0001").lessens


def test_a_harm_that_is_no_number_is_lessened_by_one_of_half_of_the_progress(monkeypatch):
    advised(monkeypatch, "fp16+eps=1e-4", "fp16+eps=1e-3")
    harms = {1e-4: 0.4, 1e-3: 3.0}
    result = diagnose(program(lambda way: harms.get(way.changes.eps, math.inf)), WAY, STEPS)
    assert [told(result, f"fp16+eps={eps}").lessens for eps in ("0.0001", "0.001")] == [True, False]


def followed(monkeypatch, harms, base=0.34, budget=None):
    """SR over 10, 40 and 160 steps."""
    advised(monkeypatch, "fp16+sr", "fp16+scale=16")
    asked = []

    def longer(steps, budget):
        asked.append(steps)
        return program(lambda way: harms[steps] if way.sr else base, steps=steps, is_standing=True)

    first = program(lambda way: harms[STEPS] if way.sr else 0.34, is_standing=True)
    return diagnose(first, WAY, STEPS, budget, longer=longer), asked


@pytest.mark.parametrize(("harms", "steps"), [
    ({10: 0.1, 40: 0.03}, [40]), ({10: 0.3, 40: 0.2, 160: 0.04}, [40, 160]),
])
def test_stochastic_rounding_may_cure_over_more_steps(monkeypatch, harms, steps):
    result, asked = followed(monkeypatch, harms)
    assert asked == steps
    remedy = result.cure
    assert str(remedy.way) == "fp16+sr"
    assert str(remedy).startswith(
        f"fp16+sr: cures over {steps[-1]} steps, harm 34.0% → {harms[steps[-1]]:.1%}. ")
    assert str(remedy).endswith(f"the first 10 leave {harms[10]:.1%}")
    assert len(remedy.losses) == len(remedy.reference) == steps[-1]
    assert not told(result, "fp16+scale=16").helps


def test_what_does_nothing_cures_no_longer_run_either(monkeypatch):
    """Neither where stochastic rounding leaves the harm, nor where there is none in more steps."""
    result, asked = followed(monkeypatch, {10: 0.34})
    assert (asked, told(result, "fp16+sr").helps) == ([], False)
    result, asked = followed(monkeypatch, {10: 0.3, 40: 0.03, 160: 0.03}, base=0.03)
    assert (asked, told(result, "fp16+sr").helps) == ([40, 160], False)
    result, _ = followed(monkeypatch, {10: 0.1, 40: 0.1, 160: 0.1})
    assert (told(result, "fp16+sr").lessens, result.cure) == (True, None)


def test_there_must_be_time_for_more_steps(monkeypatch):
    budget = Budget(60.0)
    monkeypatch.setattr(budget, "note", lambda trial: None)
    budget._trial = 5.0
    result, asked = followed(monkeypatch, {10: 0.1, 40: 0.03}, budget=budget)
    assert (asked, told(result, "fp16+sr").lessens) == ([], True)


def test_only_what_stands_still_is_followed_further(monkeypatch):
    advised(monkeypatch, "fp16+sr")
    replay = program(lambda way: 0.1 if way.sr else 0.34)
    result = diagnose(replay, WAY, STEPS, longer=lambda steps, budget: pytest.fail("followed"))
    assert not told(result, "fp16+sr").cures
