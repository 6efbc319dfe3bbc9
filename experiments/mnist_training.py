"""A convolutional network on MNIST in FP32, with FP16 compute, and in FP16 with SR.

The network of Graphcore's tutorial on pipelining. Where only the test files of MNIST are there,
8 000 of their images are learnt from and 2 000 tested with, as the report says; without any file
scikit-learn's digits are enlarged to the shape. Every product runs through the AMP's window.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from experiments.machine import units_of
from experiments.processes import in_processes
from experiments.programs.networks import mnist as network
from experiments.result import Result, Row, UnitUsed, summary
from experiments.training import (
    Looks,
    Variant,
    exceptions,
    plot_accuracy,
    plot_exceptions,
    plot_losses,
)  # fmt: skip
from ipu.feed.batches import Batches
from ipu.feed.data import Data, MissingError, mnist, or_digits
from ipu.learn.loss_scale import StaticLossScale
from ipu.learn.optim import SGD
from ipu.learn.policy import FP16, FP32, MIXED
from ipu.learn.train import Trainer
from ipu.machine import FpCtl

if TYPE_CHECKING:
    from matplotlib.figure import Figure

QUESTION = "Does a convolutional network learn MNIST as well in FP16 as in FP32?"
BUDGET = 1000
DEFAULT = False

RATE, MOMENTUM, BATCH, EPOCHS, SEEDS = 0.02, 0.9, 32, 4, 3
SPLIT = "t10k:8000/2000"
#: Test images that go through the network at once.
_CHUNK = 250
_SCALED = StaticLossScale(256.0)
VARIANTS = (
    Variant("FP32", FP32),
    Variant("mixed, loss × 256", MIXED, loss_scale=_SCALED),
    Variant("FP16 + SR, loss × 256", FP16, stochastic=True, loss_scale=_SCALED),
)


class Job(NamedTuple):
    """One training; `samples` cuts the data short."""

    variant: int
    seed: int
    epochs: int
    samples: int | None
    counted: bool


class Found(NamedTuple):
    """What one training gave."""

    rows: list[Row]
    units: tuple[UnitUsed, ...]


@cache
def data() -> Data:
    """All of MNIST, else the test files split, else digits."""
    try:
        return mnist()
    except MissingError:
        return or_digits(lambda: mnist(SPLIT), (28, 28, 1))


def run(quick: bool, seed: int) -> Result:
    epochs, seeds, samples = (1, 1, 320) if quick else (EPOCHS, SEEDS, None)
    for variant in range(len(VARIANTS)):  # kernels are compiled before there are two processes
        _train(Job(variant, seed, 1, 2 * BATCH, False))
    jobs = [Job(v, s, epochs, samples, s == seed)
            for s in range(seed, seed + seeds) for v in range(len(VARIANTS))]  # fmt: skip
    rows: list[Row] = []
    units: dict[UnitUsed, None] = {}
    for found in in_processes(_train, jobs, "trainings"):
        rows += found.rows
        units |= dict.fromkeys(found.units)
    parameters = {
        "data": data().source, "network": "conv 10, conv 20, dense 256, dense 10",
        "optimizer": str(SGD(RATE, MOMENTUM)), "batch": BATCH, "epochs": epochs,
        "seeds": list(range(seed, seed + seeds)),
    }  # fmt: skip
    policy = "; ".join(f"{v.name}: {v}" for v in VARIANTS)
    return Result(rows, _answer(rows), policy, parameters, tuple(units))


def _train(job: Job) -> Found:
    variant, images = VARIANTS[job.variant], data()
    trainer = Trainer(
        network, SGD(RATE, MOMENTUM), policy=variant.policy, loss_scale=variant.loss_scale,
        control=FpCtl(esr=variant.stochastic), seed=job.seed, count=job.counted,
    )  # fmt: skip
    batches = Batches(images.learn[: job.samples], BATCH, seed=job.seed)
    rows: list[Row] = []
    for epoch in range(1, job.epochs + 1):
        losses = [trainer.step(*next(batches)) for _ in range(batches.per_epoch)]
        rows.append({"part": "loss", "epoch": epoch, "loss": float(np.mean(losses))})
    rows += exceptions(trainer) if job.counted else []
    test = images.test[: job.samples]
    right = sum(
        trainer.accuracy(part.values, part.labels) * len(part)
        for part in (test[i : i + _CHUNK] for i in range(0, len(test), _CHUNK))
    )
    rows.append({"part": "test", "accuracy": right / len(test)})
    label: Row = {"policy": variant.name, "seed": job.seed}
    return Found([{**label, **row} for row in rows], units_of(trainer.device))


def _answer(rows: list[Row]) -> str:
    found = Result(rows, "", "")
    each = {v.name: summary(100 * found.column("accuracy", part="test", policy=v.name))
            for v in VARIANTS}  # fmt: skip
    said = ", ".join(f"{name} {mean:.1f} ± {sd:.1f} %" for name, (mean, sd) in each.items())
    means = [mean for mean, _ in each.values()]
    close = "Yes" if means[0] - min(means) < 0.5 else "Not quite"
    return f"{close}. Test accuracy on {data().source}: {said}."


def plot(result: Result) -> Figure:
    from experiments.drawing import new_figure

    figure, (losses, ends, counters) = new_figure(
        12, 7.6, mosaic="AB;CC", caption=result.answer, height_ratios=[1, 1.2]
    )
    plot_losses(losses, result, _looks(), bands=[v.name for v in VARIANTS])
    losses.set_yscale("log")
    plot_accuracy(ends, result, _looks())
    plot_exceptions(counters, result, _looks())
    return figure


def _looks() -> Looks:
    from experiments.drawing import GREEN, GREY, PURPLE

    colors = (GREY, PURPLE, GREEN)
    return {v.name: {"color": c, "linestyle": "-"} for v, c in zip(VARIANTS, colors, strict=True)}
