"""Two sequences that double precision gets wrong: Kahan and Muller's, and the chaotic bank."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import TYPE_CHECKING, Any, TypeVar

from fpsim import BINARY32, BINARY64, Array, Context
from ipu.experiments.lab.result import ELEMENTWISE, Result, Row
from ipu.experiments.published.claim import Claim, published, same_digits, tables

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["plot", "run", "tables"]

QUESTION = "Where do double and single precision take two exact recurrences?"
BUDGET = 5
DEFAULT = False

_SOURCE = "Rosetta Code, Pathological floating point problems"
CLAIMS = [
    Claim("Kahan and Muller", "v20 is 6.0435521101892689; double precision gives 98.35.", _SOURCE,
          "v1 = 2, v2 = -4, v = 111 - 1130 / v1 + 3000 / (v1 v2), operation after operation"),
    Claim("the chaotic bank",
          "After 25 years 0.0399387296732302 is left of e - 1; double precision gives "
          "1201807247.41044855 of the decimal constant and -2242373258.570158 of exp(1) - 1.",
          _SOURCE, "balance = balance * year - 1 for years 1 to 25, each operation rounded"),
]
#: e, as the programs write it, and digits enough for 25 years of exact arithmetic.
E_DECIMAL = "2.718281828459045235360287471352662497757247093699959574966967627724"
TERMS, YEARS = 20, 25


Number = TypeVar("Number", Array, Fraction)


def _muller(first: Number, second: Number) -> list[Number]:
    """v1 … v20 from the first two."""
    v = [first, second]
    while len(v) < TERMS:
        before, last = v[-2:]
        v.append(3000 / (last * before) + (111 - 1130 / last))
    return v


def _bank(balance: Number) -> list[Number]:
    """The balance after each year."""
    balances = []
    for year in range(1, YEARS + 1):
        balance = balance * year - 1
        balances.append(balance)
    return balances


def run(quick: bool, seed: int) -> Result:
    start = Fraction(E_DECIMAL) - 1
    muller: dict[str, list[Any]] = {"exact": _muller(Fraction(2), Fraction(-4))}
    bank: dict[str, list[Any]] = {"exact": _bank(start)}
    for name, context in (("double", Context(BINARY64)), ("single", Context(BINARY32))):
        muller[name] = _muller(context.array(2.0), context.array(-4.0))
        bank[name] = _bank(context.array(float(start)))
    by_function = _bank(Context(BINARY64).array(math.exp(1.0) - 1))
    first, second = CLAIMS[0].part, CLAIMS[1].part
    rows: list[Row] = [
        same_digits(first, "v20, exact", "6.0435521101892689", muller["exact"][-1]),
        same_digits(first, "v20, double", "98.3495031221653591", float(muller["double"][-1])),
        same_digits(second, "25 years, exact", "0.0399387296732302", bank["exact"][-1]),
        same_digits(
            second, "25 years, decimal constant", "1201807247.41044855", float(bank["double"][-1])
        ),
        same_digits(second, "25 years, exp(1) - 1", "-2242373258.570158", float(by_function[-1])),
    ]
    for part, curves in (("v", muller), ("balance", bank)):
        rows += [
            {"row": part, "curve": name, "n": n, "value": float(value)}
            for name, values in curves.items() for n, value in enumerate(values, 1)
        ]
    sentence = (
        "Two right programs of one bank end with opposite signs: their constants differ by an ulp."
    )
    return published(CLAIMS, rows, sentence, "c=f32|f64, rounding=RNE", (ELEMENTWISE,))


def plot(result: Result) -> Figure:
    from ipu.run.pages.drawing import BLUE, GREEN, THEORY, new_figure

    figure, axes = new_figure(11, 4, mosaic="AB")
    looks = {"exact": THEORY, "double": {"color": GREEN}, "single": {"color": BLUE}}
    titles = {"v": "Kahan and Muller's v", "balance": "The chaotic bank"}
    for panel, (part, title) in zip(axes, titles.items(), strict=True):
        for name, look in looks.items():
            n, values = (result.column(column, row=part, curve=name) for column in ("n", "value"))
            panel.plot(n, values, label=name, **look)
        panel.set(title=title, xlabel="step", ylabel=part)
        panel.set_yscale("symlog")
        panel.legend(fontsize=9)
    return figure
