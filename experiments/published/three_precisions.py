"""Refinement in three precisions: how ill-conditioned a system may be, after Carson and Higham."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from fpsim.linalg import refine
from ipu.experiments.lab.progress import progress
from ipu.experiments.lab.result import ELEMENTWISE, Result, Row
from ipu.experiments.published.claim import Claim, published, tables, within
from ipu.run.verdict import Effect, over_seeds

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["plot", "run", "tables"]

QUESTION = "To which condition number does FP16's LU solve a system to FP32's accuracy?"
BUDGET = 240
DEFAULT = False

_SOURCE = (
    "E. Carson and N. J. Higham, Accelerating the solution of linear systems by iterative "
    "refinement in three precisions, SIAM J. Sci. Comput. 40 (2018), abstract"
)
_SETUP = (
    "n = 100, singular values geometric and arithmetic from 1 to 1/k (random orthogonal factors of "
    "numpy's generator, seeds from 0 on), A, b in FP32; LU in FP16, corrections in FP32 by {how}, "
    "residuals in FP64; solved: a forward error of at most 2^-23 within {steps} steps. The mean of "
    "log10 of the first k that is not solved lies within 1 of the printed one"
)
CLAIMS = [
    Claim("LU", "Systems with condition numbers to about 10^4 are solved by LU in half precision.",
          _SOURCE, _SETUP.format(steps=30, how="substitution")),
    Claim("GMRES", "With GMRES, preconditioned by the factors, to about 10^8.",
          _SOURCE, _SETUP.format(
              steps=10, how="GMRES, which applies A and the factors in FP64")),
]
STEPS, BOUND = {"LU": 30, "GMRES": 10}, 2.0**-23
#: Series below which limits on a grid may coincide by chance, and show no spread.
FEWEST = 10
#: Rows and columns.
SIZE = 100
#: Exponents of condition numbers, what is claimed.
PARTS = {"LU": (np.arange(2.0, 6.1, 0.25), 4.0), "GMRES": (np.arange(7.0, 10.75, 0.5), 8.0)}


def _system(
    kappa: float, mode: str, seed: int
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    random = np.random.default_rng(seed)
    left, right = (np.linalg.qr(random.standard_normal((SIZE, SIZE)))[0] for _ in range(2))
    values = (
        kappa ** -np.linspace(0, 1, SIZE) if mode == "geometric"
        else np.linspace(1, 1 / kappa, SIZE)
    )
    a = (left * values @ right).astype(np.float32)
    return a, random.standard_normal(SIZE).astype(np.float32)


def _exact(a: NDArray[np.float32], b: NDArray[np.float32]) -> NDArray[np.float64]:
    """The solution to almost every digit of binary64: residuals in pairs."""
    result = refine(a.astype(np.float64), b.astype(np.float64), factor="binary64",
                    work="binary64", residual="pairs")
    return np.asarray(result.x.values)


def _is_solved(part: str, kappa: float, mode: str, seed: int) -> bool:
    a, b = _system(kappa, mode, seed)
    x = _exact(a, b)
    bound = BOUND * np.abs(x).max()

    def error(y: NDArray[np.float32]) -> bool:
        return bool(np.abs(y - x).max() <= bound)

    try:
        result = refine(a, b, factor="binary16", work="binary32", residual="binary64",
                        solver=part.lower(), steps=STEPS[part], watch=lambda y: error(y.values))
    except np.linalg.LinAlgError:
        return False  # a zero on the diagonal of U
    return any(result.watched)


def _limit(part: str, mode: str, seed: int) -> float:
    """Between the last system of a series that is solved and the first that is not."""
    exponents, _ = PARTS[part]
    first = next((i for i, exponent in enumerate(exponents)
                  if not _is_solved(part, 10.0**exponent, mode, seed)), len(exponents))
    return float(exponents[0] + (first - 0.5) * (exponents[1] - exponents[0]))


def run(quick: bool, seed: int) -> Result:
    rows: list[Row] = []
    for part, (exponents, claimed) in PARTS.items():
        seeds = {"LU": 2 if quick else 20, "GMRES": 1 if quick else 10}[part]
        limits = []
        # Geometric values cost GMRES ten times as much.
        modes = ("arithmetic",) if quick and part == "GMRES" else ("geometric", "arithmetic")
        series = [(mode, s) for mode in modes for s in range(seeds)]
        for mode, s in progress(series, part, len(series)):
            limits.append(_limit(part, mode, s))
            rows += [{"row": "system", "curve": part, "mode": mode, "seed": s, "exponent": float(e),
                      "solved": float(e < limits[-1])} for e in exponents]
        half_step = float(exponents[1] - exponents[0]) / 2
        mean = over_seeds(limits)
        uncertainty = mean.uncertainty + half_step if len(limits) >= FEWEST else math.inf
        effect = Effect(mean.value, uncertainty)
        rows.append(within(part, "log10 of the limit", f"about {claimed:g}", claimed - 1,
                           claimed + 1, effect))
        rows.append({"row": "limit", "curve": part, "exponent": effect.value})
    reached = {r["curve"]: r["exponent"] for r in rows if r.get("row") == "limit"}
    sentence = (
        f"Half of the systems are solved to 10^{reached['LU']:.1f} by substitution and to "
        f"10^{reached['GMRES']:.1f} by GMRES."
    )
    return published(CLAIMS, rows, sentence, "c=f16,work=f32,residual=f64", (ELEMENTWISE,))


def plot(result: Result) -> Figure:
    from ipu.run.pages.drawing import BLUE, GREEN, THEORY, new_figure

    figure, (axes,) = new_figure(7, 4, mosaic="A")
    for part, color in zip(PARTS, (BLUE, GREEN), strict=True):
        exponents, solved = (
            result.column(name, row="system", curve=part) for name in ("exponent", "solved")
        )
        places = np.unique(exponents)
        axes.plot(places, [solved[exponents == e].mean() for e in places], "o-", color=color,
                  label=f"corrections by {part}")
        axes.axvline(PARTS[part][1], **THEORY)
    axes.set(title="Systems solved to FP32 with LU in FP16", ylabel="share solved",
             xlabel="log10 of the condition number (dashed: the published limits)")
    axes.legend(fontsize=9)
    return figure
