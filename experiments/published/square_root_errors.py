"""Errors of stochastic rounding grow as the root of n, those to nearest as n."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from fpsim import BFLOAT16, BINARY16, BINARY32, Context, Format
from fpsim.chop import MatlabRandom
from ipu.experiments.lab.progress import progress
from ipu.experiments.lab.result import ELEMENTWISE, STOCHASTIC, Result, Row
from ipu.experiments.published.claim import Claim, published, same_digits, tables, within
from ipu.experiments.sums.exact import fitted_slope, inner_products, logarithms
from ipu.run.verdict import CONFIDENCE, Effect

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["plot", "run", "tables"]

QUESTION = "Do errors of stochastic rounding grow as the root of n?"
BUDGET = 60
DEFAULT = False

_SURVEY = (
    "M. Croci and others, Stochastic rounding: implementation, error analysis and applications, "
    "R. Soc. Open Sci. 9 (2022); program test_matvec.m of github.com/"
    "north-numerical-computing/stochastic-rounding-survey-experiments"
)
_SETUP = (
    "rng(1) for the data; A = rand(100, n) / 1000, x = rand(n, 1), 17 of 20 sizes, 10 to 1.6e5, "
    "BF16 and FP16; every product and sum rounded; the largest |error| / (|A||x|) of 100 rows, "
    "its mean over 10 runs (our random bits, seed 0)"
)
CLAIMS = [
    Claim("root of n", "With stochastic rounding the error grows as the square root of n.", _SURVEY,
          f"{_SETUP}; the slope on logarithmic axes for n from 30 to 4/u, with its 95 % interval"),
    Claim("nearest", "To nearest it grows faster: in proportion to n until sums stand still.",
          _SURVEY, f"{_SETUP}; the slope between the last error below 2u and the first above 0.2, "
          "where sums stand still",
          missing="the stored data of the figure; the range of the slope is ours"),
    Claim("bound", "The probability that an error exceeds sqrt(((1 + u^2)^n - 1) / 0.1), with "
          "u = 2^(1-p), is at most 10 %.",
          "E.-M. El Arar and others, Stochastic rounding variance and probabilistic bounds: a new "
          "approach, SIAM J. Sci. Comput. 45 (2023)",
          f"{_SETUP}; all rows and runs of a size, upper end of the 99 % interval"),
    Claim("chance", "pi is rounded up to FP32 with probability 0.6333222836256027.",
          "documentation of github.com/milankl/StochasticRounding.jl", "distance of binary64's pi "
          "from the number of FP32 below it, over their spacing"),
]
FORMATS = {"BF16": BFLOAT16, "FP16": BINARY16}
ROWS, RUNS, SEED, PART, SHARE = 100, 10, 1, 1 << 13, 0.1
#: Shorter sums have errors of a few roundings. In longer ones (in units of 1/u) most addends are
#: below half an ulp: the variance of a rounding is then theirs times an ulp, and the error stays
#: near the root of 2u, whatever n.
FIRST, LAST = 30, 4
SIZES = tuple(int(n) for n in np.round(np.logspace(1, 6, 20)))


Wide = NDArray[np.float64]


def _product(context: Context, a: Wide, x: Wide) -> Wide:
    """a x, terms in order; the sum so far is the first term of the next part."""
    total = context.sum(context.array(a[:, :PART] * x[:PART]), axis=1)
    for k in range(PART, a.shape[1], PART):
        terms = context.array(a[:, k : k + PART] * x[k : k + PART])
        joined = context.zeros((len(a), terms.shape[1] + 1))
        joined[:, 0], joined[:, 1:] = total, terms
        total = context.sum(joined, axis=1)
    return np.asarray(total.values, np.float64)


def _errors(
    fmt: Format, a: NDArray[np.float64], x: NDArray[np.float64], run: int
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Of every row: to nearest (1, ROWS) and stochastically (RUNS, ROWS)."""
    exact, size = (sums[:, 0] for sums in inner_products(a, x[:, None]))
    nearest = np.abs(_product(Context(fmt), a, x) - exact) / size
    random = Context(fmt, rounding="SR", seed=run)
    return nearest, np.array([np.abs(_product(random, a, x) - exact) / size for _ in range(RUNS)])


def _slope(n: NDArray[np.float64], error: NDArray[np.float64]) -> Effect:
    """Of the error on logarithmic axes, with its interval."""
    from scipy.stats import t

    rise, deviation = fitted_slope(logarithms(n), logarithms(error))
    return Effect(rise, float(t.ppf((1 + CONFIDENCE) / 2, n.size - 2)) * deviation)


def _bound(fmt: Format, n: int) -> float:
    u = 2.0 ** (1 - fmt.precision)
    return math.sqrt(math.expm1(n * math.log1p(u * u)) / SHARE)


def run(quick: bool, seed: int) -> Result:
    from scipy.stats import beta

    sizes = SIZES[: 13 if quick else 17]
    random, rows = MatlabRandom(SEED), list[Row]()
    for name, fmt in FORMATS.items():
        worst = 0.0
        for n in progress(sizes, name, len(sizes)):
            a, x = 1e-3 * random.rand(ROWS, n), random.rand(n, 1)[:, 0]
            nearest, stochastic = _errors(fmt, a, x, seed)
            rows.append({"row": "error", "format": name, "curve": "to nearest", "n": n,
                         "error": float(nearest.max())})
            rows.append({"row": "error", "format": name, "curve": "stochastic", "n": n,
                         "error": float(stochastic.max(1).mean())})
            over = int((stochastic > _bound(fmt, n)).sum())
            worst = max(worst, float(beta.ppf(0.99, over + 1, stochastic.size - over)))
        rows.append(within("bound", f"share above the bound, {name}", "at most 0.1", -1.0, SHARE,
                           Effect(worst)))
        rows += _slopes(name, fmt, rows)
    below, above = (float(x.values) for x in (
        Context(BINARY32, rounding=mode).array(math.pi) for mode in ("RTN", "RTP")))
    rows.append(same_digits("chance", "probability", "0.6333222836256027",
                            (math.pi - below) / (above - below)))
    slopes = [r["slope"] for r in rows if r.get("row") == "slope" and r["curve"] == "stochastic"]
    sentence = (
        f"Slopes of stochastic rounding: {slopes[0]:.2f} in BF16 and {slopes[1]:.2f} in FP16, as "
        "long as addends reach half an ulp; from 4/u terms on the error hardly grows."
    )
    return published(CLAIMS, rows, sentence, "c=bf16|f16, rounding=RNE|SR",
                     (ELEMENTWISE, STOCHASTIC))


def _slopes(name: str, fmt: Format, rows: list[Row]) -> list[Row]:
    """How both errors of a format grow."""
    n, stochastic, nearest = (
        np.array([float(str(r[column])) for r in rows if r.get("format") == name
                  and r.get("curve") == curve and r["row"] == "error"])
        for column, curve in (("n", "stochastic"), ("error", "stochastic"), ("error", "to nearest"))
    )
    growing = (nearest > 2 * fmt.eps) & (nearest < 0.2)
    between = (n >= FIRST) & (n <= LAST * 2 / fmt.eps)
    effects = {
        "stochastic": ("root of n", "1/2", 0.4, 0.6, _slope(n[between], stochastic[between]))
    }
    if growing.sum() > 2:
        effects["to nearest"] = ("nearest", "1", 0.85, 1.15, _slope(n[growing], nearest[growing]))
    shown: list[Row] = []
    for curve, (part, text, low, high, effect) in effects.items():
        shown.append(within(part, f"slope, {name}", text, low, high, effect))
        shown.append({"row": "slope", "format": name, "curve": curve, "slope": effect.value})
    return shown


def plot(result: Result) -> Figure:
    from ipu.run.pages.drawing import BLUE, GREEN, THEORY, new_figure

    figure, panels = new_figure(11, 4, mosaic="AB")
    for axes, (name, fmt) in zip(panels, FORMATS.items(), strict=True):
        for curve, color in (("to nearest", BLUE), ("stochastic", GREEN)):
            where = {"row": "error", "format": name, "curve": curve}
            n = result.column("n", **where)
            axes.loglog(n, result.column("error", **where), "o-", color=color, label=curve)
        axes.loglog(n, np.sqrt(n) * fmt.eps / 2, label="√n u", **THEORY)
        axes.set(title=name, xlabel="n", ylabel="largest error / (|A||x|)")
        axes.legend(fontsize=9)
    return figure
