"""Gradients of many mini-batches in one accumulator: which format, and how they are averaged.

The gradients are FP16, as a backward pass leaves them: a mean that differs from entry to entry, and
noise of the same size from batch to batch. All ways aim at their mean; SUM is divided by the number
of mini-batches in the end, exactly. Two sizes: small gradients, whose share 1/G underflows, and
large ones, whose sum leaves the range of FP16 and saturates.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from fpsim import BINARY16, BINARY32
from fpsim.records.formats import Format
from ipu.experiments.lab.progress import progress
from ipu.experiments.lab.result import ELEMENTWISE, STOCHASTIC, Result, Row
from ipu.learn.accumulate import Accumulation, Reduction
from ipu.learn.variables import Variable
from ipu.machine import Device, FpCtl

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

QUESTION = "When do the gradients of many mini-batches need an FP32 accumulator?"
BUDGET = 60
DEFAULT = False

COUNTS = [2**e for e in range(13)]
SIZES = {"small gradients, about 1e-5": 1e-5, "large gradients, about 30": 30.0}

#: A mean that is off by more needs a wider accumulator.
TOLERATED = 0.01
#: Smaller relative errors are drawn here.
FLOOR = 1e-9


class AccumulatorWay(NamedTuple):
    """How the gradients are accumulated."""

    reduction: Reduction
    dtype: Format = BINARY16
    stochastic: bool = False


WAYS = {
    "SUM in FP16": AccumulatorWay(Reduction.SUM, BINARY16),
    "SUM in FP16 + SR": AccumulatorWay(Reduction.SUM, BINARY16, True),
    "MEAN in FP16": AccumulatorWay(Reduction.MEAN, BINARY16),
    "RUNNING_MEAN in FP16": AccumulatorWay(Reduction.RUNNING_MEAN, BINARY16),
    "MEAN in FP32": AccumulatorWay(Reduction.MEAN, BINARY32),
    "SUM in FP32": AccumulatorWay(Reduction.SUM, BINARY32),
}


def run(quick: bool, seed: int) -> Result:
    counts, entries = (COUNTS[:7], 50) if quick else (COUNTS, 400)
    rows: list[Row] = []
    for name, way in WAYS.items():
        for kind, size in SIZES.items():
            for count in progress(counts, f"{name}, {kind}"):
                error, saturated = _accumulate(way, size, count, entries, seed)
                rows.append({"way": name, "gradients": kind, "count": count, "error": error,
                             "saturated": saturated})
    parameters = {"entries": entries, "mini-batches": counts, "sizes": list(SIZES.values())}
    policy = "gradients f16, acc=f16|f32, rounding=RNE|SR"
    return Result(rows, _answer(rows), policy, parameters, (ELEMENTWISE, STOCHASTIC))


def gradients(size: float, entries: int, seed: int) -> Iterator[np.ndarray]:
    """One mini-batch after the other: mean and noise of the same size."""
    draw = np.random.default_rng([seed, round(size * 1e6)])
    mean = size * (1 + draw.random(entries))
    while True:
        yield mean + size * draw.standard_normal(entries)


def _accumulate(
    way: AccumulatorWay, size: float, count: int, entries: int, seed: int
) -> tuple[float, float]:
    """Root mean square of the relative error of the mean, and the share of saturated entries."""
    device = Device(control=FpCtl(esr=way.stochastic), seed=seed)
    variable = Variable(device.zeros(entries, BINARY16), device, "layer/weights")
    accumulator = Accumulation(count, way.reduction, way.dtype).start([variable])
    exact = np.zeros(entries)
    for _, values in zip(range(count), gradients(size, entries, seed), strict=False):
        gradient = device.from_host(values, BINARY16)
        exact += gradient.values  # multiples of 2**-24 below 2**29: no rounding in binary64
        accumulator = accumulator.add([(gradient, variable)])
    ((mean, _),) = accumulator.pairs
    saturated = float(np.mean(np.abs(mean.values) == BINARY16.max))
    total = mean.values * (1.0 if way.reduction is Reduction.SUM else count)
    return float(np.sqrt(((total / exact - 1) ** 2).mean())), saturated


def needed_from(result: Result, way: str, gradients: str) -> int | None:
    """The first number of mini-batches at which this way is off by more than TOLERATED."""
    rows = result.select(way=way, gradients=gradients)
    return next((int(str(r["count"])) for r in rows if float(str(r["error"])) > TOLERATED), None)


def _answer(rows: list[Row]) -> str:
    result = Result(rows, "", "")
    count = int(result.column("count").max())
    small, large = SIZES

    def from_on(way: str, gradients: str) -> str:
        first = needed_from(result, way, gradients)
        return f"from G = {first} on" if first else f"nowhere up to G = {count}"

    def off(way: str, gradients: str) -> float:
        rows = result.select(way=way, gradients=gradients, count=count)
        return float(str(rows[0]["error"]))

    full = result.select(way="SUM in FP16", gradients=large, count=count)[0]["saturated"]
    single = max(off("SUM in FP32", kind) for kind in SIZES)
    return (
        f"When the mean over G mini-batches may be off by {TOLERATED:.0%} at most: SUM in FP16 is "
        f"worse {from_on('SUM in FP16', small)} with small gradients and "
        f"{from_on('SUM in FP16', large)} with large ones, where {full:.0%} of the sums end at the "
        f"largest value; MEAN in FP16, whose shares underflow, "
        f"{from_on('MEAN in FP16', small)} with small ones. Over {count} small ones SUM in FP16 "
        f"is off by {off('SUM in FP16', small):.1%} ({off('SUM in FP16 + SR', small):.1%} with "
        f"stochastic rounding), RUNNING_MEAN by {off('RUNNING_MEAN in FP16', small):.1%}, SUM in "
        f"FP32 by {single:.1g} at most."
    )


def plot(result: Result) -> Figure:
    from ipu.run.pages.drawing import new_figure

    figure, axes = new_figure(13, 4.8, mosaic="AB", sharey=True)
    for panel, kind in zip(axes, SIZES, strict=True):
        _plot_kind(panel, result, kind)
    axes[0].set_ylabel("relative error of the mean, root mean square")
    axes[0].set_yticks([FLOOR, *10.0 ** np.arange(-8, 1)])
    axes[0].set_yticklabels(["exact", *(f"$10^{{{e}}}$" for e in range(-8, 1))])
    axes[1].tick_params(labelleft=True)
    axes[1].legend(fontsize=9, loc="upper left", bbox_to_anchor=(1.0, 1.0))
    return figure


def _plot_kind(axes: Axes, result: Result, kind: str) -> None:
    from ipu.run.pages.drawing import BLUE, GREEN, GREY, ORANGE, PURPLE, SKY, THEORY

    colors = (BLUE, GREEN, ORANGE, PURPLE, SKY, GREY)
    # The first lines are the widest, so that coinciding ones are all seen.
    for name, color, width in zip(WAYS, colors, np.linspace(5.0, 1.0, len(WAYS)), strict=True):
        counts = result.column("count", way=name, gradients=kind)
        error = np.maximum(result.column("error", way=name, gradients=kind), FLOOR)
        axes.loglog(counts, error, "o-", markersize=width + 1.5, color=color, linewidth=width,
                    label=name, base=2)
    axes.set_yscale("log", base=10)
    axes.axhline(BINARY16.eps / 2, label=r"$2^{-11}$, unit roundoff of FP16", **THEORY)
    axes.set(title=kind.capitalize(), xlabel="G, number of mini-batches", ylim=(FLOOR / 2, 3))
