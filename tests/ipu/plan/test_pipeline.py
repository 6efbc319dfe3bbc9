"""Micro-batches of one replica (law); bits against the uncut model in `test_trainer`."""

from __future__ import annotations

import pytest

from ipu.learn.accumulate import Accumulation
from ipu.learn.address import Region
from ipu.learn.loss_scale import NoLossScale, Statistic
from ipu.learn.train import cut
from ipu.plan.loop import MicroBatchLoop
from ipu.plan.pipeline import Batch, Pipeline
from ipu.plan.plan import Plan
from ipu.plan.schedule import Phase
from tests.ipu.plan.networks import ROW, batch, trainer


def pipeline(plan, **choices):
    worker = trainer(plan, **choices).worker
    batches = [Batch(*pair) for pair in cut(*batch(0, 2 * plan.count), plan.count)]
    return Pipeline(plan, worker, batches, NoLossScale(), Statistic(), Accumulation(plan.count))


def finished(running):
    """After all micro-batches."""
    loop = MicroBatchLoop(running.plan, [running.worker.device])
    loop.run(1, lambda m, replica: running.run(m, loop))
    return running


def test_a_micro_batch_leaves_nothing_but_gradients():
    """So the memory of a step does not depend on the number of micro-batches."""
    running = pipeline(Plan(ROW[4], count=8))
    loop, held = MicroBatchLoop(running.plan, [running.worker.device]), []

    def run(m, replica):
        running.run(m, loop)
        held.append((len(running._flights), len(running._seeds), len(running._summands)))

    loop.run(1, run)
    assert held == [(0, 0, 0)] * 8
    assert sorted(running.losses) == list(range(8))
    running.gathered()


def test_recomputation_keeps_no_tape_between_the_passes(monkeypatch):
    running, rows = pipeline(Plan(ROW[4], count=8, recompute=True)), []
    mark = MicroBatchLoop.mark

    def noted(loop, phase, stage, branch=0):
        if phase is not Phase.FORWARD:
            flights = running._flights
            rows.append((phase, stage, {s for (s, _), f in flights.items() if f.outputs}))
        mark(loop, phase, stage, branch)

    monkeypatch.setattr(MicroBatchLoop, "mark", noted)
    finished(running)
    backward = [row for row in rows if row[0] is Phase.BACKWARD]
    assert len(backward) == 4 * 8
    # Beside the last stage's, the tape of the stage that runs backward next is there at most.
    assert all(stages <= {stage, stage - 1} for _, stage, stages in backward)


def test_a_micro_batch_carries_its_own_count_of_operations():
    """The count of each is the same whatever the schedule, recomputation included."""
    counts = set()
    for schedule, recompute in (("grouped", None), ("grouped", True), ("sequential", True)):
        plan = Plan(ROW[4], count=8, schedule=schedule, recompute=recompute)
        numbering = finished(pipeline(plan)).worker.numbering
        counts.add(tuple(numbering.position(Region.BATCH, m) for m in range(8)))
    assert len(counts) == 1
    (positions,) = counts
    assert set(positions) == {positions[0]}


def test_accumulators_take_micro_batches_in_order(monkeypatch):
    orders = {}

    def spied(variable, micro_batch):
        orders.setdefault(variable.name, []).append(micro_batch)
        return real(variable, micro_batch)

    from ipu.learn import accumulate

    real = accumulate.accumulating
    monkeypatch.setattr(accumulate, "accumulating", spied)
    running = finished(pipeline(Plan(ROW[4], count=8)))
    assert len(orders) == len(running.worker.variables.trainable)
    assert all(order == list(range(8)) for order in orders.values())


def test_a_variable_that_no_stage_has_run_backward_is_missing():
    running = pipeline(Plan(ROW[2], count=4))
    loop = _Forward(running.plan, [running.worker.device])
    loop.run(1, lambda m, replica: running.run(m, loop))
    with pytest.raises(ValueError, match="the loss does not depend on"):
        running.gathered()


class _Forward(MicroBatchLoop):
    """A loop that stops before the backward pass."""

    def programs(self, micro_batch):
        return [p for p in super().programs(micro_batch) if p.phase is Phase.FORWARD]
