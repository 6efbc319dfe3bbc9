"""The search for the highest loss scale: it stops at the first overflow (golden)."""

from __future__ import annotations

import pytest

from fpsim import BINARY16, BINARY32, FloatingPointTrap
from ipu import ops
from ipu.learn.accumulate import Accumulation
from ipu.learn.loss_scale import (
    StaticLossScale,
    find_loss_scale,
)
from ipu.learn.nn import dense
from ipu.learn.optim import SGD
from ipu.learn.policy import FP16
from ipu.learn.train import Trainer
from ipu.machine import POPLAR_STRUCT_DEFAULT, Device
from tests.ipu.learn.small import LABELS, X, trainer


@pytest.mark.source("S4-30")
def test_the_highest_loss_scale_is_found_with_the_traps_armed():
    def step(scale):
        training = trainer(
            policy=FP16, loss_scale=StaticLossScale(scale), control=POPLAR_STRUCT_DEFAULT
        )
        training.step(X, LABELS)

    best = find_loss_scale(step)
    step(best)
    with pytest.raises(FloatingPointTrap, match="OVERFLOW"):
        step(2 * best)
    assert find_loss_scale(step, range(24, 25)) is None


@pytest.mark.source("S4-30")
def test_wide_accumulators_let_the_loss_scale_be_higher():
    def highest(dtype):
        def step(scale):
            training = trainer(
                policy=FP16, loss_scale=StaticLossScale(scale), control=POPLAR_STRUCT_DEFAULT,
                accumulation=Accumulation(8, dtype=dtype), optimizer=SGD(1e-3, format=BINARY32),
            )
            training.step(X, LABELS)

        return find_loss_scale(step, range(13, 20))

    assert highest(BINARY32) > highest(None)


def test_other_exceptions_are_not_taken_for_a_scale_too_high():
    def step(scale):
        device = Device(control=POPLAR_STRUCT_DEFAULT)
        device.divide(device.from_host([1.0], BINARY16), device.zeros((1,), BINARY16))

    with pytest.raises(FloatingPointTrap, match="DIVBYZERO"):
        find_loss_scale(step)


def test_a_scale_beyond_the_range_of_the_format_is_reached_where_gradients_are_small():
    def step(scale):
        training = Trainer(
            lambda x: ops.scale(dense(x, 3, "only"), factor=0.0), SGD(0.05), policy=FP16,
            loss_scale=StaticLossScale(scale), control=POPLAR_STRUCT_DEFAULT,
        )
        training.step(X, LABELS)

    assert find_loss_scale(step, range(15, 25)) == 2.0**21
