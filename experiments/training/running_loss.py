"""A reported loss can be a rounding artefact: the running total of a loop, kept in FP16.

Two of Graphcore's TensorFlow 1 scripts on half precision start their loop with a total in the
compute format and report total / batches. A total that has grown large takes in only what reaches
half of its spacing: small losses are lost, or counted as the next larger step. The scripts of this
project keep the total as published and print the binary32 one beside it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from fpsim import BINARY16, BINARY32, SR, Context
from ipu.experiments.lab.result import ELEMENTWISE, STOCHASTIC, Result, Row
from ipu.experiments.sums.accumulate import running_sums
from ipu.run.verdict import Effect, verdict

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

QUESTION = "Can a reported training loss be an artefact of the format it is summed in?"
BUDGET = 15
DEFAULT = False

BATCHES = 1875
#: Constant losses whose reports were worked out by hand: loss and batches.
CASES = ((0.4, 1875), (0.3, 1875), (2.3, 1562), (0.9, 1562))
SHOWN = (0.3, 0.4, 2.3)
EVERY = 5
#: A report this far off, relative, is wrong in the digits that people compare.
ARTEFACT = 0.01


def run(quick: bool, seed: int) -> Result:
    losses = np.linspace(0.02, 3.0, 38 if quick else 299).round(2)
    rows: list[Row] = []
    for name, context in _contexts(seed).items():
        totals = _totals(context, losses, BATCHES, name)
        rows += [
            {"part": "reported", "total": name, "loss": float(loss), "reported": float(r)}
            for loss, r in zip(losses, totals[-1] / BATCHES, strict=True)
        ]
        shown = _totals(context, np.array(SHOWN), BATCHES, name)
        rows += [
            {"part": "path", "total": name, "loss": loss, "batch": n, "reported": float(x)}
            for n in range(EVERY, BATCHES + 1, EVERY)
            for loss, x in zip(SHOWN, shown[n - 1] / n, strict=True)
        ]
    for loss, batches in CASES:
        total = float(_totals(Context(BINARY16), np.array([loss]), batches, "cases")[-1, 0])
        rows.append({"part": "case", "loss": loss, "batches": batches,
                     "reported": total / batches})
    parameters = {"batches": BATCHES, "losses": f"{losses[0]} … {losses[-1]}, constant"}
    return Result(rows, _answer(rows), "total=f16|f32, rounding=RNE|SR", parameters,
                  (ELEMENTWISE, STOCHASTIC))


def _contexts(seed: int) -> dict[str, Context]:
    return {
        "FP16": Context(BINARY16),
        "FP16 + SR": Context(BINARY16, rounding=SR(), seed=seed),
        "FP32": Context(BINARY32),
    }


def _totals(
    context: Context, losses: NDArray[np.float64], batches: int, label: str
) -> NDArray[np.float64]:
    """(batches, losses): the running totals; each loss is a value of the total's format."""
    totals = running_sums(context, losses, batches, f"total in {label}")
    return np.array([total.astype(np.float64) for _, total in totals])


def _answer(rows: list[Row]) -> str:
    table = Result(rows, "", "")
    (case,) = table.select(part="case", loss=0.4)
    (low,) = table.select(part="case", loss=0.3)
    off = {
        name: np.abs(table.column("reported", part="reported", total=name)
                     / table.column("loss", part="reported", total=name) - 1)
        for name in ("FP16", "FP16 + SR", "FP32")
    }
    worst = Effect(float(off["FP16"].max()))  # exact: nothing is drawn in FP16 to nearest
    opening = verdict(
        worst.is_above(ARTEFACT), not worst.is_above(ARTEFACT), needs="other constant losses"
    )
    return (
        f"{opening} Over {BATCHES} batches a constant loss of 0.4 is reported as "
        f"{case['reported']:.3f} and one of 0.3 as {low['reported']:.3f} when the total is FP16; "
        f"over losses up to 3 the report is off by up to {off['FP16'].max():.0%}, with stochastic "
        f"rounding by {off['FP16 + SR'].max():.1%}, with an FP32 total by {off['FP32'].max():.0e}."
    )


def plot(result: Result) -> Figure:
    from ipu.run.pages.drawing import new_figure

    figure, (reported, paths) = new_figure(11, 4.6, mosaic="AB")
    _plot_reported(reported, result)
    _plot_paths(paths, result)
    return figure


def _looks() -> dict[str, str]:
    from ipu.run.pages import drawing

    return {"FP16": drawing.BLUE, "FP16 + SR": drawing.GREEN, "FP32": drawing.GREY}


def _plot_reported(axes: Axes, result: Result) -> None:
    from ipu.run.pages.drawing import THEORY

    for name, color in _looks().items():
        loss = result.column("loss", part="reported", total=name)
        ratio = result.column("reported", part="reported", total=name) / loss
        axes.plot(loss, ratio, color=color, label=f"total in {name}", linewidth=1.1)
    axes.axhline(1.0, **THEORY)
    axes.set(title=f"Reported loss after {BATCHES} batches", xlabel="constant loss of each batch",
             ylabel="reported / true loss", xlim=(0, 3))
    axes.legend(fontsize=9)


def _plot_paths(axes: Axes, result: Result) -> None:
    for name, color in _looks().items():
        for loss in SHOWN:
            n = result.column("batch", part="path", total=name, loss=loss)
            ratio = result.column("reported", part="path", total=name, loss=loss) / loss
            axes.plot(n, ratio, color=color, linewidth=1.1)
            if name == "FP16":
                axes.annotate(f"loss {loss:g}", (n[-1], ratio[-1]), (4, -3), fontsize=9,
                              textcoords="offset points", annotation_clip=False)
    axes.set(title="As the epoch goes on", xlabel="batches so far", xlim=(0, BATCHES),
             ylabel="reported / true loss")
