"""How much of an FP32 number two FP16 numbers hold, after Ootomo and Yokota."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from fpsim import BINARY16, BINARY32, RNE, RTZ, Context, Rounding
from ipu.experiments.lab.result import ELEMENTWISE, Result, Row
from ipu.experiments.published.claim import Claim, equal, published, tables

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["plot", "run", "tables"]

QUESTION = "How many bits of an FP32 significand do two FP16 numbers keep?"
BUDGET = 20
DEFAULT = False

_SOURCE = (
    "H. Ootomo and R. Yokota, Recovering single precision accuracy from tensor cores, Int. J. High "
    "Perform. Comput. Appl. 36 (2022), as quoted by others"
)
_SETUP = (
    "all 2^23 significands: high = FP16(x), low = FP16(x - high), both {}; a lost part of k bits "
    "leaves 23 - k"
)
CLAIMS = [
    Claim("to nearest", "Two FP16 numbers hold 22.75 bits on average.", _SOURCE,
          _SETUP.format("to nearest")),
    Claim("toward zero", "Two FP16 numbers hold 22.5 bits on average.", _SOURCE,
          _SETUP.format("toward zero"),
          missing="the definition of the mean for this mode: the paper itself was not at hand"),
]
_BLOCK = 1 << 20


def _blocks(blocks: int) -> Iterator[NDArray[np.float64]]:
    for start in range(0, blocks * _BLOCK, _BLOCK):
        yield 1 + np.arange(start, start + _BLOCK) / 2.0**23


def _lost(mode: Rounding, blocks: int) -> NDArray[np.int64]:
    """How many significands lose 0, 1, 2 … bits."""
    half, counts = Context(BINARY16, rounding=mode), np.zeros(24, np.int64)
    for x in _blocks(blocks):
        high = np.float64(half.array(x).values)
        low = np.float64(half.array(x - high).values)
        units = np.abs(x - high - low) / BINARY32.ulp(1.0)
        counts += np.bincount(np.frexp(units)[1].clip(0), minlength=24)
    return counts


def run(quick: bool, seed: int) -> Result:
    rows: list[Row] = []
    for (name, text), mode in zip(
        (("to nearest", 22.75), ("toward zero", 22.5)), (RNE, RTZ), strict=True
    ):
        counts = _lost(mode, 1 if quick else 8)
        mean = 23 - float(counts @ np.arange(24) / counts.sum())
        rows.append(equal(name, "bits kept, mean", text, mean))
        rows += [
            {"row": "lost", "curve": name, "bits": bits, "share": float(n / counts.sum())}
            for bits, n in enumerate(counts[:4])
        ]
    sentence = "Toward zero the low half has no sign to use, which costs half a bit."
    return published(CLAIMS, rows, sentence, "c=f16, rounding=RNE|RTZ", (ELEMENTWISE,),
                     significands="a block of 2^20" if quick else "all")


def plot(result: Result) -> Figure:
    from ipu.run.pages.drawing import BLUE, ORANGE, new_figure

    figure, (axes,) = new_figure(6, 4, mosaic="A")
    for name, color, shift in (("to nearest", BLUE, -0.2), ("toward zero", ORANGE, 0.2)):
        bits = result.column("bits", row="lost", curve=name)
        axes.bar(bits + shift, result.column("share", row="lost", curve=name), 0.4, color=color,
                 label=name)
    axes.set(title="FP32 significands in two FP16 numbers", xlabel="bits lost",
             ylabel="share of the significands", xticks=range(4))
    axes.legend(fontsize=9)
    return figure
