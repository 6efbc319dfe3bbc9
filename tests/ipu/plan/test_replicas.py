"""Replicas: equal weights, sums in every order, sharded state, private bits (law)."""

from __future__ import annotations

from contextlib import nullcontext
from itertools import product

import numpy as np
import pytest

from ipu.learn.optim import SGD, Adam, RMSProp
from ipu.learn.policy import FP32
from ipu.machine import FpCtl
from ipu.plan import collectives
from ipu.plan.orders import Order
from ipu.plan.plan import Plan
from tests.ipu.plan import networks
from tests.ipu.plan.networks import ROW, batch, outcome, trainer
from tests.tiers import pick, reaches

#: In the quick tier two replicas, whose orders are nearly one, have one of them.
EVERY_ORDER = [
    (replicas, order.value)
    for replicas in (2, 4)
    for order in Order
    if reaches("full") or replicas == 4 or order == Order.CLOCKWISE_RING
]
STEPS = pick(2, 3, 3)
#: Stages and micro-batches of a step, of which four stages need eight.
STAGES, COUNT = pick((2, 4), (4, 8), (4, 8))


@pytest.mark.source("S0-28")
@pytest.mark.source("S3-12")
@pytest.mark.source("S3-13")
@pytest.mark.parametrize(("replicas", "order"), EVERY_ORDER)
def test_replicas_stay_equal_in_every_order(replicas, order):
    training = trainer(Plan(ROW[STAGES], count=COUNT, replicas=replicas, order=order))
    for t in range(2):
        training.step(*batch(t, 2 * COUNT * replicas))
    first, *others = training.workers
    for other in others:
        for variable in first.variables.trainable:
            assert np.array_equal(
                variable.array.codes(), other.variables[variable.name].array.codes()
            )
        # Moving statistics are each replica's own: it saw other samples.
        moving = "all_vars/norm/moving_mean"
        assert not np.array_equal(
            first.variables[moving].array.codes(), other.variables[moving].array.codes()
        )


@pytest.mark.source("S0-25", "S0-30", "S3-10")
def test_replicas_of_shards_take_turns_at_the_data_and_train_as_one_that_takes_it_all():
    """In binary32 to nearest 2 replicas of 2 stages with G micro-batches are one with 2 G."""
    ends, ipus = [], []
    for replicas, stages in ((2, 2), (1, 1)):
        plan = Plan(
            networks.SKIP[stages], mapping=networks.SKIP_MAPPING[stages], replicas=replicas,
            count=8 // replicas, reduction="mean",
        )
        training = trainer(plan, policy=FP32, control=FpCtl(), loss_scale=None)
        for t in range(2):
            training.step(*batch(t, 16))
        ends.append({name: v.array.values for name, v in training.variables.items()})
        ipus.append(plan.n_ipus)
    assert ipus == [4, 1]
    for name, values in ends[0].items():
        np.testing.assert_allclose(values, ends[1][name], rtol=0, atol=1e-6, err_msg=name)


def test_orders_differ_and_cuts_do_not():
    ends = {}
    orders = ("sequential", "tf_ring", "clockwise_ring", "tree", "meet_in_middle_ring")
    for order in orders[:: pick(2, 1, 1)]:
        plans = [Plan(ROW[n], count=COUNT, replicas=4, order=order) for n in (1, STAGES)]
        one, other = (outcome(plan, steps=STEPS) for plan in plans)
        assert one == other
        ends[order] = one[1]
    assert len(set(ends.values())) == len(ends)


OPTIMIZERS = [SGD(0.1, 0.9), Adam(0.01, epsilon=1e-4), RMSProp(0.01, epsilon=1e-4)]
SHARDED = pick(
    list(zip((2, 3), OPTIMIZERS[:2], strict=True)), *[list(product((2, 3), OPTIMIZERS))] * 2
)


@pytest.mark.source("S0-69")
@pytest.mark.source("S0-70")
@pytest.mark.source("S3-34")
@pytest.mark.parametrize(("replicas", "optimizer"), SHARDED)
def test_sharded_and_offloaded_state_reach_no_bit(replicas, optimizer):
    plan = Plan(ROW[STAGES], count=COUNT, replicas=replicas)
    reference = outcome(plan, steps=STEPS, optimizer=optimizer)
    for choices in (
        {"shard_state": True},
        {"shard_state": True, "shard_minimum": 9},
        {"offload": ("state", "activations", "weights", "accumulators")},
        {"io_tiles": 32, "count": 2 * COUNT},
    ):
        plan = Plan(ROW[STAGES], **{"count": COUNT, "replicas": replicas, **choices})
        wanted = reference
        if plan.count != COUNT:
            wanted = outcome(
                Plan(ROW[1], count=2 * COUNT, replicas=replicas), steps=STEPS, optimizer=optimizer
            )
        assert outcome(plan, steps=STEPS, optimizer=optimizer) == wanted, choices


def test_a_shard_without_its_place_would_draw_other_bits(monkeypatch):
    plan = Plan(ROW[1], count=8, replicas=2, shard_state=True)
    reference = outcome(plan, steps=2)
    monkeypatch.setattr("ipu.machine.device.Device.shard", lambda self, first: nullcontext())
    assert outcome(plan, steps=2) != reference


def test_private_updates_drift_apart_and_rounding_alike_does_not():
    plan = Plan(ROW[1], count=2, replicas=2)
    alike, private = (trainer(plan, private_updates=private) for private in (False, True))
    for training in (alike, private):
        for t in range(3):
            training.step(*batch(t, 8))
    for training, equal in ((alike, True), (private, False)):
        one, other = (
            np.concatenate([v.array.codes().ravel() for v in worker.variables.trainable])
            for worker in training.workers
        )
        assert np.array_equal(one, other) == equal


def test_only_what_is_alike_rounds_stochastically_where_that_is_asked():
    """Its gradients are those to nearest; its updates are stochastic."""
    plan = Plan(ROW[1], count=2, replicas=2)
    nearest = trainer(plan, control=FpCtl(), optimizer=SGD(2.0**-6))
    identical = trainer(plan, replica_identical_only=True, optimizer=SGD(2.0**-6))
    stochastic = trainer(plan, optimizer=SGD(2.0**-6))
    losses = [training.step(*batch(0, 8)) for training in (nearest, identical, stochastic)]
    assert losses[0] == losses[1] != losses[2]
    ends = {networks.digest(training) for training in (nearest, identical, stochastic)}
    assert len(ends) == 3


def test_buckets_join_neighbours_and_change_chunks_only():
    plan = Plan(ROW[1], count=2, replicas=4, order="sequential")
    joined = Plan(ROW[1], count=2, replicas=4, order="sequential", buffer_size=1 << 20)
    # In one sequence for all chunks, rounding to nearest does not see where chunks end.
    assert outcome(plan, control=FpCtl()) == outcome(joined, control=FpCtl())
    ring = [
        outcome(
            Plan(ROW[1], count=2, replicas=4, order="tf_ring", buffer_size=size), control=FpCtl()
        )
        for size in (0, 1 << 20)
    ]
    assert ring[0] != ring[1]


@pytest.mark.source("S0-55")
@pytest.mark.parametrize("count", [1, 4])
def test_gradients_are_exchanged_once_a_step(count, monkeypatch):
    sums = []

    def counted(tensors, *arguments):
        sums.append(len(tensors))
        return real(tensors, *arguments)

    real = collectives.reduce_sum
    monkeypatch.setattr(collectives, "reduce_sum", counted)
    plan = Plan(ROW[1], count=count, replicas=3)
    training = trainer(plan)
    assert plan.samples(5) == 5 * count * 3
    training.step(*batch(0, plan.samples(5)))
    assert sums == [3] * len(training.variables.trainable)


def test_a_bucket_is_named_after_its_first_variable(monkeypatch):
    """Messages name it, and its additions draw the random bits of that variable."""
    training = trainer(Plan(ROW[1], count=2, replicas=2, buffer_size=1 << 20))
    summed, sums = [], training.group.sums

    def watched(jobs, *others):
        summed.extend((job.cell, job.name) for job in jobs)
        return sums(jobs, *others)

    monkeypatch.setattr(training.group, "sums", watched)
    training.step(*batch(0, 2 * 2 * 2))
    variables = training.workers[0].variables.trainable
    assert len(variables) > len(summed) > 0
    assert all(name == variables[cell].name for cell, name in summed)
