"""Trials: verdicts, order and costs of ways whose losses are known (golden, law)."""

from __future__ import annotations

import math

import pytest

from ipu.run.trials import Outcome, combinations, final_loss, try_ways
from ipu.run.ways import Way
from tests.ipu.run.runs import trained_report

HALF = Way.parse("fp16+halves")
#: Final loss of each way above binary32's, which is 1 + 0.1 seed.
ABOVE = {"fp32": 0.0, "fp16": 0.5, "fp16+sr": 0.001, "mixed": 0.0, "fp16+eps=0.0001": math.nan}


def run(way, seed):
    report = trained_report()
    report["units"] = [{"cycles": 20 if way.policy.default.compute.precision == 24 else 10}]
    return Outcome([9.0] + [1 + 0.1 * seed + ABOVE[str(way)]] * 5, report)


def test_the_cheapest_way_that_restores_the_curve_is_first():
    ways = [Way.parse(text).with_policies for text in ("mixed", "fp16+sr", "fp16+eps=1e-4")]
    trials = try_ways(run, ways, HALF, range(3))
    assert [(str(t.way), t.restores) for t in trials] == [
        ("fp16+sr", "yes"), ("mixed", "yes"), ("fp16", "no"), ("fp16+eps=0.0001", "no"),
        ("fp32", "reference"),
    ]
    assert (trials[0].cycles, trials[0].bits) == (1.0, 1.0)
    assert trials[1].bits == 2.0
    assert trials[-1].cycles == 2.0
    assert trials[0].difference.value == pytest.approx(0.001)
    assert trials[3].error == "losses are not finite"


def test_a_difference_within_its_uncertainty_is_undecided():
    noise = iter([0.0, 0.3, -0.2])

    def noisy(way, seed):
        outcome = run(way, seed)
        above = next(noise) if str(way) == "fp16+sr" else 0.0
        return Outcome([loss + above for loss in outcome.losses], outcome.report)

    trials = try_ways(noisy, [Way.parse("fp16+sr").with_policies], HALF, range(3))
    assert next(t for t in trials if t.way.sr).restores == "undecided"


def test_a_way_that_stops_restores_nothing_and_the_base_must_run():
    def stops(at):
        def stopping(way, seed):
            return Outcome([], trained_report(), "no bf16") if str(way) == at else run(way, seed)

        return stopping

    trials = try_ways(stops("fp16+sr"), [Way.parse("fp16+sr").with_policies], HALF, range(2))
    assert next(t for t in trials if t.way.sr).error == "no bf16"
    with pytest.raises(RuntimeError, match="does not run in the way fp16: no bf16"):
        try_ways(stops("fp16"), [], HALF, range(2))


@pytest.mark.parametrize(
    ("losses", "final"), [([], math.nan), ([5.0], 5.0), ([9.0] * 46 + [1.0] * 4, 2.6)]
)
def test_the_final_loss_is_a_mean_of_the_last(losses, final):
    assert final_loss(losses) == pytest.approx(final, nan_ok=True)


def test_combinations_put_free_changes_together():
    ways = [Way.parse(text) for text in ("fp16+eps=1e-4", "fp16+scale=64", "mixed")]
    assert [str(way) for way in combinations(ways, Way.parse("fp16"))] == [
        "fp16+scale=64+eps=0.0001", "fp16+sr+scale=64+eps=0.0001",
        "fp16+scale=64+eps=0.0001+states=f32", "mixed+scale=64+eps=0.0001",
    ]


@pytest.mark.parametrize(
    ("text", "bits"),
    [("fp16", 1.0), ("mixed", 2.0), ("fp16+*=f32", 2.0), ("fp16+head=f32", 1.25),
     ("fp16+body.*=mixed", 1.75), ("fp16+none=f32", 1.0), ("fp16+states=f32", 5 / 3),
     ("fp16+head=f32+states=f32", (16 * 0.75 + 32 * 0.25 + 64) / 48), ("p=e5m6,c=e5m6", 12 / 16)],
)
def test_bits_are_the_mean_over_the_parameters_of_all_layers(text, bits):
    def counted(way, seed):
        report = trained_report() | {"parameters": {"body.0": 100, "body.1": 200, "head": 100}}
        return Outcome([1.0] * 5, report)

    way = Way.parse(text).with_policies
    trials = try_ways(counted, [way], HALF, range(2))
    assert next(t for t in trials if t.way == way).bits == pytest.approx(bits)
