"""Gradients of micro-batches: each is that of a training step of its own (law)."""

from __future__ import annotations

import numpy as np
import pytest

from ipu.experiments.execution.digit_gradients import MicroBatches
from ipu.experiments.training import digits
from ipu.learn.policy import FP16


@pytest.fixture(scope="module")
def network(few):
    return MicroBatches.of(FP16, seed=1, micro_batches=24, size=8, steps=3)


def test_micro_batches_go_on_through_the_epochs(network):
    learn, _ = digits.load().split(1)
    assert len(network.batches) == 24
    assert {len(batch) for batch in network.batches} == {8}
    # 160 digits make 20 micro-batches: four are of the next epoch
    first = np.concatenate(network.batches[:20])
    assert sorted(first.tolist()) == sorted(learn.tolist())


def test_the_gradients_of_two_calls_and_of_two_scales_agree(network):
    """No step is taken; in FP16 a small power of two only moves exponents of normal numbers."""
    once, again = network.gradients(), network.gradients()
    assert once.shape == (24, 64 * 64 + 64 + 64 * 10 + 10)
    assert once.tobytes() == again.tobytes()
    doubled = network.gradients(2.0)
    normal = np.abs(once) > 2.0**-8
    assert normal.sum() > 1000
    assert np.median(np.abs(doubled[normal] / once[normal] - 2)) < 2.0**-9
    assert len({row.tobytes() for row in once}) == 24
