"""Which eight bits suit which data, after Kuzmin and others."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from fpsim import BINARY32, Context, Format
from ipu.experiments.lab.progress import progress
from ipu.experiments.lab.result import ELEMENTWISE, Result, Row
from ipu.experiments.published.claim import Claim, equal, published, tables

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["plot", "run", "tables"]

QUESTION = "Do uniform, normal and heavy-tailed data want more exponent bits, in that order?"
BUDGET = 20
DEFAULT = False

_SOURCE = (
    "A. Kuzmin and others, FP8 quantization: the power of the exponent, NeurIPS 2022; README of "
    "github.com/Qualcomm-AI-research/FP8-quantization"
)
_SETUP = (
    "2^18 numbers of numpy's generator with seed 0, scaled and clipped so that the mean square "
    "error is least (64 scales, 16 in an octave), rounded to nearest; signal over noise in dB. The "
    "two best formats differ by more than 0.3 dB"
)
CLAIMS = [
    Claim("order", "Uniform data want INT8, Gaussian data two exponent bits, data with outliers "
          "exponent bits too.", _SOURCE, _SETUP),
    Claim("decibels", "The printed ratios.", _SOURCE, _SETUP,
          missing="a ratio: what the program prints as such is the logarithm of the error alone"),
]
INTEGERS = "INT8"
#: Formats of eight bits in which every code is a finite number; M mantissa, E exponent bits.
FORMATS = {f"{7 - e}M{e}E": Format.custom(e, 8 - e, specials="finite") for e in (2, 3, 4, 5)}
WANTED = {"uniform": INTEGERS, "normal": "5M2E", "Student's t, 8 degrees": "5M2E"}
LEAST_GAP = 0.3


def _data(n: int) -> dict[str, NDArray[np.float64]]:
    random = np.random.default_rng(0)
    return {"uniform": random.uniform(-1, 1, n), "normal": random.standard_normal(n),
            "Student's t, 8 degrees": random.standard_t(8, n)}


def _rounded(name: str) -> tuple[Callable[[NDArray[np.float64]], NDArray[np.float64]], float]:
    """Rounding to a format whose largest number is the second value."""
    if name == INTEGERS:
        single = Context(BINARY32)

        def to_integers(x: NDArray[np.float64]) -> NDArray[np.float64]:
            return single.to_integers(single.array(x).clip(-127.0, 127.0), "int8").astype(float)

        return to_integers, 127.0
    context = Context(FORMATS[name], overflow="saturate")
    return lambda x: np.asarray(context.array(x).values, np.float64), FORMATS[name].max


def _decibels(name: str, x: NDArray[np.float64]) -> float:
    """Signal over noise with the best clipping."""
    round_, largest = _rounded(name)
    signal, least = float(np.mean(x * x)), math.inf
    for step in range(64):
        scale = largest / (np.abs(x).max() * 2.0 ** (-step / 16))
        error = round_(np.clip(x * scale, -largest, largest)) / scale - x
        least = min(least, float(np.mean(error * error)))
    return 10 * math.log10(signal / least)


def run(quick: bool, seed: int) -> Result:
    rows: list[Row] = []
    names = [INTEGERS, *FORMATS]
    for data, x in progress(_data(1 << (15 if quick else 18)).items(), "data", len(WANTED)):
        ratios = {name: _decibels(name, x) for name in names}
        best, second = sorted(ratios, key=lambda name: -ratios[name])[:2]
        is_clear = ratios[best] - ratios[second] > LEAST_GAP
        rows.append(equal("order", f"best for {data} data", WANTED[data],
                          best if is_clear else f"{best} or {second}"))
        rows += [{"row": "ratio", "data": data, "format": name, "decibels": ratio}
                 for name, ratio in ratios.items()]
        if data != "uniform":
            rows.append(equal("order", f"INT8 loses on {data} data", True,
                              ratios[best] - ratios[INTEGERS] > LEAST_GAP))
    decibels = {(r["data"], r["format"]): r["decibels"] for r in rows if r.get("row") == "ratio"}
    sentence = (
        f"INT8 has {decibels['uniform', INTEGERS]:.1f} dB of uniform data, 5M2E "
        f"{decibels['normal', '5M2E']:.1f} dB of normal ones, where INT8 has "
        f"{decibels['normal', INTEGERS]:.1f} dB."
    )
    return published(CLAIMS, rows, sentence, "c=8 bits, rounding=RNE", (ELEMENTWISE,))


def plot(result: Result) -> Figure:
    from ipu.run.pages.drawing import BLUE, GREEN, ORANGE, new_figure

    figure, (axes,) = new_figure(7, 4, mosaic="A")
    for data, color in zip(WANTED, (BLUE, GREEN, ORANGE), strict=True):
        names, ratios = (result.column(c, row="ratio", data=data) for c in ("format", "decibels"))
        axes.plot(names, ratios, "o-", color=color, label=data)
    axes.set(title="Eight bits with the best clipping", xlabel="format",
             ylabel="signal / noise, dB")
    axes.legend(fontsize=9)
    return figure
