"""A small number added to a large one, and ten thousand small ones added up.

The numbers are those of Graphcore's TensorFlow 1 tutorial on FP16, whose printed digits are in part
wrong. Exact arithmetic gives 0.0004 + 0.25 - 0.25 = 0.00048828125 in binary16 (printed: 0.0004833),
0.2504 rounds to 0.25048828125 (printed: 0.2504833), and 0.02 comes back as 0.02001953125 (printed:
0.0200205). The other three rows of its table are right.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from fpsim import BFLOAT16, BINARY16, BINARY32, RNE, SR, Context
from ipu.experiments.lab.result import ELEMENTWISE, STOCHASTIC, Result, Row, Table
from ipu.experiments.sums.accumulate import running_sums
from ipu.experiments.sums.exact import geometric

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

QUESTION = "What is left of a small number that is added to a large one in FP16?"
BUDGET = 14
DEFAULT = True

BIG = 0.25
#: Small terms of the tutorial, and what it prints for small + 0.25 - 0.25 in FP16.
TUTORIAL = {0.2: "0.1999512", 0.02: "0.0200205", 0.002: "0.0019531", 0.0004: "0.0004833",
            0.0002: "0.0002441", 0.0001: "0.0"}
TERM, ADDITIONS = 0.0001, 10_000
#: Smaller relative errors are drawn here (exact results have none).
FLOOR = 1e-7
#: Of single stochastic results, which are drawn as a band.
QUANTILES = (0.05, 0.95)


def arithmetics(seed: int) -> dict[str, Context]:
    """The four ways of adding that are compared."""
    return {
        "FP32": Context(BINARY32, rounding=RNE),
        "FP16": Context(BINARY16, rounding=RNE),
        "BF16": Context(BFLOAT16, rounding=RNE),
        "FP16 + SR": Context(BINARY16, rounding=SR(), seed=seed),
    }


def run(quick: bool, seed: int) -> Result:
    lanes, points = (1_000, 120) if quick else (10_000, 600)
    rows: list[Row] = []
    for name, context in arithmetics(seed).items():
        rows += _table(name, context, lanes)
        rows += _curve(name, context, points, lanes)
        rows += _sums(name, context)
    parameters = {"big": BIG, "term": TERM, "additions": ADDITIONS, "stochastic lanes": lanes,
                  "tutorial prints": TUTORIAL}
    policy = "c=f16|f32|bf16, rounding=RNE|SR"
    return Result(rows, _answer(rows), policy, parameters, (ELEMENTWISE, STOCHASTIC))


def remainder(context: Context, small: np.ndarray, lanes: int) -> np.ndarray:
    """small + BIG - BIG in the context's arithmetic, lanes × terms; terms round to nearest."""
    shape = (lanes if context.rounding.stochastic else 1, small.size)
    nearest = Context(context.format).array(small).values
    x = context.wrap(np.broadcast_to(nearest, shape))
    return np.asarray((x + BIG - BIG).values, dtype=np.float64)


def _table(name: str, context: Context, lanes: int) -> list[Row]:
    values = remainder(context, np.array(list(TUTORIAL)), lanes)
    return [
        {"part": "table", "arithmetic": name, "big": BIG, "small": small,
         "kept": float(value.mean()), "spread": float(value.std()),
         "relative_error": float(value.mean()) / small - 1}
        for small, value in zip(TUTORIAL, values.T, strict=True)
    ]


def _curve(name: str, context: Context, points: int, lanes: int) -> list[Row]:
    """Relative errors of the result; of stochastic ones the mean of their errors.

    low, high        of single stochastic results, 90 % of which lie between.
    error_of_mean    of the mean of all stochastic results.
    """
    small = geometric(1e-5, BIG, points)
    results = remainder(context, small, lanes)
    errors = np.abs(results / small - 1)
    columns = {"small": small, "relative_error": errors[0]}
    if context.rounding.stochastic:
        low, high = np.quantile(errors, QUANTILES, axis=0)
        columns = {
            "small": small, "relative_error": errors.mean(axis=0), "low": low, "high": high,
            "error_of_mean": np.abs(results.mean(axis=0) / small - 1),
        }
    return [
        {"part": "curve", "arithmetic": name, **dict(zip(columns, map(float, point), strict=True))}
        for point in zip(*columns.values(), strict=True)
    ]


def _sums(name: str, context: Context) -> list[Row]:
    rows: list[Row] = [{"part": "sum", "arithmetic": name, "n": 0, "sum": 0.0}]
    before, effective = 0.0, 0
    for n, sums in running_sums(context, np.array([TERM]), ADDITIONS, f"sum in {name}"):
        total = float(sums[0])
        if total != before:
            before, effective = total, n
        if n % 50 == 0:
            rows.append({"part": "sum", "arithmetic": name, "n": n, "sum": total})
    end: Row = {"part": "end", "arithmetic": name, "n": effective, "sum": before, "term": TERM}
    return [*rows, end]


def _answer(rows: list[Row]) -> str:
    table = Result(rows, "", "")
    small = table.select(part="table", arithmetic="FP16", small=2 * TERM)[0]
    lost = table.select(part="table", arithmetic="FP16", small=TERM)[0]
    end = {r["arithmetic"]: r for r in table.select(part="end")}
    single, nearest = (
        table.column("relative_error", part="curve", arithmetic=name)
        for name in ("FP16 + SR", "FP16")
    )
    additions = f"{ADDITIONS:_}".replace("_", "\u202f")
    return (
        f"Beside {BIG:g}, FP16 turns {2 * TERM:g} into {small['kept']:.7f} "
        f"({small['relative_error']:+.1%}) and {TERM:g} into {lost['kept']:g}. So of "
        f"{additions} additions of {TERM:g} only the first "
        f"{end['FP16']['n']} have an effect and the sum stays at {end['FP16']['sum']:g} (BF16: "
        f"{end['BF16']['sum']:g}); FP32 reaches {end['FP32']['sum']:.5f}, FP16 with stochastic "
        f"rounding {end['FP16 + SR']['sum']:.4f}. Beside {BIG:g} the error of a single "
        f"stochastic result is on average larger than that to nearest at {_share(single, nearest)} "
        "of the points; it is the mean of many results that is right."
    )


def _share(single: np.ndarray, nearest: np.ndarray) -> str:
    return f"{np.mean(single > nearest):.0%}"


def plot(result: Result) -> Figure:
    from ipu.run.pages.drawing import new_figure

    figure, (curve, sums) = new_figure(11, 4.6, mosaic="AB")
    _plot_curve(curve, result)
    _plot_sums(sums, result)
    return figure


def _looks() -> dict[str, str]:
    from ipu.run.pages import drawing

    return {"FP32": drawing.GREY, "BF16": drawing.ORANGE, "FP16": drawing.BLUE,
            "FP16 + SR": drawing.GREEN}


def _plot_curve(axes: Axes, result: Result) -> None:
    from ipu.run.pages.drawing import THEORY

    for name, color in _looks().items():
        small = result.column("small", part="curve", arithmetic=name)
        where = {"part": "curve", "arithmetic": name}
        error = np.maximum(result.column("relative_error", **where), FLOOR)
        axes.loglog(small, error, color=color, linewidth=1.1)
        if name == "FP16 + SR":
            low, high = (np.maximum(result.column(c, **where), FLOOR) for c in ("low", "high"))
            axes.fill_between(small, low, high, color=color, alpha=0.2, linewidth=0,
                              label="one result with SR: 90 % of them")
            lanes = result.parameters["stochastic lanes"]
            mean = np.maximum(result.column("error_of_mean", **where), FLOOR)
            axes.loglog(small, mean, color=color, linewidth=0.7, linestyle=":",
                        label=f"mean of {lanes} results with SR")
    limit = BINARY16.ulp(BIG) / 2
    axes.loglog(small, limit / small, **THEORY)
    axes.annotate(f"half an FP16 ulp of {BIG:g}", (4e-5, limit / 4e-5), (6, 4), fontsize=9,
                  textcoords="offset points")
    axes.set(
        title=f"What small + {BIG} − {BIG} loses", xlabel="small number",
        ylabel="relative error |result / small − 1|", ylim=(FLOOR, 300),
        xlim=(small[0], small[-1]),
    )
    axes.legend(loc="upper right", fontsize=9)


def _plot_sums(axes: Axes, result: Result) -> None:
    from ipu.run.pages.drawing import THEORY

    for name, color in _looks().items():
        n = result.column("n", part="sum", arithmetic=name)
        axes.plot(n, result.column("sum", part="sum", arithmetic=name), color=color, label=name)
    axes.plot(n, n * TERM, label="exact sum", **THEORY)
    stop = result.select(part="end", arithmetic="FP16")[0]
    axes.annotate(
        f"FP16: nothing changes after addition no. {stop['n']}", (stop["n"], stop["sum"]),
        (3300, 0.12), arrowprops={"arrowstyle": "-", "color": "#777777"}, fontsize=9,
    )
    axes.set(
        title=f"Running sum of {TERM}", xlabel="number of additions", ylabel="sum",
        xlim=(0, ADDITIONS), ylim=(0, 1.1),
    )
    axes.legend(loc="upper left", fontsize=9)


def tables(result: Result) -> list[Table]:
    names = list(_looks())
    lines = [[str(small), printed] for small, printed in TUTORIAL.items()]
    for line in lines:
        for name in names:
            (row,) = result.select(part="table", arithmetic=name, small=float(line[0]))
            line.append(f"{row['kept']:.7f} ({row['relative_error']:+.1%})".replace("-", "−"))
    heads = ["small", "tutorial prints (FP16)", *names[:-1], "FP16 + SR, mean"]
    return [Table(f"small + {BIG} − {BIG}", heads, lines, _misprints(result))]


def _misprints(result: Result) -> str:
    """Which printed numbers FP16 cannot give, and why."""
    step = BINARY16.ulp(BIG)
    wrong = []
    for small, printed in TUTORIAL.items():
        (row,) = result.select(part="table", arithmetic="FP16", small=small)
        if f"{row['kept']:.7f}" != f"{float(printed):.7f}":
            wrong.append(f"{printed} (it is {row['kept']:.7f})")
    return (
        f"FP16 values from {BIG:g} on are multiples of {step:.8f}, so every result is one too. "
        f"The tutorial's {' and '.join(wrong)} are no multiples: no FP16 machine gives them, their "
        "digits are misprinted. Its other numbers are right."
    )
