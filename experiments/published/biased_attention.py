"""Why BF16 attention drifts: rounding to nearest is biased where a residue breaks the ties."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from fpsim import BFLOAT16, BINARY32, Context
from ipu.experiments.lab.result import ELEMENTWISE, Result, Row
from ipu.experiments.published.claim import Claim, equal, published, tables

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["plot", "run", "tables"]

QUESTION = "Is one rounding to BF16 of sums of equal sign biased?"
BUDGET = 5
DEFAULT = False

_SOURCE = "Why low-precision transformer training fails, arXiv 2510.04212, section 3.3.2"
#: The sum of the paper's example in FP32, and what it prints for BF16.
SUM, ROUNDED, ERROR = -4.703990459442139, -4.71875, -0.014759540557861328
CLAIMS = [
    Claim(
        "the example",
        "The sum of an attention row with BF16 weights of one sign is rounded once to BF16, away "
        "from zero.",
        _SOURCE, "the printed FP32 sum, rounded to BF16 to nearest even",
    ),
    Claim(
        "the bias",
        "Sums of two BF16 numbers of one sign carry into the next binade; where a small addend of "
        "that sign follows, ties no longer go to even but away from zero.",
        _SOURCE,
        "all 128 x 128 pairs of significands of one binade, alone and with a residue of 2^-20; the "
        "mean error in ulp of the result (our measure of the paper's argument)",
    ),
    Claim(
        "the collapse",
        "The bias ends the training of a GPT-2 whose attention is computed in BF16.",
        _SOURCE, "nothing",
        missing="data, seeds and the many GPU hours of the training",
    ),
]
RESIDUE = 2.0**-20


def run(quick: bool, seed: int) -> Result:
    half, single = Context(BFLOAT16), Context(BINARY32)
    rounded = float(half.array(SUM))
    rows: list[Row] = [
        equal("the example", "the sum is a number of FP32", True, float(single.array(SUM)) == SUM),
        equal("the example", "in BF16", ROUNDED, rounded),
        equal("the example", "error", ERROR, rounded - SUM),
    ]
    significands = np.arange(128, 256) / 128
    sums = np.add.outer(significands, significands)
    for name, residue, bias in (("alone", 0.0, 0.0), ("with a residue", RESIDUE, 0.25)):
        exact = sums + residue
        errors = (half.array(exact).values - exact + residue) / half.format.ulp(2.0)
        rows.append(equal("the bias", f"mean error {name}, ulp", bias, float(errors.mean())))
        shares = np.unique(errors, return_counts=True)
        rows += [
            {"row": "error", "curve": name, "error": float(error), "pairs": int(n)}
            for error, n in zip(*shares, strict=True)
        ]
    sentence = "Alone, ties go up as often as down; a residue of their sign sends all of them up."
    return published(CLAIMS, rows, sentence, "c=bf16, rounding=RNE", (ELEMENTWISE,))


def plot(result: Result) -> Figure:
    from ipu.run.pages.drawing import BLUE, ORANGE, new_figure

    figure, (axes,) = new_figure(6, 4, mosaic="A")
    for name, color, shift in (("alone", BLUE, -0.03), ("with a residue", ORANGE, 0.03)):
        errors = result.column("error", row="error", curve=name)
        pairs = result.column("pairs", row="error", curve=name)
        axes.bar(errors + shift, pairs / 128**2, 0.06, color=color, label=name)
    axes.set(title="Sums of all pairs of BF16 significands, rounded to BF16",
             xlabel="error of the rounding, ulp", ylabel="share of the pairs")
    axes.legend(fontsize=9)
    return figure
