"""Rump's polynomial in several precisions."""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING, TypeVar

from fpsim import BINARY32, BINARY64, Array, Context, Format
from ipu.experiments.lab.result import ELEMENTWISE, Result, Row
from ipu.experiments.published.claim import Claim, equal, published, same_digits, tables

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["plot", "run", "tables"]

QUESTION = "What does Rump's polynomial give in single and in double precision?"
BUDGET = 5
DEFAULT = False

X, Y = 77617, 33096
EXACT = Fraction(-54767, 66192)
_SOURCE = "J. D. Cook, Floating point: everything that can go wrong, johndcook.com, November 2019"
_SETUP = "333.75 y^6 + x^2 (11 x^2 y^2 - y^6 - 121 y^4 - 2) + 5.5 y^8 + x / (2y) with y^8 = y^2 y^6"
CLAIMS = [
    Claim("single", "In single precision the value is -1.85901e30.", _SOURCE,
          f"{_SETUP}, every operation and constant in binary32"),
    Claim("single with double constants", "The same, as the printed C++ computes it.", _SOURCE,
          f"{_SETUP}: the literals 333.75 and 5.5 are doubles, so their products and the sum are"),
    Claim("double", "In double precision the value is -1.18059e21.", _SOURCE,
          f"{_SETUP} in binary64"),
    Claim("exact", "The exact value is -54767/66192.", _SOURCE, f"{_SETUP} in fractions"),
    Claim("quadruple", "In quadruple precision the value is 1.1726.", _SOURCE, "nothing",
          missing="nothing; formats here have at most 26 digits, and quadruple precision has 113"),
]
#: What the polynomial's terms are multiplied with.
SIXTH, EIGHTH = 333.75, 5.5

Number = TypeVar("Number", Array, Fraction)


def _powers(x: Number, y: Number) -> tuple[Number, Number, Number, Number]:
    """y^6, y^8, the middle term, x / 2y."""
    x2, y2 = x * x, y * y
    y4 = y2 * y2
    y6 = y2 * y4
    return y6, y2 * y6, x2 * (x2 * 11 * y2 - y6 - y4 * 121 - 2), x / (y * 2)


def _value(terms: tuple[Number, Number, Number, Number], sixth: Number, eighth: Number) -> Number:
    y6, y8, middle, quotient = terms
    return y6 * sixth + middle + y8 * eighth + quotient


def _in(fmt: Format, constants: Format) -> float:
    """The value with terms in one format, constants and their products in another."""
    narrow, wide = Context(fmt), Context(constants)
    terms = _powers(narrow.array(float(X)), narrow.array(float(Y)))
    y6, y8, middle, quotient = (wide.array(term.values) for term in terms)
    return float(_value((y6, y8, middle, quotient), wide.array(SIXTH), wide.array(EIGHTH)))


def run(quick: bool, seed: int) -> Result:
    exact = _value(_powers(Fraction(X), Fraction(Y)), Fraction(SIXTH), Fraction(EIGHTH))
    values = {
        "single": _in(BINARY32, BINARY32), "single with double constants": _in(BINARY32, BINARY64),
        "double": _in(BINARY64, BINARY64),
    }
    printed = {"single": "-1.85901e30", "single with double constants": "-1.85901e30",
               "double": "-1.18059e21"}
    rows: list[Row] = [
        same_digits(part, "value", printed[part], value) for part, value in values.items()
    ]
    rows.append(equal("exact", "value", str(EXACT), str(exact)))
    rows += [{"row": "value", "curve": part, "value": value} for part, value in values.items()]
    sentence = (
        f"Pure binary32 gives {values['single']:.5e}; the printed number needs the double "
        "constants of the C++ program. All of them are wrong in the first digit."
    )
    return published(CLAIMS, rows, sentence, "c=f32|f64, rounding=RNE", (ELEMENTWISE,))


def plot(result: Result) -> Figure:
    from ipu.run.pages.drawing import BLUE, THEORY, new_figure

    figure, (axes,) = new_figure(6, 3, mosaic="A")
    rows = result.select(row="value")
    axes.barh([str(row["curve"]) for row in rows], [abs(float(str(row["value"]))) for row in rows],
              color=BLUE)
    axes.axvline(float(-EXACT), label="exact value", **THEORY)
    axes.set(title=f"Rump's polynomial at ({X}, {Y})", xscale="log", xlabel="size of the value")
    axes.legend(fontsize=9)
    return figure
