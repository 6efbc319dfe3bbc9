"""Products of matrices summed in FP16, after Higham and Pranesh."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from fpsim import BINARY16, Array, Context
from fpsim.chop import MatlabRandom
from ipu.experiments.lab.progress import progress
from ipu.experiments.lab.result import ELEMENTWISE, Result, Row
from ipu.experiments.published.claim import Claim, published, same_digits, tables

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["plot", "run", "tables"]

QUESTION = "Does the error of a matrix product grow with its size if FP16 sums it?"
BUDGET = 60
DEFAULT = False

#: Size of the matrices: errors of FP16 sums, and of one rounding of the exact product, as printed.
PRINTED = {
    500: ("1.1945e-02", "4.8759e-04"), 1000: ("2.3047e-02", "4.8799e-04"),
    1500: ("4.0701e-02", "3.6660e-04"), 2000: ("4.5976e-02", "4.8803e-04"),
    2500: ("6.8770e-02", "4.2930e-04"),
}
SEED = 1
CLAIM = Claim(
    "FP16 products",
    "The error of a product that FP16 sums grows with n; that of one rounding does not.",
    "N. J. Higham and S. Pranesh, Simulating low precision floating-point arithmetic, SIAM J. Sci. "
    "Comput. 41 (2019); program matmult.m of github.com/SrikaraPranesh/LowPrecision_Simulation, "
    "whose comments hold the numbers",
    f"rng({SEED}); for each n matrices A, B = chop(rand(n)), n updates of rank one in FP16 to "
    "nearest; the largest |C - fl(C)| / (|A||B|), with C in binary64",
)
CLAIMS = [CLAIM]


def run(quick: bool, seed: int) -> Result:
    sizes = list(PRINTED)[: 2 if quick else None]
    half, random = Context(BINARY16), MatlabRandom(SEED)
    rows: list[Row] = []
    for n in progress(sizes, "products", len(sizes)):
        a, b = half.array(random.rand(n)), half.array(random.rand(n))
        for name, printed, error in zip(
            ("sums in FP16", "rounded once"), PRINTED[n], _errors(half, a, b), strict=True
        ):
            rows.append(same_digits(CLAIM.part, f"n = {n}, {name}", printed, error))
            rows.append({"row": "error", "curve": name, "n": n, "error": error})
    grown = [row["error"] for row in rows if row.get("curve") == "sums in FP16"]
    sentence = (
        f"From n = {sizes[0]} to {sizes[-1]} the error grows {grown[-1] / grown[0]:.1f} times; "  # type: ignore[operator]
        "rounded once it stays below 2⁻¹¹."
    )
    return published(CLAIMS, rows, sentence, "c=f16, rounding=RNE", (ELEMENTWISE,), sizes=sizes)


def _errors(half: Context, a: Array, b: Array) -> tuple[float, float]:
    """Largest errors over |A||B|: of the product in FP16, and of the exact one rounded once."""
    left, right = (np.asarray(x.values, dtype=np.float64) for x in (a, b))
    product, size = left @ right, np.abs(left) @ np.abs(right)

    def largest(result: NDArray[np.floating]) -> float:
        return float(np.max(np.abs(product - result) / size))

    return largest(half.matmul(a, b).values), largest(half.array(product).values)


def plot(result: Result) -> Figure:
    from ipu.run.pages.drawing import BLUE, GREEN, THEORY, new_figure

    figure, (axes,) = new_figure(6, 4, mosaic="A")
    for name, color in (("sums in FP16", BLUE), ("rounded once", GREEN)):
        n = result.column("n", row="error", curve=name)
        axes.semilogy(n, result.column("error", row="error", curve=name), "o-", color=color,
                      label=name)
    axes.axhline(2.0**-11, label="half an ulp of 1", **THEORY)
    axes.set(title="Products of random matrices", xlabel="n", ylabel="largest error / (|A||B|)")
    axes.legend(fontsize=9)
    return figure
