"""Sums of FP8 products in a short accumulator, and their promotion, after DeepSeek-V3."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

import ipu.machine  # noqa: F401  (registers the units)
from fpsim import BINARY32, E4M3FN, Array, Context
from fpsim.records.units import find_unit
from ipu.experiments.lab.progress import progress
from ipu.experiments.lab.result import Result, Row, unit_used
from ipu.experiments.published.claim import Claim, published, tables, within
from ipu.experiments.sums.exact import inner_products, norm
from ipu.run.verdict import Effect

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["plot", "run", "tables"]

QUESTION = "How wrong are FP8 sums of 4096 products, and does promotion every 128 help?"
BUDGET = 30
DEFAULT = False

_SOURCE = "DeepSeek-V3 technical report, arXiv 2412.19437, section 3.3.2"
_SETUP = (
    "256 products of 4096 E4M3 numbers through H100_E4M3_F32 (our record of the tensor core, whose "
    "window is INFERRED), numpy's generator with seed 0"
)
CLAIMS = [
    Claim("2 percent", 'With K = 4096 the accumulator leads to a maximum relative error of "nearly '
          '2%".', _SOURCE, f"{_SETUP}; uniform and normal numbers",
          missing="the distribution and scale of the inputs, on which the error depends more than "
          "tenfold"),
    Claim("promotion", "Adding partial sums of 128 terms in FP32 restores the precision.", _SOURCE,
          f"{_SETUP}; partial sums of 128 from the unit, added in FP32; the error is at least ten "
          "times smaller"),
]
UNIT, TERMS, CHUNK, SIDE = "H100_E4M3_F32", 4096, 128, 16


def _errors(a: Array, b: Array, product: NDArray[np.float32]) -> tuple[float, float]:
    """The largest relative error, and the error's norm over that of the product."""
    exact, _ = inner_products(a.values, b.values)
    error = np.abs(product - exact)
    return float((error / np.abs(exact)).max()), norm(error) / norm(exact)


def _promoted(single: Context, a: Array, b: Array) -> NDArray[np.float32]:
    total = single.zeros((SIDE, SIDE))
    for k in range(0, TERMS, CHUNK):
        total = total + single.matmul(a[:, k : k + CHUNK], b[k : k + CHUNK], UNIT)
    return np.asarray(total.values)


def run(quick: bool, seed: int) -> Result:
    quarter, single = Context(E4M3FN), Context(BINARY32)
    draws = np.random.default_rng(0)
    inputs = {"uniform": draws.random((2, SIDE, TERMS)),
              "normal": draws.standard_normal((2, SIDE, TERMS))}
    rows: list[Row] = []
    for name, (left, right) in progress(inputs.items(), "inputs", len(inputs)):
        a, b = quarter.array(left), quarter.array(right.T)
        whole = np.asarray(single.matmul(a, b, UNIT).values)
        errors = _errors(a, b, whole), _errors(a, b, _promoted(single, a, b))
        for how, (largest, share) in zip(("4096 at once", "128, then FP32"), errors, strict=True):
            rows.append({"row": "error", "inputs": name, "curve": how, "largest": largest,
                         "norm": share})
        rows.append(within("2 percent", f"largest relative error, {name}", "nearly 2%", 0.015, 0.02,
                           Effect(errors[0][0])))
        # Largest errors of normal numbers are those of sums that cancel.
        before, after = (e[0] if name == "uniform" else e[1] for e in errors)
        rows.append(within("promotion", f"error before / after, {name}", "restored", 10.0, np.inf,
                           Effect(before / after)))
    shares = [r["largest"] for r in rows if r.get("curve") == "4096 at once"]
    sentence = (
        f"The largest error is {shares[0]:.1%} for uniform numbers and {shares[1]:.1%} for normal "
        "ones, whose sums cancel: it depends on the inputs."
    )
    return published(CLAIMS, rows, sentence, "c=e4m3,part=f32", unit_used(find_unit(UNIT)))


def plot(result: Result) -> Figure:
    from ipu.run.pages.drawing import BLUE, GREEN, new_figure

    figure, (axes,) = new_figure(6, 4, mosaic="A")
    for shift, (how, color) in zip((-0.2, 0.2), (("4096 at once", BLUE), ("128, then FP32", GREEN)),
                                   strict=True):
        norms = result.column("norm", row="error", curve=how)
        axes.bar(np.arange(len(norms)) + shift, norms, 0.4, color=color, label=how)
    axes.set_xticks(range(2), ["uniform", "normal"])
    axes.set(title="Sums of FP8 products on H100", xlabel="inputs", ylabel="norm of the error / of "
             "the product", yscale="log")
    axes.legend(fontsize=9)
    return figure
