"""Ways side by side, pair by pair: what is run, told and answered (golden, law)."""

from __future__ import annotations

import math

import numpy as np
import pytest

from ipu.run.endpoints import Endpoint, Outcome
from ipu.run.judging import DEFAULT, Declaration
from ipu.run.paired import compare_pairs

WAYS = ("fp32", "fp16")


def curve(final, start=3.0):
    return Outcome([start, 2.0, *[final] * 4])


class Program:
    """A program whose final loss is 1 + 0.01 pair, and above that of each way; it keeps its jobs.

    luck     added to a run by its number.
    nudge    added to a nudged run, with the sign of its pair.
    """

    def __init__(self, *above, luck=lambda number: 0.0, nudge=0.0):
        self.above, self.luck, self.nudge, self.jobs = above, luck, nudge, []

    def run(self, jobs):
        outcomes = []
        for job in jobs:
            self.jobs.append(job)
            outcomes.append(self.once(job.way, job.pair, job.nudged))
        return outcomes

    def once(self, way, pair, nudged=False):
        above = self.above[way] + (self.nudge * (-1) ** pair if nudged else 0.0)
        return curve(1 + 0.01 * pair + above + self.luck(len(self.jobs)))

    def compare(self, declared=DEFAULT, ways=WAYS):
        told = []
        first = [self.once(way, 0) for way in range(len(ways))]
        comparison = compare_pairs(
            declared, ways, 0, first, self.run, tell=told.append)
        return comparison, told


def test_an_answer_ends_the_runs_of_its_way():
    program = Program(0.0, 0.5, 0.0)
    comparison, told = program.compare(ways=("fp32", "fp16", "fp16+sr"))
    assert [comparison.judged[way].answer for way in (1, 2)] == ["worse", "as good"]
    assert max(job.pair for job in program.jobs) == 4
    assert told[-2].startswith("fp16  worse (at least 25 %), worse by +25 % ± ")
    assert comparison.floor.value == 0


def test_what_is_open_at_one_look_runs_to_the_next():
    program = Program(0.0, 0.0, 0.5)
    program.luck = lambda number: 0.05 * math.sin(7 * number) if number > 9 else 0.0
    comparison, _ = program.compare(ways=("fp32", "fp16", "bf16"))
    assert comparison.judged[1].answer == "cannot tell"
    assert comparison.judged[1].pairs == 12
    assert len(comparison.outcomes[0]) == 12


def test_a_program_that_takes_its_seed_from_the_clock_is_told():
    _, told = Program(0.0, 0.0, luck=lambda number: 1e-9 * number).compare()
    assert any("two runs of pair 0 in fp32 differ: the program takes a seed" in t for t in told)


def test_pairs_that_are_one_run_give_no_verdict():
    program = Program(0.0, 0.0)
    program.once = lambda way, pair, nudged=False: curve(1.0)
    comparison, told = program.compare()
    assert not comparison.judged
    assert told[-1].startswith("no verdict: the pairs are one run again and again")


def test_a_floor_out_of_reach_ends_the_comparison_before_the_runs():
    """By 20 % of the progress a run differs from itself; no pair of fp16 is run."""
    program = Program(0.0, 0.0, nudge=0.4)
    comparison, told = program.compare()
    assert comparison.judged[1].answer == "cannot tell"
    assert comparison.judged[1].needs == pytest.approx(9380, rel=0.1)
    assert "no verdict: cannot tell" in told[-1]
    assert {job.way for job in program.jobs} == {0}


def test_step_0_is_compared_first():
    program = Program(0.0, 0.0)
    first = [curve(1.0), curve(1.0, start=4.0)]
    told = []
    compare_pairs(Declaration(), WAYS, 0, first, program.run, tell=told.append)
    assert told[0].startswith("step 0: fp16 begins at a loss of 4, fp32 at 3: its first pass")


@pytest.mark.parametrize(("first", "declared", "words"), [
    ([curve(1.0)] * 2, Declaration(pairs=1), "pairs=1 is fewer than 5"),
    ([Outcome(error="exit status 1")] * 2, Declaration(), "does not run in fp32: exit status 1"),
    ([Outcome(printed="")] * 2, Declaration(), "--endpoint highest:accuracy --margin 0.01"),
    ([Outcome(printed="")] * 2, Declaration(Endpoint("highest:score", 1.0)), "no number behind"),
])
def test_why_nothing_can_be_judged(first, declared, words):
    told = []
    comparison = compare_pairs(
        declared, WAYS, 0, first, lambda jobs: pytest.fail("ran"), tell=told.append)
    assert not comparison.judged
    assert words in told[0]


def test_rows_are_every_run_with_its_pair():
    comparison, _ = Program(0.0, 0.5).compare()
    rows = list(comparison.rows)
    assert [row[:2] for row in rows] == [(way, pair) for way in WAYS for pair in range(5)]
    assert np.allclose([row[4] for row in rows[5:]], [0.5 / (2 - 0.01 * k) for k in range(5)])
