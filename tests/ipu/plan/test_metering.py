"""Figures of a measured step (golden: counted by hand from the layers' shapes)."""

from __future__ import annotations

import pytest

from fpsim import BINARY32
from ipu.learn import nn
from ipu.learn.accumulate import Accumulation
from ipu.learn.optim import SGD
from ipu.learn.policy import FP16, FP32
from ipu.machine.target import MK2
from ipu.plan.plan import Plan
from tests.ipu.plan.networks import batch, trainer

STAGES = [
    lambda x: nn.dropout(nn.relu(nn.dense(x, 8, "first")), 0.25),
    lambda x: nn.dense(x, 3, "second"),
]


@pytest.fixture(scope="module")
def figures():
    training = trainer(Plan(STAGES, count=4, dtype=BINARY32), optimizer=SGD(0.1, 0.9, BINARY32))
    assert training.figures is None
    with pytest.raises(RuntimeError, match="no step has been measured yet"):
        training.explain()
    training.step(*batch(0, 16))
    assert "2 stages on IPU 0 1" in training.explain()
    return training.figures


def test_bytes_are_those_of_the_shapes(figures):
    first, second = figures
    # A micro-batch has 4 samples of 6 features; binary16 takes 2 bytes.
    assert (first.input_bytes, first.output_bytes) == (4 * 6 * 2, 4 * 8 * 2)
    assert (second.input_bytes, second.output_bytes) == (4 * 8 * 2, 0)
    assert (first.infeed_bytes, second.infeed_bytes) == (48, 0)
    assert (first.outfeed_bytes, second.outfeed_bytes) == (0, 4)
    assert (first.parameter_bytes, second.parameter_bytes) == ((48 + 8) * 2, (24 + 3) * 2)
    # Momentum and accumulators are binary32.
    assert first.state_tensors == (48 * 4, 8 * 4)
    assert (first.state_bytes, first.accumulator_bytes) == (56 * 4, 56 * 4)
    assert first.state_itemsize == 4
    # Saved are the input, the output of relu, and the mask of dropout, a byte each.
    assert first.checkpoint_bytes == 32
    assert first.saved_bytes == 48 + 64 + 32


def test_cycles_are_those_of_the_ledger_and_of_the_vector_model():
    def forward_cycles(policy):
        training = trainer(Plan(STAGES, count=4), policy=policy)
        training.step(*batch(0, 16))
        return [stage.forward_cycles for stage in training.figures]

    for policy in (FP16, FP32):
        training = trainer(Plan([STAGES[1]], count=1), policy=policy)
        training.forward(batch(0, 4)[0])
        products = training.device.ledger.cycles
        vector = training.device.vector_cycles
        training.device.ledger.clear()
        training.device.vector_cycles = 0
        training.step(*batch(0, 4))
        threads = MK2.tiles.value * MK2.workers.value
        # The step adds the loss to what the forward pass alone has cost.
        assert training.figures[0].forward_cycles >= products + -(-vector // threads)
        assert vector > 0
    assert all(cycles > 0 for cycles in forward_cycles(FP16))


def test_a_variable_of_two_stages_counts_at_the_first():
    from tests.ipu.plan.networks import SKIP, SKIP_MAPPING

    training = trainer(Plan(SKIP[4], mapping=SKIP_MAPPING[4], count=8))
    training.step(*batch(0, 16))
    total = sum(v.array.storage_bytes for v in training.variables.trainable)
    assert sum(stage.parameter_bytes for stage in training.figures) == total
    assert training.figures[3].parameter_bytes == (8 * 3 + 3) * 2


def test_a_step_is_measured_once_and_figures_do_not_change_a_bit():
    plan = Plan(STAGES, count=4)
    one, other = trainer(plan), trainer(plan)
    other.figures = ()
    losses = [[training.step(*batch(t, 16)) for t in range(2)] for training in (one, other)]
    assert losses[0] == losses[1]
    assert other.figures == ()
    assert Accumulation(4).count == plan.count
