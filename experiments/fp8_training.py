"""Products of quarters beside products of halves: the digits in FP8, FP16 and FP32.

Operands of every product are rounded to F143 on the way forward and gradients to F152 on the way
back, each tensor with a power-of-two scale of its own; results, sums and parameters are FP16 and
FP32. The formats are those of the Mk2 with FP8; the choice of the scales is this project's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from experiments.digit_runs import BATCH, NETWORK, train
from experiments.machine import units_of
from experiments.processes import in_processes
from experiments.progress import progress
from experiments.result import Result, Row, UnitUsed, summary
from experiments.training import (
    Looks,
    Variant,
    exceptions,
    plot_accuracy,
    plot_exceptions,
    plot_losses,
)  # fmt: skip
from ipu.learn.loss_scale import StaticLossScale
from ipu.learn.optim import SGD
from ipu.learn.policy import FP8, FP32, MIXED

if TYPE_CHECKING:
    from matplotlib.figure import Figure

QUESTION = "What does training lose when its products take FP8 operands?"
BUDGET = 120
DEFAULT = False

RATE, MOMENTUM, EPOCHS, SEEDS = 0.02, 0.9, 15, 3
_SCALED = StaticLossScale(256.0)
VARIANTS = (
    Variant("FP32", FP32),
    Variant("FP16, loss × 256", MIXED, loss_scale=_SCALED),
    Variant("FP8", FP8),
    Variant("FP8, loss × 256", FP8, loss_scale=_SCALED),
    Variant("FP8 + SR, loss × 256", FP8, stochastic=True, loss_scale=_SCALED),
)


class Job(NamedTuple):
    """One training; `steps` cuts its epochs short."""

    variant: int
    seed: int
    epochs: int
    counted: bool
    steps: int | None = None


class Found(NamedTuple):
    """What one training gave."""

    rows: list[Row]
    units: tuple[UnitUsed, ...]


def run(quick: bool, seed: int) -> Result:
    epochs, seeds = (1, 1) if quick else (EPOCHS, SEEDS)
    for variant in progress(range(len(VARIANTS)), "kernels"):
        _train(Job(variant, seed, 1, False, 2))
    jobs = [Job(v, s, epochs, s == seed)
            for s in range(seed, seed + seeds) for v in range(len(VARIANTS))]  # fmt: skip
    rows: list[Row] = []
    units: dict[UnitUsed, None] = {}
    for found in in_processes(_train, jobs, "trainings"):
        rows += found.rows
        units |= dict.fromkeys(found.units)
    parameters = {"network": NETWORK, "learning rate": RATE, "momentum": MOMENTUM, "batch": BATCH,
                  "epochs": epochs, "seeds": list(range(seed, seed + seeds))}  # fmt: skip
    policy = "; ".join(f"{v.name}: {v}" for v in VARIANTS)
    return Result(rows, _answer(rows), policy, parameters, tuple(units))


def _train(job: Job) -> Found:
    variant = VARIANTS[job.variant]
    trainer, losses, accuracy = train(
        variant, SGD(RATE, MOMENTUM), job.seed, job.epochs, steps=job.steps, counted=job.counted,
        target="mk2-fp8",
    )  # fmt: skip
    found: list[Row] = [
        {"part": "loss", "epoch": e, "loss": float(x)} for e, x in enumerate(losses.mean(axis=1), 1)
    ]
    found.append({"part": "test", "accuracy": accuracy})
    found += exceptions(trainer) if job.counted else []
    label: Row = {"policy": variant.name, "seed": job.seed}
    return Found([{**label, **row} for row in found], units_of(trainer.device))


def _answer(rows: list[Row]) -> str:
    found = Result(rows, "", "")
    points = {v.name: 100 * summary(found.column("accuracy", part="test", policy=v.name))[0]
              for v in VARIANTS}  # fmt: skip
    last = max(int(str(row["epoch"])) for row in rows if row["part"] == "loss")
    losses = {v.name: found.column("loss", part="loss", policy=v.name, epoch=last).mean()
              for v in VARIANTS}  # fmt: skip
    said = ", ".join(f"{v.name} {points[v.name]:.1f} % (loss {losses[v.name]:.3f})"
                     for v in VARIANTS)  # fmt: skip
    return f"Test accuracy after {last} epochs: {said}."


def plot(result: Result) -> Figure:
    from experiments.drawing import new_figure

    figure, (losses, ends, counters) = new_figure(
        13, 8.2, mosaic="AB;CC", caption=result.answer, width_ratios=[1, 1.1],
        height_ratios=[1.1, 1],
    )  # fmt: skip
    plot_losses(losses, result, _looks(), bands=("FP32", "FP8, loss × 256"))
    losses.set_yscale("log")
    plot_accuracy(ends, result, _looks())
    plot_exceptions(counters, result, _looks())
    return figure


def _looks() -> Looks:
    from experiments.drawing import BLUE, GREEN, GREY, ORANGE, PURPLE

    colors = (GREY, PURPLE, BLUE, ORANGE, GREEN)
    return {v.name: {"color": c, "linestyle": "-"} for v, c in zip(VARIANTS, colors, strict=True)}
