"""Underflow in products of narrow formats, after Mary and Mikaitis."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from fpsim import BINARY16, E4M3FN, Context
from fpsim.chop import MatlabRandom
from ipu.experiments.lab.progress import progress
from ipu.experiments.lab.result import ELEMENTWISE, Result, Row
from ipu.experiments.published.claim import Claim, published, same_digits, tables
from ipu.experiments.sums.exact import powers_of_ten, product

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["plot", "run", "tables"]

QUESTION = "Does underflow in E4M3 and FP16 harm a product that is scaled?"
BUDGET = 60
DEFAULT = False

_SOURCE = (
    "T. Mary and M. Mikaitis, Error analysis of matrix multiplication with narrow range "
    "floating-point arithmetic, hal-04671474 (2024); programs and data of github.com/"
    "north-numerical-computing/narrow-range-FP-underflow-experiments"
)
_SETUP = (
    "rng(1); matrices of 10 x n and n x 10 with logarithms uniform in [-10, 10] and random signs, "
    "scaled by powers of two, in {} E4M3 word(s), summed in FP16, {}; the norm of the error over "
    "those of the factors. Unlimited range: the same digits with 2^255 and 2^-255"
)
CLAIMS = [
    Claim("one word, no subnormals", "Underflow has little effect on the error.", _SOURCE,
          _SETUP.format("one", "results below the smallest normal number to it or to zero")),
    Claim("one word, subnormals", "The same with subnormals.", _SOURCE,
          _SETUP.format("one", "with subnormals")),
    Claim("two words, subnormals", "The same with two words.", _SOURCE,
          _SETUP.format("two", "with subnormals")),
]
SEED, SIDE, MAGNITUDES = 1, 10, 10
#: Columns of the published files, in the order of the random stream.
SIZES = tuple(int(n) for n in np.floor(np.logspace(1, 6, 40)))
#: Digits of E4M3 and of FP16, with a range that nothing here leaves.
WIDE = (E4M3FN.widest(), BINARY16.widest())
#: n: printed error, and that of an unlimited range.
PRINTED = {
    "one word, no subnormals": {
        10: ("1.792245e-03", "1.791534e-03"), 13: ("6.174656e-03", "6.129233e-03"),
        18: ("2.023212e-02", "2.021926e-02"), 24: ("5.662695e-03", "5.662845e-03"),
        32: ("1.311423e-02", "1.311337e-02"), 43: ("6.257477e-03", "6.183416e-03"),
        58: ("4.494583e-03", "4.499005e-03"), 78: ("1.507560e-02", "1.511368e-02"),
        106: ("8.858919e-03", "8.896509e-03"), 257: ("6.974720e-03", "6.921921e-03"),
        623: ("4.190118e-03", "4.170073e-03"), 1511: ("2.178431e-03", "2.275353e-03"),
        3665: ("1.587465e-03", "1.540479e-03"), 8886: ("9.711917e-04", "9.533350e-04"),
    },
    "one word, subnormals": {
        10: ("1.167516e-02", "1.167491e-02"), 13: ("1.312582e-02", "1.312570e-02"),
        18: ("2.076302e-02", "2.076329e-02"), 24: ("9.138021e-03", "9.138303e-03"),
        32: ("1.535951e-02", "1.535827e-02"), 43: ("5.157619e-03", "5.151272e-03"),
        106: ("7.433034e-03", "7.434002e-03"), 257: ("3.808756e-03", "3.806190e-03"),
        623: ("2.992039e-03", "2.992088e-03"), 1511: ("2.256384e-03", "2.256513e-03"),
        8886: ("8.047815e-04", "8.117533e-04"), 52233: ("3.128623e-04", "3.304912e-04"),
    },
    "two words, subnormals": {
        10: ("9.622107e-05", "9.608221e-05"), 13: ("2.160116e-04", "2.155063e-04"),
        18: ("1.648571e-04", "1.648464e-04"), 24: ("3.550426e-04", "3.548664e-04"),
        32: ("4.598017e-04", "4.595302e-04"), 43: ("1.279126e-04", "1.293246e-04"),
        58: ("3.515840e-04", "3.478507e-04"), 78: ("5.454948e-04", "5.458754e-04"),
        106: ("1.591846e-04", "1.874097e-04"), 257: ("1.290624e-04", "1.252955e-04"),
    },
}
#: Which of the files of the stream a part is, and how many words it takes.
FILES = {"one word, no subnormals": (0, 1), "one word, subnormals": (1, 1),
         "two words, subnormals": (3, 2)}


@dataclass(frozen=True)
class Arithmetic:
    """Contexts of the inputs and of the sums, and in how many words an input is held."""

    inputs: Context
    sums: Context
    words: int

    def split(self, x: NDArray[np.float64]) -> list[NDArray[np.float64]]:
        """Words of x: each is what the ones before have left, scaled up."""
        unit = 2.0**-E4M3FN.precision
        words = [_values(self.inputs, x)]
        for j in range(1, self.words):
            x = x - words[-1] * unit ** (j - 1)
            words.append(_values(self.inputs, x / unit**j))
        return words

    def product(self, a: NDArray[np.float64], b: NDArray[np.float64]) -> NDArray[np.float64]:
        """a @ b, updates of rank one after another; of two words three products of them."""
        left, right = self.split(a), self.split(b)
        if self.words == 1:
            product = self.sums.matmul(self.sums.array(left[0]), self.sums.array(right[0]))
            return np.asarray(product.values, np.float64)
        total = np.zeros((len(a), b.shape[1]))
        pairs = [(j, k) for j in range(self.words) for k in range(self.words - j)]
        for j, k in pairs:
            unit = 2.0 ** (-E4M3FN.precision * (j + k))
            for i in range(a.shape[1]):
                term = _values(self.sums, np.outer(left[j][:, i], right[k][i]))
                total = _values(self.sums, total + unit * term)
        return total


def _values(context: Context, x: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.asarray(context.array(x).values, np.float64)


def _operands(random: MatlabRandom, n: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    shapes = (SIDE, n), (n, SIDE)
    a, b = (powers_of_ten(2 * MAGNITUDES * random.rand(*shape) - MAGNITUDES) for shape in shapes)
    signs = [random.randi(2, *shape) * 2 - 3 for shape in shapes]
    return a * signs[0], b * signs[1]


def _pass_over(random: MatlabRandom, n: int) -> None:
    """Take the numbers of one size from the stream."""
    for _ in range(4):
        random.rand(SIDE, n)


def _error(arithmetic: Arithmetic, a: NDArray[np.float64], b: NDArray[np.float64]) -> float:
    theta = min(E4M3FN.max, float(np.sqrt(BINARY16.max / a.shape[1])))
    rows = _power_below(theta / np.abs(a).max(1, keepdims=True))
    columns = _power_below(theta / np.abs(b).max(0, keepdims=True))
    error = arithmetic.product(rows * a, b * columns) / rows / columns - product(a, b)
    norms = [max(math.fsum(row) for row in np.abs(x).tolist()) for x in (error, a, b)]
    return norms[0] / norms[1] / norms[2]


def _power_below(x: NDArray[np.float64]) -> NDArray[np.float64]:
    """The largest powers of two that are at most x."""
    return np.asarray(np.ldexp(1.0, np.frexp(x)[1] - 1))


def run(quick: bool, seed: int) -> Result:
    random, rows, file, largest = MatlabRandom(SEED), list[Row](), 0, 257 if quick else SIZES[-1]
    for part, (index, words) in FILES.items():
        while file < index:
            for n in SIZES:
                _pass_over(random, n)
            file += 1
        policy = "zero_or_normal" if part.endswith("no subnormals") else "keep"
        inputs, sums = (Context(f, subnormals=policy) for f in (E4M3FN, BINARY16))
        narrow = Arithmetic(inputs, sums, words)
        wide = Arithmetic(Context(WIDE[0]), Context(WIDE[1]), words)
        for n in progress(SIZES, part, len(SIZES)):
            if n not in PRINTED[part] or n > largest:
                _pass_over(random, n)
                continue
            a, b = _operands(random, n)
            for name, arithmetic, text in zip(
                ("E4M3 and FP16", "unlimited range"), (narrow, wide), PRINTED[part][n], strict=True
            ):
                error = _error(arithmetic, a, b)
                rows.append(same_digits(part, f"n = {n}, {name}", text, error))
                rows.append({"row": "error", "part": part, "curve": name, "n": n, "error": error})
        file += 1
        if quick:
            break
    errors = {(r["part"], r["n"], r["curve"]): r["error"] for r in rows if r.get("row") == "error"}
    worst = max(
        error / errors[part, n, "unlimited range"]  # type: ignore[operator]
        for (part, n, curve), error in errors.items() if curve != "unlimited range"
    )
    sentence = (
        f"The error is at most {worst:.2f} times that of an unlimited range. The columns without "
        "subnormals need results rounded to the smallest normal number or zero, not flushed."
    )
    claims = CLAIMS[:1] if quick else CLAIMS
    return published(claims, rows, sentence, "c=e4m3,part=f16, rounding=RNE", (ELEMENTWISE,))


def plot(result: Result) -> Figure:
    from ipu.run.pages.drawing import BLUE, GREEN, ORANGE, new_figure

    figure, (axes,) = new_figure(7, 4, mosaic="A")
    for part, color in zip(FILES, (BLUE, ORANGE, GREEN), strict=True):
        for curve, look in (("E4M3 and FP16", "o"), ("unlimited range", "-")):
            where = {"row": "error", "part": part, "curve": curve}
            if result.select(**where):
                label = part if look == "o" else None
                axes.loglog(result.column("n", **where), result.column("error", **where), look,
                            color=color, label=label)
    axes.set(title="Points: E4M3 and FP16; lines: unlimited range", xlabel="n", ylabel="error")
    axes.legend(fontsize=9)
    return figure
