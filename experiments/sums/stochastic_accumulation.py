"""Ten thousand additions of 0.0001 in FP16, to nearest and with stochastic rounding.

The sum of Graphcore's TensorFlow 1 tutorial, whose twenty hardware runs have mean 0.99903 and
standard deviation 0.01438. The constant is binary16's nearest to 0.0001, 839/2^23, so stochastic
rounding has the expectation 10 000 · 839/2^23 = 1.0001659, not 1.

The law of one lane is known exactly: a Markov chain on the values of binary16, in which each sum
moves to one of the two neighbours of sum + term with the probabilities of the distances. Its
standard deviation and its density stand beside the measured ones.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from fpsim import BINARY16, RNE, SR, Context
from ipu.experiments.lab.progress import progress
from ipu.experiments.lab.result import ELEMENTWISE, STOCHASTIC, Result, Row, summary
from ipu.experiments.sums.accumulate import running_sums
from ipu.run.verdict import Effect, verdict

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

QUESTION = "Does stochastic rounding rescue a sum of ten thousand small terms in FP16?"
BUDGET = 15
DEFAULT = True

TERM, ADDITIONS, EVERY = 0.0001, 10_000, 50
SHOWN = 20
BIN = 4 * 2.0**-11


def run(quick: bool, seed: int) -> Result:
    lanes = 200 if quick else 2_000
    nearest = Context(BINARY16, rounding=RNE)
    stochastic = Context(BINARY16, rounding=SR(), seed=seed)
    rows: list[Row] = _paths("RNE", nearest, 1)
    rows += _paths("SR", stochastic, lanes)
    law = exact_law(float(nearest.constant(TERM)), ADDITIONS)
    rows += [{"part": "law", "final": x, "probability": p} for x, p in law]
    mean, sd = summary(Result(rows, "", "").column("final", part="final", rounding="SR"))
    rows.append({"part": "summary", "rounding": "SR", "mean": mean, "sd": sd})
    parameters = {"term": TERM, "additions": ADDITIONS, "lanes": lanes, "drawn paths": SHOWN}
    policy = "c=f16, rounding=RNE|SR"
    return Result(rows, _answer(rows, lanes), policy, parameters, (ELEMENTWISE, STOCHASTIC))


def _paths(name: str, context: Context, lanes: int) -> list[Row]:
    """The first lanes every EVERY additions, and the end of all of them."""
    rows: list[Row] = []
    terms = np.full(lanes, TERM)
    for n, sums in running_sums(context, terms, ADDITIONS, f"{name}, {lanes} lanes"):
        if n % EVERY == 0:
            rows += [
                {"part": "path", "rounding": name, "lane": lane, "n": n, "sum": float(total)}
                for lane, total in enumerate(sums[:SHOWN])
            ]
    ends = enumerate(sums)
    return rows + [
        {"part": "final", "rounding": name, "lane": lane, "final": float(x)} for lane, x in ends
    ]


def exact_law(term: float, additions: int) -> list[tuple[float, float]]:
    """Values of the sum and their probabilities under ideal SR, those above 10^-12.

    >>> exact_law(2.0**-26, 1)        # a quarter of the smallest subnormal
    [(0.0, 0.75), (5.960464477539063e-08, 0.25)]
    """
    reach = 2 * term * additions + BINARY16.smallest_normal
    codes = np.arange(BINARY16.n_codes // 2, dtype=np.uint16).view(np.float16).astype(np.float64)
    grid = codes[codes <= reach]
    low = np.searchsorted(grid, grid + term, side="right") - 1
    high = np.minimum(low + 1, grid.size - 1)
    gap = np.where(high > low, grid[high] - grid[low], 1.0)
    up = (grid + term - grid[low]) / gap
    law: np.ndarray = np.zeros(grid.size)
    law[0] = 1.0
    for _ in progress(range(additions), "exact law", additions):
        law = np.bincount(low, law * (1 - up), grid.size) + np.bincount(high, law * up, grid.size)
    return [(float(x), float(p)) for x, p in zip(grid, law, strict=True) if p > 1e-12]


def _answer(rows: list[Row], lanes: int) -> str:
    table = Result(rows, "", "")
    stalled = table.select(part="final", rounding="RNE")[0]["final"]
    (measured,) = table.select(part="summary")
    mean, sd = law_moments(table)
    # Four standard errors: once in 15 000 seeds an unbiased mean is that far off.
    error = 4 * sd / math.sqrt(lanes)
    gain = Effect(float(str(measured["mean"])) - float(str(stalled)), error)
    unbiased = abs(float(str(measured["mean"])) - mean) < error
    opening = verdict(gain.is_above(0.0) and unbiased, not unbiased, needs="more lanes")
    what = "unbiased" if unbiased else "biased"
    return (
        f"{opening} Rounding to nearest stops at {stalled:g}; stochastic rounding ends at "
        f"{measured['mean']:.5f} on average over {lanes} lanes (exact expectation {mean:.7f}) with "
        f"a standard deviation of {measured['sd']:.4f} (exact {sd:.4f}): {what}, and each single "
        f"sum is off by about {sd / mean:.1%}."
    )


def law_moments(result: Result) -> tuple[float, float]:
    """Mean and standard deviation of the exact law."""
    x, p = result.column("final", part="law"), result.column("probability", part="law")
    mean = float((x * p).sum())
    return mean, float(np.sqrt(((x - mean) ** 2 * p).sum()))


def plot(result: Result) -> Figure:
    from ipu.run.pages.drawing import new_figure

    figure, (paths, ends) = new_figure(11, 4.6, mosaic="AB", width_ratios=[1.25, 1])
    _plot_paths(paths, result)
    _plot_ends(ends, result)
    return figure


def _plot_paths(axes: Axes, result: Result) -> None:
    from ipu.run.pages.drawing import BLUE, GREEN, THEORY

    lanes = sorted(set(result.column("lane", part="path", rounding="SR").tolist()))
    for lane in lanes:
        n = result.column("n", part="path", rounding="SR", lane=lane)
        path = result.column("sum", part="path", rounding="SR", lane=lane)
        label = f"SR, {len(lanes)} lanes" if lane == 0 else None
        axes.plot(n, path, color=GREEN, linewidth=0.7, alpha=0.75, label=label)
    nearest = result.column("sum", part="path", rounding="RNE")
    axes.plot(n, nearest, color=BLUE, linewidth=2, label="RNE, all lanes")
    mean, _ = law_moments(result)
    axes.plot(n, n * mean / ADDITIONS, label="expectation under SR", **THEORY)
    axes.annotate(f"stops at {nearest[-1]:g}", (n[-1], nearest[-1]), (-4, 6), ha="right",
                  textcoords="offset points", color=BLUE)
    axes.set(title=f"Sum of {TERM} in FP16", xlabel="number of additions", ylabel="sum",
             xlim=(0, ADDITIONS), ylim=(0, 1.1))
    axes.legend(loc="upper left")


def _plot_ends(axes: Axes, result: Result) -> None:
    from ipu.run.pages.drawing import GREEN, RED, THEORY, count_ticks

    ends = result.column("final", part="final", rounding="SR")
    x, p = result.column("final", part="law"), result.column("probability", part="law")
    mean, sd = law_moments(result)
    # Edges lie just below values of binary16. A sum stays on a value for (gap above it)/term
    # additions, so bins of equal width hold equal shares of time, also where the gap doubles.
    edges = np.arange(np.floor((mean - 4.2 * sd) / BIN), np.ceil((mean + 4.2 * sd) / BIN)) * BIN
    edges -= 2.0**-13
    axes.hist(ends, edges, color=GREEN, alpha=0.55, label=f"{ends.size} lanes, SR")
    expected, _ = np.histogram(x, edges, weights=p * ends.size)
    axes.plot((edges[1:] + edges[:-1]) / 2, expected, label="exact law", **THEORY)
    axes.axvline(mean, color=RED, linewidth=1, label=f"expectation\n{mean:.7f}")
    axes.set(title=f"After {ADDITIONS} additions", xlabel="final sum",
             ylabel=f"lanes per {BIN:.4f}", xlim=(edges[0], edges[-1]))
    axes.legend(loc="upper left", fontsize=9)
    axes.set_ylim(top=axes.get_ylim()[1] * 1.1)
    count_ticks(axes.yaxis)
