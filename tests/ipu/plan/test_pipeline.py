"""Programs of one replica (law); bits against the uncut model in `test_trainer`."""

from __future__ import annotations

import pytest

from ipu.learn.accumulate import Accumulation
from ipu.learn.address import Region
from ipu.learn.loss_scale import NoLossScale, Statistic
from ipu.learn.train import cut
from ipu.plan.pipeline import Batch, Pipeline
from ipu.plan.plan import Plan
from ipu.plan.schedule import Phase
from tests.ipu.plan.networks import ROW, batch, trainer


def pipeline(plan, **choices):
    worker = trainer(plan, **choices).worker
    batches = [Batch(*pair) for pair in cut(*batch(0, 2 * plan.count), plan.count)]
    return Pipeline(plan, worker, 0, batches, NoLossScale(), Statistic(), Accumulation(plan.count))


def held(running):
    """Micro-batches that each stage keeps."""
    stages = [0] * running.plan.n_stages
    for (stage, _), flight in running._flights.items():
        stages[stage] += bool(flight.entered)
    return stages


@pytest.mark.parametrize("schedule", ["grouped", "interleaved", "sequential", "popart"])
def test_what_stages_hold_between_slots_is_the_plans_stash(schedule):
    plan = Plan(ROW[4], count=8, schedule=schedule)
    running = pipeline(plan)
    most = [0] * 4
    for program, following in zip(plan.programs, (*plan.programs[1:], None), strict=True):
        running.run(program)
        if following is None or following.slot != program.slot:
            most = [max(pair) for pair in zip(most, held(running), strict=True)]
    assert tuple(most) == plan.stash.held
    assert running._flights == {}
    running.gathered()


def test_recomputation_keeps_no_tape_between_the_passes():
    plan = Plan(ROW[4], count=8, recompute=True)
    running = pipeline(plan)
    for program in plan.programs:
        running.run(program)
        if program.phase is Phase.FORWARD and program.stage < 3:
            assert running._flights[program.stage, program.micro_batch].outputs == {}
    assert sorted(running.losses) == list(range(8))


def test_a_micro_batch_carries_its_own_count_of_operations():
    """The count of each is the same whatever the schedule, recomputation included."""
    counts = set()
    for schedule, recompute in (("grouped", None), ("grouped", True), ("sequential", True)):
        plan = Plan(ROW[4], count=8, schedule=schedule, recompute=recompute)
        running = pipeline(plan)
        for program in plan.programs:
            running.run(program)
        numbering = running.worker.numbering
        counts.add(tuple(numbering.position(Region.BATCH, m) for m in range(8)))
    assert len(counts) == 1
    (positions,) = counts
    assert set(positions) == {positions[0]}


def test_accumulators_take_micro_batches_in_order(monkeypatch):
    seen = {}

    def spied(variable, micro_batch):
        seen.setdefault(variable.name, []).append(micro_batch)
        return real(variable, micro_batch)

    from ipu.learn import accumulate

    real = accumulate.accumulating
    monkeypatch.setattr(accumulate, "accumulating", spied)
    for schedule in ("grouped", "interleaved", "popart"):
        seen.clear()
        running = pipeline(Plan(ROW[4], count=8, schedule=schedule))
        for program in running.plan.programs:
            running.run(program)
        assert len(seen) == len(running.worker.variables.trainable)
        assert all(order == list(range(8)) for order in seen.values())


def test_a_variable_that_no_stage_has_run_backward_is_missing():
    running = pipeline(Plan(ROW[2], count=4))
    for program in running.plan.programs[:6]:
        running.run(program)
    with pytest.raises(ValueError, match="the loss does not depend on"):
        running.gathered()
