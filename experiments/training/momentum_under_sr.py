"""What stochastic rounding scatters, with and without momentum.

The same training in FP16 with stochastic rounding, again and again with other random bits: data,
first weights and batches are the same, so parameters differ by rounding alone. A step of size d
that is rounded to a spacing u leaves a variance of d·(u - d): large single steps scatter more than
their average would. Momentum averages the gradients of about 1/(1 - m) batches before it touches a
parameter. Plain descent gets the learning rate, momentum that times 1 - m: under a gradient that
stays the same, both would move as far.
"""

from __future__ import annotations

import math
from itertools import chain, groupby
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ipu.experiments.lab.machine import units_of
from ipu.experiments.lab.processes import in_processes
from ipu.experiments.lab.progress import progress
from ipu.experiments.lab.result import Collected, Result, Row, UnitUsed
from ipu.experiments.lab.variants import Variant
from ipu.experiments.training.digit_runs import BATCH, NETWORK, train
from ipu.learn.optim import SGD
from ipu.learn.policy import FP16, FP32
from ipu.run.verdict import CONFIDENCE, Effect, verdict

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

QUESTION = "Does momentum average out the noise of stochastic rounding?"
BUDGET = 120
DEFAULT = False

MOMENTUM = 0.9
METHODS = {"SGD": 0.0, "SGD with momentum": MOMENTUM}
RATES = (0.1, 0.03, 0.01, 0.003, 0.001, 3e-4)
EPOCHS, DRAWS = 4, 10
RATE_LABEL = f"learning rate of SGD (with momentum {1 - MOMENTUM:.2g} of it)"
STOCHASTIC, REFERENCE = Variant("FP16 + SR", FP16, stochastic=True), Variant("FP32", FP32)


class MomentumRun(NamedTuple):
    """One training; draw 0 is the FP32 reference."""

    method: str
    rate: float
    draw: int
    seed: int
    epochs: int


class MomentumOutcome(NamedTuple):
    """All parameters in the end, the loss of the last epoch, and the units."""

    weights: np.ndarray
    loss: float
    units: tuple[UnitUsed, ...]


def run(quick: bool, seed: int) -> Result:
    rates, epochs, draws = ((0.03, 0.001), 1, 3) if quick else (RATES, EPOCHS, DRAWS)
    for draw in progress(range(2), "kernels"):
        _train(MomentumRun("SGD with momentum", rates[0], draw, seed, 1))
    jobs = [MomentumRun(method, rate, draw, seed, epochs)
            for rate in rates for method in METHODS for draw in range(draws + 1)]
    collected = Collected()
    trained = zip(jobs, in_processes(_train, jobs, "trainings"), strict=True)
    for (method, rate), group in groupby(trained, key=lambda pair: pair[0][:2]):
        kind = [one for _, one in group]
        collected.add([_summary(kind)], chain(*(k.units for k in kind)), method=method, rate=rate)
    parameters = {"network": NETWORK, "momentum": MOMENTUM, "batch": BATCH, "epochs": epochs,
                  "trainings of each kind": draws, "seed": seed}
    return Result(
        collected.rows,
        _answer(collected.rows),
        f"{STOCHASTIC}; {REFERENCE}",
        parameters,
        collected.units,
    )


def _train(job: MomentumRun) -> MomentumOutcome:
    momentum = METHODS[job.method]
    trainer, losses, _ = train(
        STOCHASTIC if job.draw else REFERENCE, SGD(job.rate * (1 - momentum), momentum), job.seed,
        job.epochs, draws=job.draw,
    )
    weights = [v.array.values.reshape(-1) for v in trainer.variables.values()]
    return MomentumOutcome(
        np.concatenate(weights), float(losses[-1].mean()), units_of(trainer.device)
    )


def _summary(group: list[MomentumOutcome]) -> Row:
    """Spread of the parameters over the trainings, and their distance from the FP32 ones."""
    reference, *scattered = (one.weights.astype(np.float64) for one in group)
    every = np.stack(scattered)
    losses = [one.loss for one in group[1:]]
    return {
        "spread": float(np.sqrt(every.var(axis=0, ddof=1).mean())),
        "log_variance_error": jackknife(every),
        "trainings": len(every),
        "off": float(np.sqrt(((every.mean(axis=0) - reference) ** 2).mean())),
        "loss": float(np.mean(losses)),
        "loss_spread": float(np.std(losses, ddof=1)),
        "loss_fp32": group[0].loss,
    }


def jackknife(every: np.ndarray) -> float:
    """Standard error of the logarithm of the mean variance, each training left out in turn.

    Infinite for fewer than three trainings, of which two that are left show no spread of their own.
    """
    n = len(every)
    if n < 3:
        return math.inf
    left = [np.delete(every, i, axis=0).var(axis=0, ddof=1).mean() for i in range(n)]
    return float(np.sqrt((n - 1) * np.log(left).var()))


def effects(result: Result) -> list[Effect]:
    """By rate: the logarithm of what momentum divides the variance by, with its interval."""
    from scipy.stats import t

    rows = []
    for rate, factor in ratios(result):
        errors = [result.column("log_variance_error", method=m, rate=rate)[0] for m in METHODS]
        freedom = 2 * (result.column("trainings", rate=rate)[0] - 1)
        width = t.ppf((1 + CONFIDENCE) / 2, freedom) * math.hypot(*errors)
        rows.append(Effect(math.log(factor), float(width)))
    return rows


def ratios(result: Result) -> list[tuple[float, float]]:
    """Rates, and by what factor momentum makes the variance smaller."""
    pairs = []
    for rate in sorted({float(str(row["rate"])) for row in result.rows}):
        plain, averaged = (result.column("spread", method=m, rate=rate)[0] for m in METHODS)
        pairs.append((rate, float((plain / averaged) ** 2)))
    return pairs


def _answer(rows: list[Row]) -> str:
    by_factor = sorted((factor, rate) for rate, factor in ratios(Result(rows, "", "")))
    (smallest, here), (largest, there) = by_factor[0], by_factor[-1]
    measured = effects(Result(rows, "", ""))
    opening = verdict(
        all(effect.is_above(0.0) for effect in measured),
        all(effect.is_below(0.0) for effect in measured),
        needs="more trainings of each kind",
    )
    return (
        f"{opening} Momentum of {MOMENTUM:g} divides the variance that stochastic rounding gives "
        f"the parameters by {smallest:.2f} (at a learning rate of {here:g}) to {largest:.2f} (at "
        f"{there:g}); its own rate is {1 - MOMENTUM:.2g} of plain descent's."
    )


def plot(result: Result) -> Figure:
    from ipu.run.pages.drawing import BLUE, GREEN, new_figure

    figure, (spread, ratio) = new_figure(11, 4.6, mosaic="AB")
    for method, color in zip(METHODS, (BLUE, GREEN), strict=True):
        rates = result.column("rate", method=method)
        spread.loglog(rates, result.column("spread", method=method), "o-", color=color,
                      label=f"{method}: spread")
        spread.loglog(rates, result.column("off", method=method), "x:", color=color, linewidth=1,
                      label=f"{method}: mean − FP32")
    spread.set(title="Scatter of the parameters", xlabel=RATE_LABEL,
               ylabel="root mean square over parameters")
    spread.legend(fontsize=9)
    _plot_ratio(ratio, result)
    return figure


def _plot_ratio(axes: Axes, result: Result) -> None:
    from ipu.run.pages.drawing import GREEN, THEORY

    rates, factors = zip(*ratios(result), strict=True)
    axes.semilogx(rates, factors, "o-", color=GREEN)
    bound = (1 + MOMENTUM) / (1 - MOMENTUM)
    axes.axhline(np.sqrt(bound), **THEORY)
    axes.annotate("√((1+m)/(1−m)): steps that are only noise", (rates[0], np.sqrt(bound)), (0, 4),
                  fontsize=9, textcoords="offset points")
    axes.axhline(1.0, color="#888888", linewidth=0.8)
    axes.set(title="What momentum takes from the variance", xlabel=RATE_LABEL,
             ylabel="variance without / with momentum", ylim=(0, np.sqrt(bound) * 1.3))
