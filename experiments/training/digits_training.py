"""Digits learnt in FP32, in FP16 to nearest and stochastically, and with FP32 parameters.

The learning rate is small on purpose, as at the end of a long training: a single update is then
smaller than half the distance between neighbouring FP16 values of most weights, and rounding to
nearest swallows it. Every matrix product and every update runs through the simulated machine.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ipu.experiments.lab.machine import units_of
from ipu.experiments.lab.processes import in_processes
from ipu.experiments.lab.progress import progress
from ipu.experiments.lab.result import Collected, Result, Row, Table, UnitUsed, summary
from ipu.experiments.lab.training_panels import (
    Looks,
    exception_table,
    name_rows,
    plot_accuracy,
    plot_losses,
)
from ipu.experiments.lab.variants import Variant, Watch, described, exceptions
from ipu.experiments.training import digits
from ipu.experiments.training.digit_runs import BATCH, NETWORK, train
from ipu.learn.loss_scale import LEARNING_RATE, NoLossScale, StaticLossScale
from ipu.learn.optim import SGD
from ipu.learn.policy import FP16, FP32, MIXED
from ipu.run.verdict import over_seeds, verdict

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

QUESTION = "Does stochastic rounding rescue training in pure FP16?"
BUDGET = 95
DEFAULT = True

RATE, MOMENTUM, SCALE = 3e-4, 0.9, 256.0
EPOCHS, SEEDS = 40, 5
#: Share of the points that FP16 loses which must come back to be called a rescue.
RESCUED = 0.8


#: FP16 parameters: the learning rate is divided, as FP16 gradients would underflow again.
_LINEAR = StaticLossScale(SCALE, LEARNING_RATE)
_TIMES = f"loss × {SCALE:g}"
VARIANTS = (
    Variant("FP32", FP32),
    Variant("FP16", FP16),
    Variant(f"FP16, {_TIMES}", FP16, loss_scale=_LINEAR),
    Variant("FP16 + SR", FP16, stochastic=True),
    Variant(f"FP16 + SR, {_TIMES}", FP16, stochastic=True, loss_scale=_LINEAR),
    Variant("mixed", MIXED),
    Variant(f"mixed, {_TIMES}", MIXED, loss_scale=StaticLossScale(SCALE)),
)


class DigitsRun(NamedTuple):
    """One training; `steps` cuts its epochs short."""

    variant: int
    seed: int
    epochs: int
    counted: bool
    rate: float = RATE
    steps: int | None = None


def run(quick: bool, seed: int, *, rate: float = RATE, epochs: int = 0) -> Result:
    """Epochs of 0 are those of the experiment."""
    usual, seeds = (2, 2) if quick else (EPOCHS, SEEDS)
    if rate <= 0 or epochs < 0:
        raise ValueError(
            f"rate={rate}, epochs={epochs}: use a rate above 0 and epochs of 0 or more"
        )
    epochs = epochs or usual
    first = range(seed, seed + seeds)
    # Kernels are compiled here, once, before there are two processes.
    warm = [
        DigitsRun(v, seed, 1, count, rate, 2)
        for v in range(len(VARIANTS))
        for count in (True, False)
    ]
    for job in progress(warm, "kernels"):
        _train(job)
    jobs = [DigitsRun(v, s, epochs, s == seed, rate) for s in first for v in range(len(VARIANTS))]
    collected = Collected()
    for job, (rows, units) in zip(jobs, in_processes(_train, jobs, "trainings"), strict=True):
        collected.add(rows, units, policy=VARIANTS[job.variant].name, seed=job.seed)
    parameters = {
        "network": NETWORK, "learning rate": rate, "momentum": MOMENTUM,
        "batch": BATCH, "epochs": epochs, "seeds": list(first), "loss scale": SCALE,
        "test digits": digits.HELD_BACK,
    }
    return Result(
        collected.rows, _answer(collected.rows), described(VARIANTS), parameters, collected.units
    )


def _train(job: DigitsRun) -> tuple[list[Row], tuple[UnitUsed, ...]]:
    variant, watch = VARIANTS[job.variant], Watch()
    trainer, losses, accuracy = train(
        variant, SGD(job.rate, MOMENTUM), job.seed, job.epochs, steps=job.steps, observe=watch,
        counted=job.counted,
    )
    raised = list(exceptions(trainer)) if job.counted else []
    rows: list[Row] = [
        {"part": "loss", "epoch": e, "loss": float(x)} for e, x in enumerate(losses.mean(axis=1), 1)
    ]
    rows += [{"part": "test", "accuracy": accuracy}, *watch.rows(), *raised]
    return rows, units_of(trainer.device)


def _accuracies(rows: list[Row]) -> dict[str, NDArray[np.float64]]:
    """Test accuracy in per cent of each way of training, one number for each seed."""
    table = Result(rows, "", "")
    return {v.name: 100 * table.column("accuracy", part="test", policy=v.name) for v in VARIANTS}


def rescue(rows: list[Row]) -> str:
    """Does SR win back RESCUED of what FP16 loses? Paired over the seeds.

    Undecided where FP16 does not fall behind FP32 by more than the uncertainty: then there is
    nothing to rescue.
    """
    accuracies = _accuracies(rows)
    single, half, stochastic = accuracies["FP32"], accuracies["FP16"], accuracies["FP16 + SR"]
    share = np.mean(single) / 100
    # Of two accuracies on as many test digits, if their errors are independent. What SR wins back
    # is a share of the gap on the same digits, so the spread over the seeds is its own measure.
    least = 100 * math.sqrt(2 * share * (1 - share) / (digits.HELD_BACK * single.size))
    gap = over_seeds(single - half, least)
    over = over_seeds(stochastic - half - RESCUED * (single - half))
    lost = gap.is_above(0.0)
    needs = "more epochs and more seeds"
    return verdict(lost and over.is_above(0.0), lost and over.is_below(0.0), needs=needs)


def _answer(rows: list[Row]) -> str:
    accuracies = _accuracies(rows)
    points = {name: summary(values)[0] for name, values in accuracies.items()}
    spread = {name: summary(values)[1] for name, values in accuracies.items()}
    gap, gained = points["FP32"] - points["FP16"], points["FP16 + SR"] - points["FP16"]
    table = Result(rows, "", "")
    missing = {
        p: 100 * table.column("movement_lost", part="updates", policy=p, layer="hidden").mean()
        for p in ("FP16", "FP16 + SR")
    }
    return (
        f"{rescue(rows)} FP32 reaches {_points(points, spread, 'FP32')} test accuracy, pure FP16 "
        f"{_points(points, spread, 'FP16')}, as rounding to nearest swallows {missing['FP16']:.0f} "
        f"% of the hidden layer's movement; stochastic rounding loses {missing['FP16 + SR']:z.1f} "
        "% and "
        f"reaches {_points(points, spread, 'FP16 + SR')} ({gained:+.1f} of {gap:.1f} points), "
        f"FP32 parameters {_points(points, spread, 'mixed')}; a loss scale of {SCALE:g} alone "
        f"changes FP16 by {points[f'FP16, {_TIMES}'] - points['FP16']:+.1f} points."
    )


def _points(mean: dict[str, float], sd: dict[str, float], name: str) -> str:
    return f"{mean[name]:.1f} ± {sd[name]:.1f} %"


def plot(result: Result) -> Figure:
    from ipu.run.pages.drawing import new_figure

    figure, (curves, ends, updates) = new_figure(
        13, 8.6, mosaic="AB;CC", width_ratios=[1, 1.2], height_ratios=[1.1, 1]
    )
    looks = _looks()
    plot_losses(curves, result, looks, bands=("FP32", "FP16"))
    plot_accuracy(ends, result, looks)
    _plot_updates(updates, result, looks)
    return figure


def tables(result: Result) -> list[Table]:
    return [exception_table(result, [v.name for v in VARIANTS])]


def _looks() -> Looks:
    """Colour by arithmetic; with a loss scale dashed and hollow."""
    from ipu.run.pages import drawing

    base = {"FP32": drawing.GREY, "FP16": drawing.BLUE, "FP16 + SR": drawing.GREEN,
            "mixed": drawing.PURPLE}
    return {
        v.name: {
            "color": base[v.name.partition(",")[0]],
            "linestyle": "-" if isinstance(v.loss_scale, NoLossScale) else "--",
        }
        for v in VARIANTS
    }


def _plot_updates(axes: Axes, result: Result, looks: Looks) -> None:
    for place, (name, look) in enumerate(looks.items()):
        for k, layer in enumerate(digits.LAYERS):
            where = {"part": "updates", "policy": name, "layer": layer}
            height, strong = place + (k - 0.5) * 0.4, k == 0
            lost = 100 * result.column("movement_lost", **where).mean()
            still = 100 * result.column("without_effect", **where).mean()
            bar = f"movement lost, {layer} layer" if name == "FP16" else None
            tick = "updates without effect" if place + k == 0 else None
            alpha = 0.95 if strong else 0.5
            axes.barh(height, lost, 0.36, color=look["color"], alpha=alpha, label=bar)
            axes.plot([still], [height], "|", color="#222222", markersize=10, markeredgewidth=1.8,
                      label=tick)
    name_rows(axes, looks)
    axes.set(title="What swamping takes from the updates", xlim=(-2, 102),
             xlabel="share of the intended movement, and of updates (%)")
    axes.legend(fontsize=9, loc="lower right")
