"""How rounding errors of the heat equation grow as its steps shrink, after Croci and Giles."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from fpsim import Array, Context, Format
from ipu.experiments.lab.progress import progress
from ipu.experiments.lab.result import ELEMENTWISE, STOCHASTIC, Result, Row
from ipu.experiments.published.claim import Claim, published, tables, within
from ipu.experiments.sums.exact import fitted_slope, logarithms
from ipu.run.verdict import over_seeds

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["plot", "run", "tables"]

QUESTION = "With which power of the time step do rounding errors of the heat equation grow?"
BUDGET = 30
DEFAULT = False

_SOURCE = (
    "M. Croci and M. B. Giles, Effects of round-to-nearest and stochastic rounding in the "
    "numerical solution of the heat equation in low precision, IMA J. Numer. Anal. 43 (2023), "
    "abstract"
)
_SETUP = (
    "forward Euler and centred differences on 0 to 1, fixed ends, u + dt/h^2 (u'' h^2), dt/h^2 = "
    "1/4, to t = 1/4, 8 to 64 intervals; 32 starts a + b sin(pi x), a and b from 1 to 2; formats "
    "of 17 to 24 digits, seeds 0 to 2 of each; the largest over x of the rms over starts of the "
    "error against binary64; the mean of the slopes of log error over log dt, with its uncertainty"
)
CLAIMS = [
    Claim("nearest", "Rounding to nearest: the global error grows as u/dt, until the computation "
          "stagnates.", _SOURCE, f"{_SETUP}; -1 within 0.15"),
    Claim("stochastic", "Stochastic rounding: the error grows as u dt^(-1/4) in one dimension.",
          _SOURCE, f"{_SETUP}; -1/4 within 0.1"),
]
MODES = {"nearest": ("RNE", -1.0, 0.15), "stochastic": ("SR", -0.25, 0.1)}
RATIO, TIME, STARTS, SEEDS = 0.25, 0.25, 32, 3
INTERVALS, DIGITS = (8, 16, 32, 64), (17, 18, 19, 20, 21, 22, 23, 24)

Wide = NDArray[np.float64]


def _step(u: Array) -> Array:
    """The temperatures a step later; also of binary64's ndarrays."""
    after = u.copy()
    after[:, 1:-1] = u[:, 1:-1] + RATIO * ((u[:, 2:] - 2 * u[:, 1:-1]) + u[:, :-2])
    return after


def _error(digits: int, seed: int, mode: str, n: int) -> float:
    """The rounding error on n intervals, in units of the unit roundoff."""
    context = Context(Format.custom(8, digits), rounding=mode, seed=seed)
    random = np.random.default_rng([digits, seed])
    a, b = random.uniform(1, 2, (2, STARTS, 1))
    start = context.array(a + b * np.sin(np.pi * np.linspace(0, 1, n + 1)))
    steps = round(TIME / RATIO * n * n)
    exact = np.array(start.values, np.float64)
    for _ in range(steps):
        exact[:, 1:-1] += RATIO * ((exact[:, 2:] - 2 * exact[:, 1:-1]) + exact[:, :-2])
    end = context.iterate(_step, start, steps).x
    squares = (end.values - exact) ** 2
    return float(np.sqrt(squares.mean(0)).max()) * 2.0**digits


def _slope(errors: list[float], intervals: tuple[int, ...]) -> float:
    """Of log error over log dt, which falls as the square of the intervals."""
    steps = -2 * logarithms(np.array(intervals, np.float64))
    return fitted_slope(steps, logarithms(np.array(errors)))[0]


def run(quick: bool, seed: int) -> Result:
    intervals, formats = (INTERVALS[:3], DIGITS[::4]) if quick else (INTERVALS, DIGITS)
    series = [(digits, s) for digits in formats for s in range(1 if quick else SEEDS)]
    rows: list[Row] = []
    shown = []
    for part, (mode, slope, allowed) in MODES.items():
        slopes = []
        for digits, s in progress(series, part, len(series)):
            errors = [_error(digits, s, mode, n) for n in intervals]
            slopes.append(_slope(errors, intervals))
            rows += [{"row": "error", "curve": part, "digits": digits, "seed": s,
                      "step": RATIO / n**2, "error": error}
                     for n, error in zip(intervals, errors, strict=True)]
        mean = over_seeds(slopes)
        rows.append(within(part, "slope of the error over the step", f"{slope:g}",
                           slope - allowed, slope + allowed, mean))
        shown.append(f"{mean.value:.2f} ± {mean.uncertainty:.2f} ({part})")
    sentence = f"The error grows with the time step to the power {' and '.join(shown)}."
    return published(CLAIMS, rows, sentence, "c=custom, rounding=RNE|SR", (ELEMENTWISE, STOCHASTIC))


def plot(result: Result) -> Figure:
    from ipu.run.pages.drawing import BLUE, ORANGE, THEORY, new_figure

    figure, (axes,) = new_figure(6, 4.5, mosaic="A")
    for part, color in zip(MODES, (BLUE, ORANGE), strict=True):
        steps, errors = (result.column(c, row="error", curve=part) for c in ("step", "error"))
        places = np.unique(steps)
        axes.loglog(steps, errors, ".", color=color, alpha=0.5)
        means = [float(np.exp(np.log(errors[steps == s]).mean())) for s in places]
        axes.loglog(places, means, color=color, label=part)
        slope = MODES[part][1]
        axes.loglog(places, means[-1] * (places / places[-1]) ** slope, **THEORY)
    axes.set(title="Rounding errors of the heat equation",
             xlabel="time step (dashed: the published powers)", ylabel="rms error / unit roundoff")
    axes.legend(fontsize=9)
    return figure
