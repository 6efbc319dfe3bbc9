"""Accumulators beside exact sums: golden (few terms), differential (binary16 of numpy), law."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from fpsim import BINARY16
from ipu.experiments.execution import accumulated_gradients
from ipu.experiments.execution.accumulated_gradients import ACCUMULATORS, accumulate, compared
from ipu.experiments.execution.digit_gradients import MicroBatches
from ipu.experiments.training import digits
from ipu.learn.accumulate import Reduction
from ipu.learn.loss_scale import Statistic
from ipu.learn.optim import SGD
from ipu.learn.policy import FP16
from ipu.machine import Device
from ipu.plan.plan import Plan
from ipu.plan.trainer import PlanTrainer

TINY = 2.0**-11


def test_ties_that_a_half_loses():
    """1 + 2^-11 is a tie to even: three of them go, of the exact 1 + 3·2^-11."""
    gradients = np.array([[1.0], [TINY], [TINY], [TINY]])
    row = compared(gradients, ACCUMULATORS["SUM in FP16"], 0)
    assert row["error"] == pytest.approx(3 * TINY / (1 + 3 * TINY), rel=1e-12)
    assert compared(gradients, ACCUMULATORS["SUM in FP32"], 0)["error"] == 0


def test_what_saturates_is_counted():
    gradients = np.array([[60000.0, 1.0], [60000.0, 1.0], [-60000.0, 1.0]])
    row = compared(gradients, ACCUMULATORS["SUM in FP16"], 0)
    assert (row["overflows"], row["saturated"], row["entries"]) == (1, 0, 2)
    row = compared(gradients[:2], ACCUMULATORS["SUM in FP16"], 0)
    assert (row["overflows"], row["saturated"]) == (1, 1)
    assert compared(gradients[:2], ACCUMULATORS["MEAN in FP16"], 0)["overflows"] == 0


def test_what_becomes_zero_is_lost():
    """A half of the least subnormal is a tie to even, and goes to 0; a zero was there before."""
    gradients = np.array([[2.0**-24, 0.0, 1.0], [0.0, 0.0, 1.0]])
    assert compared(gradients, ACCUMULATORS["MEAN in FP16"], 0)["lost"] == 0.5
    assert compared(gradients, ACCUMULATORS["SUM in FP16"], 0)["lost"] == 0


@pytest.mark.parametrize("reduction", list(Reduction))
def test_halves_accumulate_as_numpys(reduction):
    draw = np.random.default_rng(1)
    gradients = draw.standard_normal((8, 50)).astype(np.float16)
    total = np.zeros(50, np.float16)
    for n, gradient in enumerate(gradients):
        decay, share = np.float16(1), np.float16(1)
        if reduction is Reduction.MEAN:
            share = np.float16(1 / 8)
        if reduction is Reduction.RUNNING_MEAN:
            decay, share = (
                np.float16(np.float32(n) / np.float32(n + 1)),
                np.float16(np.float32(1) / np.float32(n + 1)),
            )
        total = total * decay + gradient * share
    way = accumulated_gradients.AccumulatorWay(reduction)
    result = accumulate(gradients.astype(np.float64), way, Device())
    assert result.codes().tolist() == total.view(np.uint16).tolist()


def test_the_error_is_that_of_fractions():
    draw = np.random.default_rng(2)
    gradients = draw.standard_normal((4, 6)).astype(np.float16).astype(np.float64)
    values = accumulate(gradients, ACCUMULATORS["MEAN in FP16"], Device()).values
    exact = [sum(map(Fraction, column)) / 4 for column in gradients.T.tolist()]
    wrong = sum((Fraction(float(v)) - e) ** 2 for v, e in zip(values, exact, strict=True))
    size = sum(e**2 for e in exact)
    row = compared(gradients, ACCUMULATORS["MEAN in FP16"], 0)
    assert row["error"] == pytest.approx(float(wrong / size) ** 0.5, rel=1e-12)


@pytest.mark.parametrize("way", [w for w in ACCUMULATORS if "SR" not in w])
def test_a_plan_accumulates_the_same_bits(few, way):
    """The flat gradients of a network's micro-batches, and those that its plan accumulates."""
    reduction, dtype, _ = ACCUMULATORS[way]
    network = MicroBatches.of(FP16, seed=1, micro_batches=4, size=8, steps=2)
    plan = Plan([digits.network], count=4, reduction=reduction, dtype=dtype)
    trainer = PlanTrainer(SGD(0.1), plan=plan, policy=FP16, seed=1)
    samples = np.concatenate(network.batches)
    data = digits.load()
    trainer.forward(data.images[samples[:1]])
    for name, variable in trainer.variables.items():
        array = network.trainer.variables[name].array
        variable.array = trainer.device.context(BINARY16).wrap(array.carrier)
    _, (gathered,) = trainer._gradients(data.images[samples], data.labels[samples], Statistic())
    planned = np.concatenate([g.codes().reshape(-1) for g, _ in gathered.pairs])
    alone = accumulate(network.gradients(), ACCUMULATORS[way], Device())
    assert planned.tobytes() == alone.codes().tobytes()
