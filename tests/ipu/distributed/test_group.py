"""Trainings over processes (law: number of processes and place of an addition reach no bit)."""

from __future__ import annotations

import pytest

from ipu.distributed.group import Processes
from ipu.distributed.local_transport import run_local
from ipu.learn.checkpoint import take
from ipu.machine import FpCtl
from tests.ipu.distributed.trainings import ORDERS, plan, share, whole
from tests.ipu.parallel.networks import batch, digest, trainer

STEPS = 2


def distributed(processes, work_plan, steps=STEPS, **choices):
    """What each process has after some steps: losses, digest of a replica, state."""

    def work(transport):
        group = Processes(transport, work_plan.replicas)
        training = trainer(work_plan, group=group, **choices)
        own = group.own(work_plan.replicas)
        losses = []
        for t in range(steps):
            x, labels = batch(t, work_plan.samples(2))
            losses.append(training.step(share(x, work_plan, own), share(labels, work_plan, own)))
        group.finish(training)
        return losses, training

    return run_local(processes, work)


@pytest.mark.parametrize("esr", [False, True])
@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("replicas", [2, 4])
def test_one_digest_for_every_number_of_processes(replicas, order, esr):
    control = FpCtl(esr=esr)
    work_plan = plan(replicas, order)
    losses, one = whole(work_plan, STEPS, control=control)
    state = take(one)
    for processes in sorted({2, replicas}):
        results = distributed(processes, work_plan, control=control, count=True)
        assert all(result[0] == losses for result in results)
        workers = [worker for _, training in results for worker in training.workers]
        assert [digest_of(worker) for worker in workers] == [digest_of(w) for w in one.workers]
        states = [take(training) for _, training in results]
        # Flags, status and counts of every replica, wherever its additions were computed.
        own = [s for state in states for s in (state, *state.replicas)]
        for mine, its in zip(own, (state, *state.replicas), strict=True):
            assert (mine.flags, mine.status) == (its.flags, its.status)
            assert sorted(mine.counts) == sorted(its.counts)


def digest_of(worker):
    return digest(type("Training", (), {"workers": [worker]}))
