"""Training steps of a plan with replicas: the time of each of them, beside that of one alone.

The network of the digits, whose replicas each have a batch of their own, with stochastic rounding:
losses, gradients, their sum over the replicas and an update.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import numpy as np

from ipu.experiments.bench.timing import Call, Size, TimedCase
from ipu.experiments.training import digits
from ipu.learn.optim import SGD
from ipu.machine import FpCtl
from ipu.plan.plan import Plan
from ipu.plan.trainer import PlanTrainer

__all__ = ["SIZES", "cases"]

#: n samples of a replica.
SIZES = Size(n=8, repeats=5), Size(n=4, repeats=1)

_REPLICAS = (1, 4, 32, 128, 1024), (1, 2)
_INPUTS, _CLASSES = 64, 10


def cases(size: Size, quick: bool) -> Iterator[TimedCase]:
    """A figure is the time of a step by the number of replicas; the reference has one."""
    samples = min(size.n, 64)
    for replicas in _REPLICAS[quick]:
        yield TimedCase(
            "replicas", "binary16", partial(_step, replicas, samples), _step(1, samples),
            replicas, size.repeats, "SR", flags=True, data=str(replicas), reference_n=1,
        )


def _step(replicas: int, samples: int) -> Call:
    trainer = PlanTrainer(
        SGD(0.1, 0.9), plan=Plan([digits.network], replicas=replicas), policy="fp16",
        control=FpCtl(esr=True), seed=1,
    )
    rng = np.random.default_rng(0)
    n = replicas * samples
    images, labels = rng.random((n, _INPUTS)), rng.integers(0, _CLASSES, n)
    step = partial(trainer.step, images, labels)
    step()  # makes the variables, and measures the plan
    step()  # compiles what replicas run together
    return step
