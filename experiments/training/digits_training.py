"""Digits learnt in FP32, in FP16 to nearest and stochastically, and with FP32 parameters.

At a usual learning rate the ways are judged beside FP32. Then the rate is small on purpose, as at
the end of a long training: a single update is smaller than half the distance between neighbouring
FP16 values of most weights, and rounding to nearest swallows it. FP32 itself is underfit there,
which is judged too. Every matrix product and every update runs through the simulated machine.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ipu.experiments.lab.judged import declared, judged_text, judged_ways, mean_text, opening
from ipu.experiments.lab.machine import units_of
from ipu.experiments.lab.processes import in_processes
from ipu.experiments.lab.progress import progress
from ipu.experiments.lab.result import Collected, Result, Row, Table, UnitUsed
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
from ipu.run.judging import WORSE, Judged

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

QUESTION = "Does stochastic rounding rescue training in pure FP16?"
BUDGET = 100
DEFAULT = True

RATE, MOMENTUM, SCALE = 3e-4, 0.9, 256.0
EPOCHS, SEEDS = 40, 5
#: A rate at which FP32 learns the digits, its epochs and seeds.
USUAL_RATE, USUAL_EPOCHS, USUAL_SEEDS = 0.03, 12, 8

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
#: Variants of the usual rate, by their numbers, and what is added to their names.
AT_USUAL, SUFFIX = (0, 1, 3), f", rate {USUAL_RATE:g}"


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
    usual_seeds = range(seed, seed + (seeds if quick else USUAL_SEEDS))
    jobs += [
        DigitsRun(v, s, min(epochs, USUAL_EPOCHS), False, USUAL_RATE)
        for s in usual_seeds for v in AT_USUAL
    ]
    collected = Collected()
    for number, (job, (rows, units)) in enumerate(
        zip(jobs, in_processes(_train, jobs, "trainings"), strict=True)
    ):
        suffix = SUFFIX if number >= seeds * len(VARIANTS) else ""
        collected.add(rows, units, policy=VARIANTS[job.variant].name + suffix, seed=job.seed)
    parameters = {
        "network": NETWORK, "learning rate": rate, "momentum": MOMENTUM,
        "batch": BATCH, "epochs": epochs, "seeds": list(first), "loss scale": SCALE,
        "test digits": digits.HELD_BACK, "declared": declared(seeds),
        "usual rate": USUAL_RATE, "its epochs": min(epochs, USUAL_EPOCHS),
        "its seeds": list(usual_seeds), "declared there": declared(len(usual_seeds)),
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


def at_usual_rate(rows: list[Row]) -> dict[str, Judged]:
    """FP16 and FP16 + SR beside FP32, where FP32 learns the digits."""
    first, *others = (VARIANTS[v].name + SUFFIX for v in AT_USUAL)
    return judged_ways(Result(rows, "", ""), others, first)


def rescue(rows: list[Row]) -> str:
    """Does SR rescue FP16 at the usual rate? There must be something to rescue."""
    half, stochastic = at_usual_rate(rows).values()
    if half.is_good:
        return "At a usual rate there is nothing to rescue."
    return opening(stochastic) if half.answer == WORSE else opening(half)


def _answer(rows: list[Row]) -> str:
    table = Result(rows, "", "")
    first, *others = (variant.name for variant in VARIANTS)
    usual = at_usual_rate(rows)
    judged = judged_ways(table, others, first)
    missing = {
        p: 100 * table.column("movement_lost", part="updates", policy=p, layer="hidden").mean()
        for p in ("FP16", "FP16 + SR")
    }
    fit = judged_ways(table, [first], first + SUFFIX)[first]
    fitted = "itself learns" if fit.is_good else (
        "itself is underfit" if fit.answer == WORSE else "itself may be underfit")
    reached, there = (
        mean_text(100 * table.column("accuracy", part="test", policy=name))
        for name in (first, first + SUFFIX)
    )
    shown = ("FP16", "FP16 + SR", "mixed", f"FP16, {_TIMES}")
    return (
        f"{rescue(rows)} At a rate of {USUAL_RATE:g} FP32 reaches {there} test accuracy; beside it "
        f"{_told(usual)}. At the small rate FP32 {fitted} ({reached}), and rounding to nearest "
        f"swallows {missing['FP16']:.0f} % of the hidden layer's movement, stochastic rounding "
        f"{missing['FP16 + SR']:z.1f} %; beside FP32 "
        f"{_told({name: judged[name] for name in shown})}."
    )


def _told(judged: dict[str, Judged]) -> str:
    return "; ".join(
        judged_text(name.removesuffix(SUFFIX), one) for name, one in judged.items())


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
