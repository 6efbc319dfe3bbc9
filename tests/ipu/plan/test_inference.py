"""Inference by a plan against a forward pass without one (differential)."""

from __future__ import annotations

import numpy as np
import pytest

from ipu.feed import Outfeed
from ipu.plan.inference import infer
from ipu.plan.plan import Plan
from tests.ipu.plan.networks import CONCURRENT, ROW, batch, trainer


def trained(plan):
    training = trainer(plan)
    training.step(*batch(0, plan.samples(2)))
    return training


@pytest.mark.parametrize("schedule", ["grouped", "sequential", "interleaved"])
@pytest.mark.parametrize("n", [1, 2, 4])
def test_outputs_are_those_of_forward_passes(n, schedule):
    training = trained(Plan(ROW[4], count=8))
    x = batch(1, 24)[0]
    plan = Plan(ROW[n], count=12, schedule=schedule, training=False)
    (outputs,) = infer(training, plan, x)
    assert outputs.shape == (12, 2, 3)
    for m in range(12):
        alone = infer(training, Plan(ROW[1], count=1, training=False), x[2 * m : 2 * m + 2])[0]
        if m == 0:  # only the first has the addresses of a pass by itself
            wanted = training.forward(x[:2]).array
            assert np.array_equal(alone.codes()[0], wanted.codes())
            assert np.array_equal(outputs.codes()[0], wanted.codes())
    again = infer(training, Plan(ROW[1], count=12, training=False), x)[0]
    assert np.array_equal(again.codes(), outputs.codes())


@pytest.mark.source("S3-11")
def test_replicas_give_an_axis_of_their_own_and_take_turns():
    training = trained(Plan(ROW[1], count=2, replicas=2))
    x = batch(1, 16)[0]
    plan = Plan(ROW[2], count=4, replicas=2, training=False)
    (outputs,) = infer(training, plan, x)
    assert outputs.shape == (4, 2, 2, 3)
    # With one replica the first four micro-batches of two are numbers 0, 2, 4, 6 of replica 0.
    inputs = np.concatenate([x[4 * m : 4 * m + 2] for m in range(4)])
    (alone,) = infer(training, Plan(ROW[2], count=4, training=False), inputs)
    assert np.array_equal(outputs.codes()[:, 0], alone.codes())


@pytest.mark.source("S0-46")
def test_outputs_of_concurrent_last_stages_reach_an_outfeed_in_order():
    training = trained(Plan(CONCURRENT, mapping=[0, [1, 2], 3], count=12))
    plan = Plan(CONCURRENT[:2], mapping=[0, [1, 2]], count=4, training=False)
    x = batch(1, 8)[0]
    with Outfeed() as outfeed:
        outputs = infer(training, plan, x, outfeed.enqueue)
        queued = outfeed.dequeue()
    assert [output.shape for output in outputs] == [(4, 2, 5), (4, 2, 8), (4, 2, 8)]
    for output, array in zip(outputs, queued, strict=True):
        assert np.array_equal(output.codes(), array.codes())


def test_refusals():
    training = trained(Plan(ROW[1], count=2))
    x = batch(1, 6)[0]
    with pytest.raises(ValueError, match="plan trains; use Plan"):
        infer(training, Plan(ROW[1]), x)
    with pytest.raises(ValueError, match="plan has 2 replicas, the trainer 1"):
        infer(training, Plan(ROW[1], replicas=2, training=False), x)
    with pytest.raises(ValueError, match="batch=6 is no multiple of 4"):
        infer(training, Plan(ROW[1], count=4, training=False), x)
    with pytest.raises(RuntimeError, match="no variables yet"):
        infer(trainer(Plan(ROW[1])), Plan(ROW[1], training=False), x)
