"""Trials: answers, order and costs of ways whose losses are known (golden, law)."""

from __future__ import annotations

import math

import pytest

from ipu.run.endpoints import Outcome
from ipu.run.judging import Declaration
from ipu.run.trials import PICKING, Trials, combinations
from ipu.run.ways import Way
from tests.ipu.run.runs import trained_report

HALF = Way.parse("fp16+halves")
DECLARED = Declaration(pairs=8)
#: Final loss of each way above binary32's, which is 1 + 0.1 seed.
ABOVE = {"fp32": 0.0, "fp16": 0.5, "fp16+sr": 0.001, "mixed": 0.0, "fp16+eps=0.0001": math.nan}


def run(way, seed):
    report = trained_report()
    report["units"] = [{"cycles": 20 if way.policy.default.compute.precision == 24 else 10}]
    return Outcome([9.0] + [1 + 0.1 * seed + ABOVE[str(way)]] * 5, report)


def tried(run, *texts):
    """The table of these ways, picked and confirmed, and the object that ran them."""
    trials = Trials(run, HALF, DECLARED)
    ways = [Way.parse(text).with_policies for text in texts]
    return trials.table(trials.confirm(trials.pick(ways)))


def test_the_cheapest_way_that_is_as_good_is_first():
    trials = tried(run, "mixed", "fp16+sr", "fp16+eps=1e-4")
    assert [(str(t.way), t.judged.answer) for t in trials] == [
        ("fp16+sr", "as good"), ("mixed", "as good"), ("fp16+eps=0.0001", "cannot tell"),
        ("fp16", "worse"), ("fp32", "reference"),
    ]
    assert (trials[0].cycles, trials[0].bits) == (1.0, 1.0)
    assert trials[1].bits == 2.0
    assert trials[-1].cycles == 2.0
    assert trials[0].judged.effect.value == pytest.approx(0.001 / (8 - 0.1 * 4), rel=0.02)
    assert "it diverged on 2 pairs" in str(trials[2].judged)


def test_a_way_is_confirmed_on_pairs_that_did_not_pick_it():
    """The luck of the first seeds is no evidence."""
    def lucky(way, seed):
        outcome = run(way, seed)
        is_sr, above = str(way) == "fp16+sr", 0.0 if seed < PICKING else 0.5
        losses = [9.0] + [1 + 0.1 * seed + above] * 5
        return Outcome(losses, outcome.report) if is_sr else outcome

    (trial,) = [t for t in tried(lucky, "fp16+sr") if t.way.sr]
    assert (trial.judged.answer, trial.judged.pairs) == ("worse", 5)


def test_a_difference_within_its_uncertainty_cannot_be_told():
    noise = iter([0.0, 0.0, 0.1, -0.1, 0.2, -0.2, 0.1, -0.1, 0.1, -0.1])

    def noisy(way, seed):
        outcome = run(way, seed)
        above = next(noise) if str(way) == "fp16+sr" else 0.0
        return Outcome([outcome.losses[0], *(x + above for x in outcome.losses[1:])],
                       outcome.report)

    (trial,) = [t for t in tried(noisy, "fp16+sr") if t.way.sr]
    assert (trial.judged.answer, trial.judged.pairs) == ("cannot tell", 8)
    assert trial.judged.needs > 8
    assert f"{trial.judged.needs} pairs would" in str(trial.judged)


def test_a_way_that_stops_is_not_good_and_the_base_must_run():
    def stops(at):
        def stopping(way, seed):
            return Outcome([], trained_report(), "no bf16") if str(way) == at else run(way, seed)

        return stopping

    (trial,) = [t for t in tried(stops("fp16+sr"), "fp16+sr") if t.way.sr]
    assert trial.error == "no bf16"
    assert not trial.judged.is_good
    with pytest.raises(RuntimeError, match="does not run in the way fp16: no bf16"):
        tried(stops("fp16"))


def test_a_program_that_binary32_does_not_train_has_no_good_way():
    trials = tried(lambda way, seed: Outcome([2.0, 2.1, 1.9, 2.0, 2.0 + seed], trained_report()),
                   "mixed")
    assert {t.judged.answer for t in trials} >= {"binary32 itself does not train here"}
    assert not any(t.judged.is_good for t in trials)


def test_holm_gives_the_others_more_when_one_is_confirmed():
    """At a third of the level mixed is too noisy; once sr is confirmed it has more of it."""
    noise = [0.0, 0.0, 0.012, -0.012, 0.012, -0.012, 0.0]

    def noisy(way, seed):
        outcome = run(way, seed)
        above = 1.7 * noise[seed] if str(way) == "mixed" else 0.0
        return Outcome([9.0] + [1 + above] * 5, outcome.report)

    ways = [Way.parse(text).with_policies for text in ("mixed", "fp16+sr")]
    five = range(PICKING, PICKING + 5)
    alone = Trials(noisy, HALF, DECLARED)
    assert alone._judge(ways[0], five, 2).answer == "cannot tell"
    assert alone._holm(ways, five)[ways[0]].answer == "as good"


def test_combinations_put_free_changes_together():
    ways = [Way.parse(text) for text in ("fp16+eps=1e-4", "fp16+scale=64", "mixed")]
    assert [str(way) for way in combinations(ways, Way.parse("fp16"))] == [
        "fp16+scale=64+eps=0.0001", "fp16+sr+scale=64+eps=0.0001",
        "fp16+scale=64+eps=0.0001+states=f32", "mixed+scale=64+eps=0.0001",
    ]
    constant = [Way.parse("fp16+1e-12=1e-4")]
    assert str(next(combinations(constant, Way.parse("fp16")))) == "fp16+1e-12=0.0001"


@pytest.mark.parametrize(
    ("text", "bits"),
    [("fp16", 1.0), ("mixed", 2.0), ("fp16+*=f32", 2.0), ("fp16+head=f32", 1.25),
     ("fp16+body.*=mixed", 1.75), ("fp16+none=f32", 1.0), ("fp16+states=f32", 5 / 3),
     ("fp16+head=f32+states=f32", (16 * 0.75 + 32 * 0.25 + 64) / 48), ("p=e5m6,c=e5m6", 12 / 16)],
)
def test_bits_are_the_mean_over_the_parameters_of_all_layers(text, bits):
    def counted(way, seed):
        report = trained_report() | {"parameters": {"body.0": 100, "body.1": 200, "head": 100}}
        return Outcome([2.0] + [1.0] * 4, report)

    way = Way.parse(text).with_policies
    trials = tried(counted, text)
    assert next(t for t in trials if t.way == way).bits == pytest.approx(bits)
