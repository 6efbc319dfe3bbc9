"""Chunks rescue the sums of a narrow accumulator, after Wang and others."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from fpsim import Context, Format
from ipu.experiments.lab.progress import progress
from ipu.experiments.lab.result import ELEMENTWISE, Result, Row
from ipu.experiments.published.claim import Claim, equal, published, tables, within
from ipu.run.verdict import over_seeds

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["plot", "run", "tables"]

QUESTION = "Do chunks rescue sums in a format of nine fraction bits?"
BUDGET = 30
DEFAULT = False

#: One bit of sign, six of exponent, nine of fraction.
FORMAT = Format.custom(6, 10, name="fp16_1_6_9")
CLAIM = Claim(
    "sums of a long vector",
    "Sums of numbers with mean 1 stop growing at 4096 in FP16 (1, 6, 9), and follow FP32 in chunks "
    "of 32 to 256.",
    "N. Wang and others, Training deep neural networks with 8-bit floating point numbers, NeurIPS "
    "2018, section 2.3",
    "64 vectors of uniform numbers with mean 1 and standard deviation 1, rounded to the format, "
    "summed one after the other, and in chunks whose sums are summed; numpy's generator, seed 0",
    missing="the numbers of the paper's figure were not at hand; 0.98 to 1.02 is ours",
)
CLAIMS = [CLAIM]
CHUNKS = (1, 8, 32, 64, 256, 1024, 4096)
RESCUED = (32, 64, 256)
LANES = 64


def run(quick: bool, seed: int) -> Result:
    n = 1 << (14 if quick else 16)
    context = Context(FORMAT)
    spread = np.sqrt(3.0)
    draws = np.random.default_rng(0).uniform(1 - spread, 1 + spread, (LANES, n))
    terms = context.array(draws)
    exact = np.float64(terms.values).sum(axis=1)
    rows: list[Row] = []
    for chunk in progress(CHUNKS, "chunks", len(CHUNKS)):
        parts = context.sum(terms.reshape(LANES, n // chunk, chunk), axis=2)
        sums = np.float64(context.sum(parts, axis=1).values)
        ratios = sums / exact
        rows.append({"row": "sum", "chunk": chunk, "ratio": float(ratios.mean()),
                     "spread": float(ratios.std()), "least": float(sums.min()),
                     "most": float(sums.max())})
        if chunk == 1:
            rows.append(equal(CLAIM.part, "sums one after the other, least", 4096.0, sums.min()))
            rows.append(equal(CLAIM.part, "sums one after the other, most", 4096.0, sums.max()))
        if chunk in RESCUED:
            rows.append(within(CLAIM.part, f"chunks of {chunk}, sum / exact", "follows FP32",
                               0.98, 1.02, over_seeds(ratios)))
    best = min(rows, key=lambda row: abs(float(row.get("ratio", 0)) - 1))  # type: ignore[arg-type]
    sentence = (
        f"One after the other each of {LANES} sums stops at 4096 of about {n}; chunks of "
        f"{best['chunk']} reach {best['ratio']:.3f} of the exact sum."
    )
    return published(CLAIMS, rows, sentence, "c=1-6-9, rounding=RNE", (ELEMENTWISE,), n=n,
                     lanes=LANES)


def plot(result: Result) -> Figure:
    from ipu.run.pages.drawing import BLUE, THEORY, new_figure

    figure, (axes,) = new_figure(6, 4, mosaic="A")
    chunks = result.column("chunk", row="sum")
    axes.errorbar(chunks, result.column("ratio", row="sum"), result.column("spread", row="sum"),
                  fmt="o-", color=BLUE, label="mean of 64 sums; bars: one standard deviation")
    axes.axhline(1, label="exact", **THEORY)
    axes.set(title="Sums in FP16 (1, 6, 9)", xlabel="numbers of a chunk", ylabel="sum / exact sum",
             xscale="log")
    axes.legend(fontsize=9)
    return figure
