"""Euler's method stagnates in low precision, after Higham and Pranesh."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from fpsim import BFLOAT16, BINARY16, BINARY32, Context
from ipu.experiments.lab.progress import progress
from ipu.experiments.lab.result import ELEMENTWISE, Result, Row
from ipu.experiments.published.claim import Claim, published, same_digits, tables

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["plot", "run", "tables"]

QUESTION = "From how many steps on does Euler's method stand still in FP16 and BF16?"
BUDGET = 30
DEFAULT = False

_SOURCE = (
    "N. J. Higham and S. Pranesh, Simulating low precision floating-point arithmetic, SIAM J. Sci. "
    "Comput. 41 (2019); program euler_exp.m and its stored results in github.com/SrikaraPranesh/"
    "LowPrecision_Simulation"
)
_SETUP = (
    "y' = -y on [0, 1], y(0) = 0.01 rounded to BF16 in every format as the program does; "
    "n = round(10^k) for 16 k from 1 to 5, h = fl(1/n), y = fl(y + fl(h (-y))) n times; the error "
    "against 0.01 / e"
)
CLAIMS = [
    Claim("FP16", "FP16 is accurate to 736 steps and stands still from 4642 on.", _SOURCE, _SETUP),
    Claim("FP16 without subnormals", "Without subnormals it stands still from 215 steps on.",
          _SOURCE, f"{_SETUP}; results that are tiny before they are rounded become 0"),
    Claim("BF16", "BF16 stands still from 398 steps on.", _SOURCE, _SETUP),
]
STEPS = tuple(int(n) for n in np.round(10 ** np.linspace(1, 5, 16)))
#: What is left where no step moves y.
STILL = "6.330971e-03"
PRINTED = {
    "FP16": {736: "3.333596e-06", **dict.fromkeys(STEPS[10:], STILL)},
    "FP16 without subnormals": {63: "1.530690e-04", **dict.fromkeys(STEPS[5:], STILL)},
    "BF16": dict.fromkeys(STEPS[6:], STILL),
}
CONTEXTS = {
    "FP16": Context(BINARY16),
    "FP16 without subnormals": Context(BINARY16, subnormals="flush_results", tininess="before"),
    "BF16": Context(BFLOAT16), "FP32": Context(BINARY32),
    "FP16, zero or normal": Context(BINARY16, subnormals="zero_or_normal"),
}
START = 0.01


def _errors(context: Context, start: float, steps: tuple[int, ...]) -> NDArray[np.float64]:
    """Errors at 1 for every number of steps, which run side by side."""
    h = context.array([1 / n for n in steps])
    y = context.full(len(steps), start)
    for first, n in enumerate(steps):
        done = steps[first - 1] if first else 0
        part, width = y[first:].copy(), h[first:]
        for _ in range(n - done):
            after = part + width * -part
            if np.array_equal(after.carrier, part.carrier):
                break  # and so it stays
            part = after
        y[first:] = part
    return np.abs(np.asarray(y.values, np.float64) - math.exp(-1.0) * START)


def run(quick: bool, seed: int) -> Result:
    steps = STEPS[: 8 if quick else None]
    start = float(Context(BFLOAT16).array(START))
    rows: list[Row] = []
    for name, context in progress(CONTEXTS.items(), "formats", len(CONTEXTS)):
        for n, error in zip(steps, _errors(context, start, steps), strict=True):
            rows.append({"row": "error", "curve": name, "n": n, "error": float(error)})
            if n in PRINTED.get(name, {}):
                rows.append(same_digits(name, f"n = {n}", PRINTED[name][n], float(error)))
    (twist,) = (r["error"] for r in rows
                if r.get("curve") == "FP16, zero or normal" and r["n"] == 63)
    sentence = (
        "Without subnormals FP16 stands still from 215 steps on. The stored numbers need flushing: "
        f"results rounded to zero or the smallest normal number give {twist:.6e} at n = 63."
    )
    return published(CLAIMS, rows, sentence, "c=bf16|f16|f32, rounding=RNE", (ELEMENTWISE,))


def plot(result: Result) -> Figure:
    from ipu.run.pages.drawing import BLUE, GREEN, GREY, ORANGE, RED, new_figure

    figure, (axes,) = new_figure(7, 4, mosaic="A")
    for name, color in zip(CONTEXTS, (BLUE, GREY, ORANGE, GREEN, RED), strict=True):
        where = {"row": "error", "curve": name}
        axes.loglog(result.column("n", **where), result.column("error", **where), "o-",
                    color=color, label=name, markersize=4)
    axes.set(title="Euler's method for y' = -y", xlabel="steps", ylabel="error at 1")
    axes.legend(fontsize=9)
    return figure
