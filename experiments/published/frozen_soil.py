"""Heat in soil: single precision stops diffusing, after Dawson, Düben, MacLeod and Palmer."""

from __future__ import annotations

import math
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from fpsim import BINARY32, BINARY64, Array, Context
from fpsim.iterate import Iteration
from ipu.experiments.lab.progress import progress
from ipu.experiments.lab.result import ELEMENTWISE, STOCHASTIC, Result, Row
from ipu.experiments.published.claim import Claim, equal, published, tables, within
from ipu.run.verdict import Effect

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["plot", "run", "tables"]

QUESTION = "When does heat stop moving through soil in single precision?"
BUDGET = 60
DEFAULT = False

_SOURCE = (
    "program and README of github.com/eapax/HeatSolver.jl, after A. Dawson and others, Reliable "
    "low precision simulations in land surface models, Climate Dynamics 51 (2018)"
)
_SETUP = (
    "61 points 1 m apart, steps of 1800 s, diffusivity 7e-7 m²/s, 273.15 K, 280 K at the surface, "
    "no flow at the bottom; forward Euler, centred differences"
)
CLAIMS = [
    Claim("single precision", '"Heat does not diffuse effectively in single precision" with a step '
          "that small.", _SOURCE,
          f"{_SETUP}; in FP32 to nearest until a step changes nothing, and in FP64 for 60 years"),
    Claim("stochastic rounding", '"The effects of rounding error here can be mitigated by … a '
          'stochastic rounding scheme."', _SOURCE,
          f"{_SETUP}; 16 columns in FP32 with stochastic rounding, seed 0, and FP64, as long as "
          "FP32 to nearest moves; the mean of the columns lies within 3 standard errors or 0.01 K"),
]
POINTS, STEP, DIFFUSIVITY = 61, 1800.0, 7e-7
COLD, WARM, YEARS = 273.15, 280.0, 60
LANES, DEPTHS = 16, (5, 15, 30, 60)


def _start(context: Context, lanes: int = 1) -> Array:
    start = np.full((lanes, POINTS), COLD)
    start[:, 0] = WARM
    return context.array(start)


def _rate(context: Context) -> Array:
    return context.array(STEP) * context.array(DIFFUSIVITY)


def _step(t: Array, rate: Array) -> Array:
    """The temperatures half an hour later."""
    bend = (t[:, 2:] - 2 * t[:, 1:-1]) + t[:, :-2]
    flow = -t[:, -1:] + t[:, -2:-1]
    after = t.copy()
    after[:, 1:] = t[:, 1:] + rate * np.concatenate([bend, flow], axis=1)
    return after


def _run(context: Context, steps: int, lanes: int = 1) -> Iteration:
    """So many steps, and the one after which nothing changes."""
    return context.iterate(partial(_step, rate=_rate(context)), _start(context, lanes), steps)


def _native(steps: int) -> NDArray[np.float64]:
    """The same in binary64 by numpy, which rounds as that context does."""
    t, rate = np.array(_start(Context(BINARY64)).values[0]), STEP * DIFFUSIVITY
    change = np.empty(POINTS - 1)
    for _ in progress(range(steps), "binary64", steps):
        change[:-1] = (t[2:] - 2 * t[1:-1]) + t[:-2]
        change[-1] = -t[-1] + t[-2]
        t[1:] += rate * change
    return t


def run(quick: bool, seed: int) -> Result:
    whole = int(YEARS * 365 * 86_400 / STEP)
    most, steps = (2_000, 2_000) if quick else (whole, whole)
    single = Context(BINARY32)
    stopped = _run(single, most)
    nearest, still = stopped.x, most if stopped.fixed is None else stopped.fixed
    end, reference = _native(steps), _native(still)
    random = Context(BINARY32, rounding="SR", seed=seed)
    columns = np.asarray(_run(random, still, LANES).x.values, np.float64)
    mean, error = columns.mean(0), columns.std(0, ddof=1) / math.sqrt(LANES)
    rows: list[Row] = []
    if not quick:
        rows.append(equal("single precision", "stands still before 60 years", True, still < whole))
        for depth in DEPTHS:
            lost = float(end[depth] - nearest.values[0, depth])
            rows.append(within("single precision", f"kelvin missing after 60 years, {depth} m",
                               "heat is missing", 1.0, 10.0, Effect(lost)))
    for depth in DEPTHS:
        allowed = max(3 * float(error[depth]), 0.01)
        off = float(mean[depth] - reference[depth])
        rows.append(within("stochastic rounding", f"error of the mean at {depth} m, kelvin",
                           "mitigated", -allowed, allowed, Effect(off)))
    profiles = {"FP32 to nearest": nearest.values[0], "FP64, 60 years": end,
                "FP64 at the same time": reference, "FP32 stochastic at the same time": mean}
    rows += [{"row": "profile", "curve": name, "depth": i, "kelvin": float(value)}
             for name, values in profiles.items() for i, value in enumerate(values)]
    shown = "/".join(f"{float(nearest.values[0, d]):.3f}" for d in DEPTHS)
    sentence = (
        f"After {still} of {whole} steps FP32 to nearest {'is' if quick else 'stands still'} at "
        f"{shown} K in {'/'.join(map(str, DEPTHS))} m."
    )
    return published(CLAIMS, rows, sentence, "c=f32|f64, rounding=RNE|SR",
                     (ELEMENTWISE, STOCHASTIC), steps=still, steps_of_60_years=whole)


def plot(result: Result) -> Figure:
    from ipu.run.pages.drawing import BLUE, GREEN, ORANGE, THEORY, new_figure

    figure, (axes,) = new_figure(6, 4.5, mosaic="A")
    looks = {"FP32 to nearest": {"color": BLUE}, "FP64, 60 years": THEORY,
             "FP64 at the same time": {"color": GREEN},
             "FP32 stochastic at the same time": {"color": ORANGE, "linestyle": ":"}}
    for name, look in looks.items():
        depth, kelvin = (result.column(c, row="profile", curve=name) for c in ("depth", "kelvin"))
        axes.plot(kelvin, depth, label=name, **look)
    axes.invert_yaxis()
    axes.set(title="Soil under a warm surface", xlabel="temperature, K", ylabel="depth, m")
    axes.legend(fontsize=9)
    return figure
