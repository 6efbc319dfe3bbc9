"""Three ways to keep small updates from being lost, over learning rates.

The same network, batches and epochs of plain gradient descent. A parameter in FP16 that is updated
to nearest takes no step below half its spacing; with stochastic rounding it takes the right step on
average; in FP32, from which FP16 copies are cast for each batch, it takes nearly every step. What
has been learnt is the loss that was lost on the training digits, looked at by an FP32 machine, as a
share of what FP32 training gains at the same rate.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from fpsim import BINARY32
from ipu.experiments.lab.judged import declared, judged_text
from ipu.experiments.lab.machine import units_of
from ipu.experiments.lab.processes import in_processes
from ipu.experiments.lab.progress import progress
from ipu.experiments.lab.result import Collected, Result, Row, UnitUsed
from ipu.experiments.lab.variants import Variant, Watch, described
from ipu.experiments.training import digits
from ipu.experiments.training.digit_runs import BATCH, NETWORK, train
from ipu.learn.optim import SGD
from ipu.learn.policy import FP16, FP32, MIXED
from ipu.learn.train import Trainer
from ipu.run.endpoints import PROGRESS, Outcome
from ipu.run.judging import Judged, judge

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

QUESTION = "Which way of updating parameters still learns when the learning rate is small?"
BUDGET = 130
DEFAULT = False

VARIANTS = (
    Variant("FP32", FP32),
    Variant("FP16 parameters", FP16),
    Variant("FP16 parameters + SR", FP16, stochastic=True),
    Variant("FP32 parameters, FP16 compute", MIXED),
)
RATES = (0.1, 0.03, 0.01, 0.003, 0.001, 3e-4, 1e-4, 3e-5, 1e-5)
EPOCHS, SEEDS = 5, 5
#: The loss after a training counts as its last ones, of which the endpoint is the mean.
ENDS = 3


class UpdateRun(NamedTuple):
    """One training; `steps` cuts its epochs short."""

    variant: int
    rate: float
    seed: int
    epochs: int
    steps: int | None = None


def run(quick: bool, seed: int) -> Result:
    rates, epochs, seeds = ((0.03, 1e-4), 1, 1) if quick else (RATES, EPOCHS, SEEDS)
    for v in progress(range(len(VARIANTS)), "kernels"):
        _train(UpdateRun(v, rates[0], seed, 1, 2))
    jobs = [
        UpdateRun(v, rate, s, epochs)
        for s in range(seed, seed + seeds)
        for rate in rates
        for v in range(len(VARIANTS))
    ]
    collected = Collected()
    for job, (row, units) in zip(jobs, in_processes(_train, jobs, "trainings"), strict=True):
        collected.add([row], units, method=VARIANTS[job.variant].name, rate=job.rate, seed=job.seed)
    parameters = {"network": NETWORK, "optimizer": "SGD, no momentum", "batch": BATCH,
                  "epochs": epochs, "seeds": list(range(seed, seed + seeds)),
                  "declared": declared(seeds, PROGRESS)}
    return Result(
        collected.rows, _answer(collected.rows), described(VARIANTS), parameters, collected.units
    )


def _train(job: UpdateRun) -> tuple[Row, tuple[UnitUsed, ...]]:
    variant, watch = VARIANTS[job.variant], Watch()
    trainer, _, accuracy = train(
        variant, SGD(job.rate), job.seed, job.epochs, steps=job.steps, observe=watch
    )
    before = loss_of(train(variant, SGD(job.rate), job.seed, 0).trainer, job.seed)
    after = loss_of(trainer, job.seed)
    row: Row = {
        "accuracy": accuracy, "before": before, "after": after, "gain": before - after,
        "lost": watch.without_effect,
    }
    return row, units_of(trainer.device)


def loss_of(trainer: Trainer, seed: int) -> float:
    """Mean loss over the training digits of these parameters on an FP32 machine."""
    data = digits.load()
    learn, _ = data.split(seed)
    judge = Trainer(digits.network, SGD(1.0))
    judge.forward(data.images[learn[:1]])
    for name, variable in judge.variables.items():
        variable.assign(judge.device.from_host(trainer.variables[name].array.carrier, BINARY32))
    return float(judge.loss(data.images[learn], data.labels[learn]).array)


def gained(result: Result, method: str, rate: float) -> np.ndarray:
    """Loss lost, as a share of what FP32 loses at the same rate; one number per seed."""
    reference = result.column("gain", method=VARIANTS[0].name, rate=rate)
    return np.asarray(result.column("gain", method=method, rate=rate) / reference)


def judged_at(result: Result, rate: float) -> dict[str, Judged]:
    """Each way beside FP32 at this rate, by the share of FP32's progress that is lost."""
    first, *others = (
        [
            Outcome([float(str(row["before"])), *[float(str(row["after"]))] * ENDS])
            for row in result.select(method=variant.name, rate=rate)
        ]
        for variant in VARIANTS
    )
    return {
        variant.name: judge(PROGRESS, outcomes, first, reference=VARIANTS[0].name)
        for variant, outcomes in zip(VARIANTS[1:], others, strict=True)
    }


def _answer(rows: list[Row]) -> str:
    table = Result(rows, "", "")
    rate = min(float(str(row["rate"])) for row in rows if float(str(row["rate"])) >= 1e-4)
    lost = float(table.column("lost", method=VARIANTS[1].name, rate=rate).mean())
    judged = judged_at(table, rate)
    told = "; ".join(
        judged_text(name, one, "of FP32's progress") for name, one in judged.items()
    )
    return (
        f"At a learning rate of {rate:g} plain FP16 parameters ignore {lost:.0%} of their updates. "
        f"Beside FP32 at this rate: {told}."
    )


def plot(result: Result) -> Figure:
    from ipu.run.pages.drawing import BLUE, GREEN, GREY, PURPLE, new_figure

    figure, (gains, lost) = new_figure(11, 4.6, mosaic="AB")
    rates = sorted({float(str(row["rate"])) for row in result.rows})
    # The first lines are the widest, so that coinciding ones are all seen.
    looks = zip((GREY, BLUE, GREEN, PURPLE), (4.5, 3.0, 2.2, 1.4), strict=True)
    for variant, (color, width) in zip(VARIANTS, looks, strict=True):
        name, look = variant.name, {"color": color, "linewidth": width, "label": variant.name}
        _line(gains, rates, [gained(result, name, rate) for rate in rates], look)
        _line(lost, rates, [result.column("lost", method=name, rate=rate) for rate in rates], look)
    gains.set(title="Learnt beside FP32; one point per seed", xlabel="learning rate",
              ylabel="loss taken off (% of what FP32 takes off)", ylim=(-15, 118))
    lost.set(title="Updates without effect", xlabel="learning rate", ylim=(-3, 103),
             ylabel="share of the updates (%)")
    gains.legend(fontsize=9, loc="lower right")
    return figure


def _line(axes: Axes, rates: list[float], by_rate: list[np.ndarray], look: dict[str, Any]) -> None:
    """Shares in %: the mean over the seeds as a line, each seed as a point."""
    axes.semilogx(rates, [100 * values.mean() for values in by_rate], **look)
    for rate, values in zip(rates, by_rate, strict=True):
        axes.plot([rate] * values.size, 100 * values, "o", color=look["color"],
                  markersize=look["linewidth"] + 2, alpha=0.7)
