"""Inner products with half and with float partials, from 16 to 65 536 terms.

Half partials are rounded to FP16 once per pass of 16 terms, float partials to FP32 once per call of
4. Errors are relative to Σ|a·b|, which makes the classical bounds one line each: n roundings of
unit roundoff u lose at most n·u of it, and about √n·u if they are independent. Two kinds of terms:
of both signs, where the sum wanders, and positive ones, where it grows and each rounding of a large
partial loses the same way.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from fpsim import BINARY16, BINARY32, RNE, SR, Array, Context
from fpsim.linalg import matmul
from fpsim.records.formats import Format
from fpsim.records.rounding import Rounding
from ipu.experiments.lab.progress import progress
from ipu.experiments.lab.result import STOCHASTIC, Result, Row, unit_used
from ipu.experiments.sums.exact import inner_products
from ipu.machine.units.amp import AMP_UNITS
from ipu.run.verdict import Effect, verdict

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

QUESTION = "How much accuracy do half partials cost, and does stochastic rounding give it back?"
BUDGET = 40
DEFAULT = False

TERMS = [2**e for e in range(4, 17)]
DATA = ("both signs", "positive")
#: The AMP by the format of its partials.
UNITS = {u.partials: u for u in AMP_UNITS if u.inputs == (BINARY16,) and u.preset == "window"}
#: What the names of the bounds mean, in the figure.
SYMBOLS = (
    "dashed: bounds for n roundings of the partials,\n"
    "n = K/16 (half), K/4 (float); u: unit roundoff,\n"
    "$2^{-11}$ (half), $2^{-24}$ (float)"
)
#: Errors below this are drawn here; a few short sums are exact.
FLOOR = 2e-9


class PartialsWay(NamedTuple):
    """How partials are kept and rounded."""

    partials: Format
    rounding: Rounding
    result: Format


WAYS = {
    "half partials": PartialsWay(BINARY16, RNE, BINARY16),
    "half partials, SR": PartialsWay(BINARY16, SR(), BINARY16),
    "float partials, FP16 result": PartialsWay(BINARY32, RNE, BINARY16),
    "float partials": PartialsWay(BINARY32, RNE, BINARY32),
}


def run(quick: bool, seed: int) -> Result:
    side = 8 if quick else 24
    rows: list[Row] = []
    terms = TERMS[:9] if quick else TERMS
    for kind in DATA:
        for k in progress(terms, f"{kind} terms"):
            a, b = _operands(kind, k, side, seed)
            rows += [{"data": kind, "terms": k, **row} for row in _errors(a, b, seed)]
    units = [evidence for unit in UNITS.values() for evidence in unit_used(unit)]
    parameters = {"products": side * side, "terms": terms, "operands": "N(0, 1) and |N(0, 1)|/4"}
    policy = "c=f16, part=f16|f32, rounding=RNE|SR"
    return Result(rows, _answer(rows), policy, parameters, (*units, STOCHASTIC))


def _operands(kind: str, k: int, side: int, seed: int) -> tuple[Array, Array]:
    """side × k and k × side; positive ones are small enough for 65 536 products to stay finite."""
    draw = np.random.default_rng([seed, k, DATA.index(kind)])
    a, b = draw.standard_normal((side, k)), draw.standard_normal((k, side))
    if kind == "positive":
        a, b = np.abs(a) / 4, np.abs(b) / 4
    half = Context(BINARY16)
    return half.array(a), half.array(b)


def _errors(a: Array, b: Array, seed: int) -> Iterator[Row]:
    exact, size = inner_products(a.carrier, b.carrier)
    for name, way in WAYS.items():
        context = Context(way.result, rounding=way.rounding, seed=seed)
        values = matmul(a, b, UNITS[way.partials], context=context).values.astype(np.float64)
        error = (values - exact) / size
        yield {
            "way": name, "products": error.size, "rms": float(np.sqrt((error**2).mean())),
            "largest": float(np.abs(error).max()), "mean": float(error.mean()),
        }


def bounds(name: str, terms: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """√n·u and n·u for n roundings of the partials; u doubles under SR.

    >>> [float(b[0]) * 2**11 for b in bounds("half partials", np.array([256]))]
    [4.0, 16.0]
    """
    way = WAYS[name]
    roundings = terms / (16 if way.partials == BINARY16 else 4)
    unit = way.partials.eps / (1 if way.rounding.stochastic else 2)
    return np.sqrt(roundings) * unit, roundings * unit


def gives_back(result: Result, kind: str) -> str:
    """Is the error with SR smaller than to nearest, in the longest sums of a kind?

    The error of a root mean square over N products is its 1/√(2N)th part, of a ratio √2 times that.
    """
    longest = int(result.column("terms").max())
    nearest, stochastic = (
        result.select(data=kind, terms=longest, way=way)[0] for way in tuple(WAYS)[:2]
    )
    ratio = math.log(float(str(stochastic["rms"])) / float(str(nearest["rms"])))
    effect = Effect(ratio, 1.96 / math.sqrt(float(str(nearest["products"]))))
    return verdict(effect.is_below(0.0), effect.is_above(0.0), needs="more products")


def _answer(rows: list[Row]) -> str:
    result = Result(rows, "", "")
    longest = int(result.column("terms").max())

    def of(kind: str, way: str, what: str = "rms") -> str:
        return f"{float(result.column(what, data=kind, terms=longest, way=way)[0]):.1e}"

    half, stochastic, single = "half partials", "half partials, SR", "float partials"
    costs = "; ".join(
        f"of {longest} terms {'of both signs' if kind == 'both signs' else 'that are positive'} "
        f"half partials lose {of(kind, half)} of Σ|a·b| (root mean square), with stochastic "
        f"rounding {of(kind, stochastic)}, float partials {of(kind, single)}"
        for kind in reversed(DATA)
    )
    opened = "; ".join(
        f"{kind if kind == 'both signs' else kind + ' terms'}: {gives_back(result, kind)[:-1]}"
        for kind in reversed(DATA)
    )
    return f"Cost: {costs}. Does stochastic rounding lose less than to nearest? {opened}."


def plot(result: Result) -> Figure:
    from ipu.run.pages.drawing import new_figure

    figure, axes = new_figure(11, 4.9, mosaic="AB", sharey=True)
    for panel, kind in zip(axes, DATA, strict=True):
        _plot_kind(panel, result, kind)
    axes[0].set_ylabel("error / Σ|a·b|, root mean square")
    axes[0].annotate(SYMBOLS, (0.02, 0.98), va="top", fontsize=8.5, xycoords="axes fraction")
    axes[1].legend(loc="lower right", fontsize=9)
    axes[1].tick_params(labelleft=True)
    return figure


def _plot_kind(axes: Axes, result: Result, kind: str) -> None:
    from ipu.run.pages.drawing import BLUE, GREEN, GREY, ORANGE, THEORY

    for name, color in zip(WAYS, (BLUE, GREEN, ORANGE, GREY), strict=True):
        terms = result.column("terms", data=kind, way=name)
        error = result.column("rms", data=kind, way=name)
        axes.loglog(terms, np.maximum(error, FLOOR), "o-", markersize=3, color=color, label=name)
    for name, color in (("half partials", BLUE), ("float partials", GREY)):
        for bound, law in zip(bounds(name, terms), ("√n·u", "n·u"), strict=True):
            axes.loglog(terms, bound, **{**THEORY, "color": color})
            axes.annotate(law, (terms[-1], bound[-1]), (3, -3), color=color, fontsize=8.5,
                          textcoords="offset points")
    axes.set(title=f"Terms: {kind}", xlabel="terms K of the inner product", ylim=(FLOOR / 4, 4))
