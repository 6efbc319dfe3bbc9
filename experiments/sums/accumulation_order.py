"""The same inner products through units that add their terms in different orders and widths.

Every unit gets the same FP16 operands and returns FP32; errors are counted in ulps of the exact
result in FP32, in which a correctly rounded sum is off by half at most. On ordinary data the units
differ by a few ulps. Where the sum cancels, each unit has lost other digits on the way.

BLAS adds in an order of its own that depends on the processor and the library; its rows are kept
beside the data, not in it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from fpsim import BINARY16, BINARY32, Array, Context
from fpsim.linalg import matmul
from fpsim.records.units import find_unit
from ipu.experiments.lab.result import Result, Row, unit_used
from ipu.experiments.sums.exact import inner_products
from ipu.machine.units import amp, slic

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

QUESTION = "How far apart are the results of units that add the same products in another order?"
BUDGET = 30
DEFAULT = False

TERMS = 64
DATA = ("ordinary", "cancelling")
UNITS = (
    *(u.name for u in amp.AMP_UNITS if u.family == "AMP_F16" and u.partials == BINARY32),
    *(u.name for u in slic.SLIC_UNITS if u.family == "SLIC_F16" and u.partials == BINARY32
      and u.preset == "window"),
    "V100_F16_F32", "A100_F16_F32", "H100_F16_F32",
)
BLAS = "BLAS float32"
#: Errors below this many ulps are drawn here; exact results have none.
FLOOR = 2.0**-6


def run(quick: bool, seed: int) -> Result:
    side = 12 if quick else 32
    rows: list[Row] = []
    local: list[Row] = []
    for kind in DATA:
        a, b = operands(kind, side, seed)
        exact, _ = inner_products(a.carrier, b.carrier)
        results = {name: _through(name, a, b) for name in UNITS}
        for name, values in results.items():
            rows += _errors(kind, name, values, exact)
        rows += _spread(kind, results, exact)
        blas = np.asarray(a.carrier @ b.carrier, np.float32)
        local += _errors(kind, BLAS, blas, exact)
    units = tuple(fact for name in UNITS for fact in unit_used(find_unit(name)))
    parameters = {"terms": TERMS, "products": side * side, "cancelling": "r·c + r·(δ - c)"}
    return Result(rows, _answer(rows), "c=f16, part=f32, out=f32", parameters, units, local)


def operands(kind: str, side: int, seed: int) -> tuple[Array, Array]:
    """side × TERMS and TERMS × side; cancelling ones take back in the second half what the first
    half has summed, but for a small rest."""
    draw = np.random.default_rng([seed, DATA.index(kind)])
    half = Context(BINARY16)
    if kind == "ordinary":
        return half.array(draw.standard_normal((side, TERMS))), half.array(
            draw.standard_normal((TERMS, side))
        )
    rows = draw.standard_normal((side, TERMS // 2))
    columns = half.array(
        draw.standard_normal((TERMS // 2, side)) * 2.0 ** draw.integers(-6, 7, (TERMS // 2, 1))
    ).values
    rest = columns * draw.standard_normal(columns.shape) * 2.0**-9
    return (
        half.array(np.concatenate([rows, rows], axis=1)),
        half.array(np.concatenate([columns, rest - columns])),
    )


def _through(name: str, a: Array, b: Array) -> NDArray[np.float32]:
    values: NDArray[np.float32] = matmul(a, b, name, context=Context(BINARY32)).values
    return values


def _ulps(values: NDArray[np.floating], exact: NDArray[np.float64]) -> NDArray[np.float64]:
    ulp = np.exp2(np.floor(np.log2(np.abs(exact))) - (BINARY32.precision - 1))
    return np.asarray((values - exact) / ulp, np.float64)


def _errors(
    kind: str, name: str, values: NDArray[np.float32], exact: NDArray[np.float64]
) -> list[Row]:
    errors = _ulps(values, exact).reshape(-1)
    return [
        {"part": "error", "data": kind, "unit": name, "product": i, "ulps": float(error)}
        for i, error in enumerate(errors)
    ]


def _spread(
    kind: str, results: dict[str, NDArray[np.float32]], exact: NDArray[np.float64]
) -> list[Row]:
    """Largest minus smallest result of each product, over all units."""
    every = np.stack([values.astype(np.float64) for values in results.values()])
    spread = _ulps(exact + (every.max(axis=0) - every.min(axis=0)), exact).reshape(-1)
    distinct = [len(np.unique(column)) for column in every.reshape(len(every), -1).T]
    return [
        {"part": "spread", "data": kind, "product": i, "ulps": float(s), "distinct": n}
        for i, (s, n) in enumerate(zip(spread, distinct, strict=True))
    ]


def _answer(rows: list[Row]) -> str:
    table = Result(rows, "", "")
    parts = []
    for kind in DATA:
        spread = table.column("ulps", part="spread", data=kind)
        equal = float(np.mean(table.column("distinct", part="spread", data=kind) == 1))
        parts.append(
            f"on {kind} data the results of {len(UNITS)} units lie {np.median(spread):.3g} ulps "
            f"apart (median; largest {spread.max():.3g}) and all agree in {equal:.0%} of products"
        )
    text = "; ".join(parts)
    return f"{text[0].upper()}{text[1:]}."


def plot(result: Result) -> Figure:
    from ipu.run.pages.drawing import new_figure

    figure, axes = new_figure(11, 5.2, mosaic="AB", sharey=True)
    for panel, kind in zip(axes, DATA, strict=True):
        _plot_kind(panel, result, kind)
    return figure


def _plot_kind(axes: Axes, result: Result, kind: str) -> None:
    from ipu.run.pages.drawing import BLUE, GREEN, GREY, ORANGE, SKY, THEORY

    colors = {"AMP": BLUE, "SLIC": SKY, "BLAS": GREY}
    both = Result([*result.rows, *result.local], "", "")
    names = [*UNITS, BLAS] if result.local else list(UNITS)
    for place, name in enumerate(reversed(names)):
        errors = np.abs(both.column("ulps", part="error", data=kind, unit=name))
        errors = np.sort(np.maximum(errors, FLOOR))
        axes.plot(errors, place + np.linspace(-0.35, 0.35, errors.size), ".", markersize=1.6,
                  color=colors.get(name.partition(" ")[0].partition("_")[0], ORANGE))
        axes.plot([np.median(errors)] * 2, [place - 0.4, place + 0.4], color=GREEN, linewidth=2)
    axes.axvline(0.5, **THEORY)
    axes.annotate("correctly rounded: ½ ulp", (0.5, len(names) - 0.45), (3, 0), fontsize=8.5,
                  textcoords="offset points")
    labels = [f"{n} (this machine)" if n == BLAS else n for n in reversed(names)]
    axes.set_yticks(range(len(names)), labels, fontsize=8.5)
    axes.set(title=f"{kind.capitalize()} data", xscale="log", ylim=(-0.6, len(names) - 0.1),
             xlabel="error in FP32 ulps of the exact result (green: median)")
