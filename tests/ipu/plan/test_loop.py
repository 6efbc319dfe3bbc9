"""The loop over micro-batches: order, marks, cycles, and which trap is raised (law, golden)."""

from __future__ import annotations

import numpy as np
import pytest

from fpsim import BINARY16, FloatingPointTrap
from ipu.machine import Device, FpCtl
from ipu.plan.loop import MicroBatchLoop, Spent
from ipu.plan.plan import Plan
from ipu.plan.schedule import Phase, Schedule

FORWARD, BACKWARD = Phase.FORWARD, Phase.BACKWARD


def plan_of(schedule="grouped", count=8, **choices):
    return Plan([abs] * 4, count=count, schedule=schedule, **choices)


def visit(loop, stop=lambda loop: None):
    """A micro-batch forward through all stages and backward through all."""

    def run(micro_batch, replica):
        for phase, stages in ((FORWARD, range(4)), (BACKWARD, (3, 2, 1, 0))):
            for stage in stages:
                loop.mark(phase, stage)
                stop(loop)

    return run


@pytest.mark.parametrize("schedule", [s.value for s in Schedule])
def test_marks_come_to_every_program_of_every_replica_once(schedule):
    plan, device, told = plan_of(schedule), Device(), []
    loop = MicroBatchLoop(plan, [device], first_replica=4)
    loop.run(2, visit(loop, lambda loop: told.append(loop._device.program)))
    wanted = {
        f"replica {r}, IPU {p.ipu}, stage {p.stage}, micro-batch {p.micro_batch}, slot {p.slot}"
        for p in plan.programs for r in (4, 5)
    }
    assert set(told) == wanted
    assert len(told) == 2 * 8 * 8
    assert device.program == ""


def test_replicas_have_their_devices():
    devices, told = [Device(), Device()], []
    loop = MicroBatchLoop(plan_of(), devices)
    loop.run(2, visit(loop, lambda loop: told.append([d.program[:9] for d in devices])))
    assert told[0] == ["replica 0", ""]
    assert told[8] == ["", "replica 1"]


def test_cycles_are_those_of_the_first_micro_batch_of_the_first_replica():
    device = Device(count=True)
    x = device.from_host(np.ones((8, 8)), BINARY16)

    def work(loop):
        device.matmul(x, x, to=BINARY16)

    before = Spent.by(device)
    work(None)
    one = (Spent.by(device) - before).cycles(device.target)
    assert one > 0
    loop = MicroBatchLoop(plan_of(), [device], measures=True)
    loop.run(2, visit(loop, work))
    assert loop.cycles == {(phase, s, 0): one for phase in (FORWARD, BACKWARD) for s in range(4)}
    silent = MicroBatchLoop(plan_of(), [device])
    silent.run(1, visit(silent, work))
    assert silent.cycles == {}


def test_what_follows_an_end_costs_nothing_and_a_mark_may_come_again():
    device, vector = Device(count=True), Device(count=True).target.workers.value * 1472
    loop = MicroBatchLoop(Plan([abs, abs], count=4), [device], measures=True)

    def run(micro_batch, replica):
        loop.mark(FORWARD, 0)
        device.vector_cycles += vector // 2
        loop.end()
        device.vector_cycles += 100 * vector
        loop.mark(FORWARD, 1)
        loop.mark(FORWARD, 0)
        device.vector_cycles += vector // 2

    loop.run(1, run)
    # The halves are added before they are rounded up.
    assert loop.cycles == {(FORWARD, 0, 0): 1, (FORWARD, 1, 0): 0}


def overflow(device):
    """The machine traps, in the program that runs."""
    most = device.from_host([60000.0], BINARY16)
    device.add(most, most)


#: Where micro-batch 0 and micro-batch m trap, and which of the two the plan runs first.
CASES = [
    ("grouped", (BACKWARD, 0, 0), (FORWARD, 0, 3), 1),
    ("grouped", (FORWARD, 3, 0), (FORWARD, 0, 7), 0),
    ("grouped", (BACKWARD, 3, 0), (FORWARD, 0, 4), 1),  # one slot, forward programs first
    ("grouped", (BACKWARD, 3, 0), (FORWARD, 1, 4), 0),
    ("sequential", (BACKWARD, 0, 0), (FORWARD, 0, 1), 0),
    ("interleaved", (BACKWARD, 0, 0), (BACKWARD, 3, 1), 1),
]


@pytest.mark.parametrize(("schedule", "early", "late", "first"), CASES)
def test_the_trap_of_the_first_program_is_raised(schedule, early, late, first):
    plan = plan_of(schedule)
    device, ran = Device(control=FpCtl(oflo=True)), []
    loop = MicroBatchLoop(plan, [device])

    def run(micro_batch, replica):
        ran.append(micro_batch)
        for phase, stages in ((FORWARD, range(4)), (BACKWARD, (3, 2, 1, 0))):
            for stage in stages:
                loop.mark(phase, stage)
                if (phase, stage, micro_batch) in (early, late):
                    overflow(device)

    places = [(p.phase, p.stage, p.micro_batch) for p in plan.programs]
    wanted = (early, late)[first]
    assert places.index(wanted) == min(places.index(early), places.index(late))
    _, stage, micro_batch = wanted
    with pytest.raises(FloatingPointTrap, match=f"stage {stage}, micro-batch {micro_batch}, slot"):
        loop.run(1, run)
    begins = [places.index((FORWARD, 0, m)) for m in range(8)]
    assert max(ran) <= max(m for m in range(8) if begins[m] <= places.index(early))


def test_of_replicas_in_one_program_the_first_traps():
    device = Device(control=FpCtl(oflo=True))
    loop = MicroBatchLoop(plan_of(), [device])

    def run(micro_batch, replica):
        loop.mark(FORWARD, 0)
        if micro_batch == 2:
            overflow(device)

    with pytest.raises(FloatingPointTrap, match="replica 0"):
        loop.run(3, run)


def test_another_error_ends_the_loop_at_once():
    loop, ran = MicroBatchLoop(plan_of(), [Device(control=FpCtl(oflo=True))]), []

    def run(micro_batch, replica):
        ran.append(micro_batch)
        raise KeyError("of the user")

    with pytest.raises(KeyError, match="of the user"):
        loop.run(2, run)
    assert ran == [0]


def test_what_follows_a_trap_does_not_hide_it():
    device = Device(control=FpCtl(oflo=True))
    loop = MicroBatchLoop(plan_of(), [device])

    def run(micro_batch, replica):
        loop.mark(FORWARD, 3)
        if micro_batch:
            raise KeyError("left undone by the first")
        overflow(device)

    with pytest.raises(FloatingPointTrap, match="micro-batch 0, slot 3"):
        loop.run(1, run)
