"""Scales that follow the largest magnitudes of earlier steps, when these grow or jump.

The scale of a step is known before the step: from the largest magnitude of the last 1024. Growth is
seen one step late, so the largest elements saturate; a single spike lowers it for 1024 steps.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from fpsim import E4M3FN, DelayedScale
from ipu.experiments.blocks.tensors import QUANTISERS
from ipu.experiments.lab.result import Result, Row

if TYPE_CHECKING:
    from matplotlib.figure import Figure

QUESTION = "How far behind is delayed scaling of FP8, and what does a spike cost?"
BUDGET = 5
DEFAULT = False

STEPS, SPIKE_AT, SPIKE = 1300, 100, 1000.0

#: Largest magnitude of a step.
SERIES: dict[str, Callable[[int], float]] = {
    "growth of 1 %": lambda t: 1.01**t,
    "a spike": lambda t: SPIKE if t == SPIKE_AT else 1.0,
    "an infinity": lambda t: np.inf if t == SPIKE_AT else 1.0 + t / 100,
}


def run(quick: bool, seed: int) -> Result:
    rows: list[Row] = []
    for name, amax in SERIES.items():
        state = DelayedScale()
        for t in range(200 if name != "a spike" else STEPS):
            top = amax(t)
            x = np.array([top, top / 2] if np.isfinite(top) else [np.inf, 1.0], np.float32)
            scale = state.scale
            _, state = state.quantize(x)
            rows.append({
                "series": name, "step": t, "amax": float(x[0]), "scale": scale,
                "saturated": bool(np.isfinite(top)) and top * scale > E4M3FN.max,
            })
    parameters = {"history": 1024, "element": "e4m3fn", "margin": 0}
    return Result(rows, _answer(rows), "rounding=RNE", parameters, (QUANTISERS,))


def _answer(rows: list[Row]) -> str:
    table = Result(rows, "", "")
    growth = [bool(row["saturated"]) for row in table.select(series="growth of 1 %")]
    spike = table.column("scale", series="a spike")
    low = int(np.sum(spike < 1))
    frozen = table.column("scale", series="an infinity")
    return (
        f"Magnitudes that grow by 1 % saturate in {sum(growth)} of {len(growth)} steps; one spike "
        f"of {SPIKE:g} leaves the scale at {spike[SPIKE_AT + 1]:.3f} for {low} steps, and "
        f"an infinity keeps it as it was ({frozen[SPIKE_AT]:.1f}) while the history holds it."
    )


def plot(result: Result) -> Figure:
    from ipu.run.pages.drawing import BLUE, ORANGE, new_figure

    figure, axes = new_figure(11, 4.2, mosaic="ABC")
    for panel, name in zip(axes, SERIES, strict=True):
        step = result.column("step", series=name)
        panel.plot(step, result.column("scale", series=name), color=BLUE, label="scale used")
        exact = 448 / result.column("amax", series=name)
        panel.plot(step, np.where(exact > 0, exact, np.nan), color=ORANGE, label="448 / amax",
                   linewidth=0.8)
        panel.set(title=name, xlabel="step", ylabel="scale", yscale="log")
        panel.legend(fontsize=8)
    return figure
