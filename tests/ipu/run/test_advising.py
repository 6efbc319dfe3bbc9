"""Advice and its trials together (golden)."""

from __future__ import annotations

import pytest

from ipu.run.advising import advise
from ipu.run.endpoints import Outcome
from ipu.run.judging import Declaration
from ipu.run.ways import Way
from tests.ipu.run.runs import make_report, quiet_report, trained_report

HALF = Way.parse("fp16")
FIVE = Declaration(pairs=5)


def run_in(good):
    """A program that trains in the ways whose text has one of these words."""
    runs = []

    def run(way, seed):
        runs.append((str(way), seed))
        above = 0.0 if str(way) == "fp32" or any(word in str(way) for word in good) else 1.0
        return Outcome([9.0] + [1 + 0.01 * seed + above] * 5, trained_report())

    return run, runs


def test_without_a_program_nothing_is_tried():
    advised = advise(make_report(), HALF)
    assert advised.items
    assert advised.trials == ()
    assert advised.best is None
    assert "1. Set eps=0.0001" in str(advised)


def test_the_ways_of_the_advice_are_tried_once():
    run, runs = run_in(["states=f32"])
    advised = advise(make_report(), HALF, run, declared=FIVE)
    assert str(advised.best) == "fp16+states=f32"
    assert len(runs) == len(set(runs))
    assert "fp16+states=f32  " in str(advised)


def test_combinations_are_tried_where_no_way_is_enough():
    run, _ = run_in(["sr+scale"])
    advised = advise(make_report(), HALF, run, declared=FIVE)
    assert "sr+scale" in str(advised.best)
    assert "eps=0.0001" in str(advised.best)


def test_named_ways_are_the_only_ones():
    run, runs = run_in([])
    advised = advise(make_report(), HALF, run, ["mixed", "bf16"], declared=FIVE)
    assert {way for way, _ in runs} == {"fp32", "fp16", "mixed", "p=bf16,c=bf16,part=f32"}
    assert advised.best is None


def test_too_few_pairs_are_refused():
    with pytest.raises(ValueError, match="pairs=4 is too few for an answer; use 5 or more"):
        advise(make_report(), HALF, run_in([])[0], declared=Declaration(pairs=4))


def test_what_was_declared_is_told_before_the_table():
    advised = advise(make_report(), HALF, run_in(["mixed"])[0], ["mixed"], FIVE)
    lines = str(advised).splitlines()
    (place,) = [i for i, line in enumerate(lines) if line.startswith("declared before the trials")]
    assert FIVE.digest in lines[place]
    assert lines[place + 1].startswith("way ")


@pytest.mark.parametrize(
    ("outcome", "words"),
    [(Outcome([], trained_report()), "there are no losses: return them from step"),
     (Outcome([2.0, 1.0], quiet_report()), "nothing was computed on the machine: step")],
)
def test_a_step_that_trains_nothing_is_no_measure(outcome, words):
    with pytest.raises(RuntimeError, match=words):
        advise(make_report(), HALF, lambda way, seed: outcome, ["mixed"])


@pytest.mark.parametrize("trials", ["fp16", [3], [None]])
def test_trials_are_a_list_of_ways(trials):
    with pytest.raises(TypeError, match="is no list of ways; use one, as"):
        advise(make_report(), HALF, run_in([])[0], trials)
    with pytest.raises(TypeError, match=r"pairs=\[0\] is no number of runs"):
        advise(make_report(), HALF, run_in([])[0], ["mixed"], Declaration(pairs=[0]))


def test_a_run_without_evidence():
    assert str(advise(quiet_report(), HALF)) == "nothing in this run speaks for a change"
