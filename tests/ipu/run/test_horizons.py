"""How many steps a diagnosis follows (golden, corners)."""

from __future__ import annotations

import pytest

from ipu.run.budget import Budget
from ipu.run.diagnosis import Diagnosis, TriedRemedy
from ipu.run.horizons import FIRST_STEPS, FURTHER, followed_further
from ipu.run.ways import Way
from tests.ipu.run.runs import born

WAY = Way.parse("fp16")
MANY = FURTHER * FIRST_STEPS
CURE = TriedRemedy("Multiply the loss by 4", Way.parse("fp16+scale=4"), 0.0, True)


def healthy(steps, harmless=("gradients lose 9% of their digits",)):
    return Diagnosis(WAY, steps, harmless=list(harmless), runs=2)


def ill(steps, births, remedies=(CURE,), harm=0.3):
    report = {"losses": [4.0] * steps, "births": births, "harm": harm}
    return Diagnosis(WAY, steps, "ill", harm=harm, report=report, remedies=list(remedies), runs=9)


def run(later, first=None):
    followed, told = [], []

    def diagnosed(steps, budget):
        followed.append(steps)
        return (first or healthy(steps)) if steps == FIRST_STEPS else later

    return followed_further(diagnosed, Budget(), told.append), followed, told


def test_a_run_that_loses_nothing_is_not_followed_further():
    first = healthy(FIRST_STEPS, harmless=())
    assert run(None, first) == (first, [FIRST_STEPS], [])


@pytest.mark.parametrize("first", [
    ill(FIRST_STEPS, []), Diagnosis(WAY, FIRST_STEPS, "cannot tell", harmless=["digits"]),
    Diagnosis(WAY, FIRST_STEPS, harmless=["digits"], followed={"why": "3 steps took 15 s"}),
])
def test_only_healthy_runs_of_all_their_steps_are_followed_further(first):
    assert run(None, first) == (first, [FIRST_STEPS], [])


def test_digits_that_do_no_harm_later_either():
    later = healthy(MANY)
    result, followed, told = run(later)
    assert result is later
    assert (result.runs, followed) == (4, [FIRST_STEPS, MANY])
    assert [so_far.steps for so_far in told] == [FIRST_STEPS]
    assert told[0].so_far.endswith("more steps are followed")


def test_harm_that_comes_later_has_a_cause_and_a_cure():
    later = ill(MANY, [born("infinity", step=4, operation="aten.exp")])
    result, _, _ = run(later)
    assert (result is later, result.runs) == (True, 11)


@pytest.mark.parametrize("later", [
    ill(MANY, []), ill(MANY, [born("infinity", step=4, operation="aten.exp")], remedies=()),
    ill(MANY, [born("absorption", operation="aten.add", count=49, results=50)]),
])
def test_losses_that_part_without_a_cause_or_cure_are_told_and_no_illness(later):
    result, _, _ = run(later)
    assert (result.answer, result.steps) == ("healthy", FIRST_STEPS)
    assert result.harmless[-1].startswith("the losses of 40 steps part from binary32's by 30.0%")


def test_a_symptom_without_harm_is_no_illness_of_later_steps():
    later = ill(MANY, [born("infinity", step=4, operation="aten.exp")], harm=0.03)
    result, _, _ = run(later)
    assert (result.answer, result.steps, len(result.harmless)) == ("healthy", FIRST_STEPS, 1)


def undecided(steps):
    return Diagnosis(WAY, steps, "cannot tell", harm=0.09, noise=0.06, runs=2)


@pytest.mark.parametrize("later", [
    healthy(MANY), ill(MANY, [], remedies=()), undecided(MANY),
])
def test_a_harm_that_may_be_chance_is_decided_by_more_steps(later):
    """Whatever they tell, also that these are too few."""
    result, followed, told = run(later, undecided(FIRST_STEPS))
    assert (result is later, followed) == (True, [FIRST_STEPS, MANY])
    assert told[0].so_far.endswith("more steps are followed")


def test_there_must_be_time():
    budget = Budget(60.0)
    budget.note(200.0)
    first = healthy(FIRST_STEPS)
    assert followed_further(lambda steps, budget: first, budget) is first
