"""No plan reaches the bits; what accumulators lose; the sentence by the rows (law, golden)."""

from __future__ import annotations

import numpy as np
import pytest

from ipu.experiments.execution import pipeline_numerics
from ipu.experiments.execution.digit_gradients import MicroBatches
from ipu.learn.policy import FP16
from tests.experiments.figures import assert_panels

CUTS = {
    name: pipeline_numerics.CUTS[name] for name in ("1 stage", "4 stages", "4 stages on 2 IPUs")
}


@pytest.fixture(scope="module")
def quick(few):
    few.setattr(pipeline_numerics, "CUTS", CUTS)
    few.setattr(pipeline_numerics, "SCHEDULES", ("grouped", "interleaved"))
    few.setattr(pipeline_numerics, "COUNTS", (1, 2, 8))
    return pipeline_numerics.run(quick=True, seed=1)


def test_every_plan_has_the_bits_of_its_reduction(quick):
    trained = {}
    for row in quick.select(part="plan", control="none"):
        trained.setdefault(row["reduction"], []).append(row["digest"])
    # 1 stage and 4 stages in two schedules, the mapping in one; each also recomputed
    assert [len(digests) for digests in trained.values()] == [10, 10, 10]
    assert sum(row["recompute"] for row in quick.select(part="plan", control="none")) == 15
    assert [len(set(digests)) for digests in trained.values()] == [1, 1, 1]
    assert "30 trainings under plans have 3 digests" in quick.answer
    assert quick.answer.startswith("No.")


def test_other_trainings_have_other_bits(quick):
    rows = quick.select(part="plan")
    controls = {row["digest"] for row in rows if row["control"] != "none"}
    assert len(controls) == 3 * len(pipeline_numerics.CONTROLS)
    assert not controls & {row["digest"] for row in rows if row["control"] == "none"}


def test_slots_are_those_of_the_schedule(quick):
    where = {"part": "plan", "control": "none", "reduction": "SUM", "recompute": False}
    slots = {(r["cut"], r["schedule"]): r["slots"] for r in quick.select(**where)}
    assert slots["4 stages", "grouped"] == 15
    assert slots["4 stages", "interleaved"] == 22


def _with(rows, change, **where):
    """The rows, those that match changed."""
    return [
        {**row, **change} if all(row.get(k) == v for k, v in where.items()) else row for row in rows
    ]


@pytest.mark.parametrize(
    ("opening", "change", "where"),
    [
        ("No.", {}, {"part": "plan"}),
        ("Yes.", {"digest": "x0"}, {"cut": "4 stages", "recompute": True, "reduction": "MEAN"}),
        ("Undecided by this run", {"digest": "x0"}, {"part": "plan"}),
    ],
)
def test_the_verdict_follows_the_digests(quick, opening, change, where):
    assert pipeline_numerics._answer(_with(quick.rows, change, **where)).startswith(opening)


def test_a_digest_that_misses_a_seed_decides_nothing(quick):
    """Controls with the digest of the plans: then equal digests say nothing."""
    (digest, *_) = (r["digest"] for r in quick.select(part="plan", reduction="SUM"))
    rows = _with(quick.rows, {"digest": digest}, reduction="SUM", control="another seed")
    assert pipeline_numerics._answer(rows).startswith("Undecided by this run")


def test_one_micro_batch_is_its_own_gradient(quick):
    assert (quick.column("error", part="accumulator", count=1) == 0).all()
    assert (quick.column("overflows", part="accumulator", count=1) == 0).all()


def test_sums_overflow_at_the_highest_scale_and_means_do_not(quick):
    where = {"part": "accumulator", "gradients": pipeline_numerics.HIGHEST, "count": 8}
    assert quick.column("overflows", way="SUM in FP16", **where).sum() > 0
    for way in ("MEAN in FP16", "SUM in FP32"):
        assert quick.column("overflows", way=way, **where).sum() == 0
    small = {**where, "gradients": pipeline_numerics.NO_SCALE}
    assert quick.column("overflows", **small).sum() == 0


def test_the_sentence_is_computed_a_second_time(quick):
    small, high = ({"part": "accumulator", "gradients": g, "count": 8}
                   for g in (pipeline_numerics.NO_SCALE, pipeline_numerics.HIGHEST))
    error = quick.column("error", way="SUM in FP16", **small).mean()
    assert f"the relative error is {error:.2g} ±" in quick.answer
    overflows = quick.column("overflows", way="SUM in FP16", **high).mean()
    assert f"at G = 8 {overflows:.0f} additions" in quick.answer
    none = _with(quick.rows, {"overflows": 0}, part="accumulator")
    assert "SUM in FP16 overflows nowhere" in pipeline_numerics._answer(none)


def test_the_highest_scale_is_the_highest(few):
    network = MicroBatches.of(FP16, seed=1, micro_batches=4, size=8, steps=2)
    scale, gradients = pipeline_numerics.highest_scale(network)
    assert np.abs(gradients).max() < 65504 <= np.abs(network.gradients(2 * scale)).max()


def test_every_panel_shows_data(quick):
    assert_panels(pipeline_numerics.plot(quick), 4)


def test_a_digest_covers_parameters_as_well_as_losses(few, monkeypatch):
    """After one step another rate has the same loss and other parameters."""
    job = pipeline_numerics.PlanJob("SUM", "1 stage", "sequential", False, "", 1, 1)
    row, _ = pipeline_numerics._train(job)
    monkeypatch.setattr(pipeline_numerics, "RATE", 2 * pipeline_numerics.RATE)
    other, _ = pipeline_numerics._train(job)
    assert row["loss"] == other["loss"]
    assert row["digest"] != other["digest"]
