"""Trainings over processes (law: number of processes and place of an addition reach no bit)."""

from __future__ import annotations

import numpy as np
import pytest

from fpsim import BINARY16
from ipu.learn.checkpoint import take
from ipu.learn.loss_scale import AutomaticLossScale, Statistic
from ipu.learn.variables import Variable
from ipu.machine import Device, FpCtl
from ipu.members import allreduce
from ipu.members.group import Processes
from ipu.members.local_transport import local_transports, run_local
from ipu.members.transport import JoinError, Kind, StoppedError
from tests.ipu.members.trainings import ORDERS, plan, share, whole
from tests.ipu.plan.networks import batch, digest, trainer

STEPS = 2


def distributed(processes, work_plan, steps=STEPS, **choices):
    """What each process has after some steps: losses, digest of a replica, state."""

    def work(transport):
        group = Processes(transport, work_plan.replicas)
        training = trainer(work_plan, group=group, **choices)
        local = group.own(work_plan.replicas)
        losses = []
        for t in range(steps):
            x, labels = batch(t, work_plan.samples(2))
            x, labels = (share(values, work_plan, local) for values in (x, labels))
            losses.append(training.step(x, labels))
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
        replica_states = [s for state in states for s in (state, *state.replicas)]
        for mine, its in zip(replica_states, (state, *state.replicas), strict=True):
            assert (mine.flags, mine.status) == (its.flags, its.status)
            assert sorted(mine.counts) == sorted(its.counts)


def digest_of(worker):
    return digest(type("Training", (), {"workers": [worker]}))


def test_large_tensors_on_a_ring_have_the_same_digest(monkeypatch):
    monkeypatch.setattr(allreduce, "SMALL", 0)
    work_plan = plan(4, "tf_ring")
    _, one = whole(work_plan, STEPS, control=FpCtl(esr=True))
    for _, training in distributed(2, work_plan, control=FpCtl(esr=True)):
        assert digest_of(training.worker) == digest_of(one.workers[training.own_replicas[0]])


@pytest.mark.filterwarnings("ignore:shard_state=True")
@pytest.mark.parametrize("choices", [{"shard_state": True}, {"buffer_size": 1 << 20}])
def test_sharded_state_and_buffers_change_no_digest(choices):
    work_plan = plan(2, "tree", **choices)
    _, one = whole(work_plan, STEPS, control=FpCtl(esr=True))
    for _, training in distributed(2, work_plan, control=FpCtl(esr=True)):
        assert digest_of(training.worker) == digest_of(one.workers[training.own_replicas[0]])


def test_an_automatic_loss_scale_looks_at_all_replicas():
    work_plan = plan(2, "tree")
    scale = AutomaticLossScale(factor=2.0**12)
    one = trainer(work_plan, loss_scale=scale)
    losses = [one.step(*batch(t, work_plan.samples(2))) for t in range(3)]
    for losses_there, training in distributed(2, work_plan, steps=3, loss_scale=scale):
        assert losses_there == losses
        assert training.loss_scale == one.loss_scale != scale


def test_a_statistic_without_a_sum_is_refused():
    class Own(Statistic):
        pass

    group = Processes(local_transports(1)[0], 1)
    with pytest.raises(TypeError, match="Own has no sum over processes"):
        group.agree(np.zeros((1, 1)), Own())


def test_plans_that_differ_are_told_on_every_process():
    def work(transport):
        group = Processes(transport, 2)
        training = trainer(plan(2, "tree"), group=group, seed=5 + transport.rank)
        with pytest.raises(
            JoinError, match=f"worker {transport.rank} has seed: {5 + group.channel.rank}"
        ):
            training.step(*batch(0, 4))
        return True

    assert run_local(2, work) == [True, True]


def test_values_of_the_first_worker_are_those_of_all():
    def work(transport):
        group = Processes(transport, 2)
        training = trainer(plan(2, "tree"), group=group)
        training.forward(batch(0, 2)[0])
        if transport.rank:
            for variable in training.variables.trainable:
                variable.assign(training.device.zeros(variable.shape, variable.dtype))
        training.step(*batch(0, 4))
        return group.digest(training)

    one = trainer(plan(2, "tree"))
    one.step(np.tile(batch(0, 4)[0], (2, 1)), np.tile(batch(0, 4)[1], 2))
    assert len(set(run_local(2, work))) == 1


def test_variables_that_differ_stop_the_training():
    def work(transport):
        group = Processes(transport, 2, check_every=2)
        training = trainer(plan(2, "tree"), group=group)
        for t in range(4):
            training.step(*batch(t, 4))
            if transport.rank == 1 and t == 0:
                first = training.variables.trainable[0]
                first.assign(training.device.zeros(first.shape, first.dtype))

    with pytest.raises(
        StoppedError, match=r"worker [01] has variables with digest .* after step 2"
    ):
        run_local(2, work)


def test_private_statistics_are_averaged_when_they_are_read():
    def work(transport):
        group = Processes(transport, 4)
        device = Device()
        local = group.own(4)
        rows = [np.full(3, float(r + 1)) for r in local]
        variables = [Variable(device.from_host(row, BINARY16), device, "m") for row in rows]
        two = Processes(transport, 2)
        one = Variable(device.from_host([float(transport.rank + 1)], BINARY16), device, "m")
        return group.mean(variables).tolist(), two.mean([one]).tolist()

    assert run_local(2, work) == [([2.5] * 3, [1.5])] * 2


def test_an_interrupt_on_one_stops_all_after_the_same_step():
    def work(transport):
        group = Processes(transport, 2, interrupted=lambda: transport.rank == 1 and steps[1] == 2)
        training = trainer(plan(2, "tree"), group=group)
        while not group.stopping:
            training.step(*batch(training.steps, 4))
            steps[transport.rank] = training.steps
        return training.steps, group.stopping

    steps = [0, 0]
    assert run_local(2, work) == [(3, (1,))] * 2


def test_a_worker_that_fails_is_named_by_the_others_and_publishes_nothing():
    stops = []

    def work(transport):
        group = Processes(transport, 2)
        training = trainer(plan(2, "tree"), group=group)
        training.step(*batch(0, 4))
        before = digest(training)
        x, labels = batch(1, 4)
        try:
            training.step(x, labels[:3] if transport.rank else labels)
        except StoppedError as stop:
            stops.append(stop)
            raise
        finally:
            assert digest(training) == before
            assert training.steps == 1

    with pytest.raises(ValueError, match="4 samples and 3 labels"):
        run_local(2, work)
    assert stops[0].reason[:2] == (Kind.FAILED, 1)
    message = "worker 1 stopped: ValueError: 4 samples and 3 labels; give one label each"
    assert str(stops[0]) == message


def test_a_lost_worker_is_told_with_step_and_checkpoint():
    def work(transport):
        group = Processes(transport, 2)
        training = trainer(plan(2, "tree"), group=group)
        training.step(*batch(0, 4))
        if transport.rank:
            return None
        with pytest.raises(StoppedError) as stop:
            training.step(*batch(1, 4))
        group.saved = 0
        with pytest.raises(StoppedError) as later:
            training.step(*batch(1, 4))
        return str(stop.value), str(later.value)

    first, later = run_local(2, work)[0]
    assert first == "worker 1 is gone (step 1); there is no checkpoint"
    assert later == "worker 1 is gone (step 1); the last checkpoint is step 0"


def test_groups_of_the_wrong_size_are_refused():
    first, _ = local_transports(2)
    with pytest.raises(ValueError, match="replicas=3 is no multiple of the 2 processes; use 2"):
        Processes(first, 3)
    with pytest.raises(ValueError, match="check_every=0: use 1 step or more"):
        Processes(first, 2, check_every=0)
    group = Processes(first, 2)
    with pytest.raises(ValueError, match="the plan has replicas=4, the group has 2"):
        trainer(plan(4, "tree"), group=group)
    trainer(plan(2, "tree"), group=group)
    with pytest.raises(ValueError, match="a group is of one training"):
        trainer(plan(2, "tree"), group=group)


def test_losses_of_another_number_of_micro_batches_are_refused():
    def work(transport):
        return Processes(transport, 2).agree(np.zeros((2 + transport.rank, 1)), Statistic())

    with pytest.raises(StoppedError, match="the losses"):
        run_local(2, work)
