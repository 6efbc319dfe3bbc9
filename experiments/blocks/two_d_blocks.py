"""Blocks of 16 x 16 are the same forward and backward, blocks of 1 x 16 are not.

The backward pass multiplies by the transposed weight, whose blocks lie along the other axis. With
one-dimensional blocks it sees other weights than the forward pass did.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from fpsim import quantize
from fpsim.inspect.blocks import signal_to_noise
from ipu.experiments.blocks.tensors import QUANTISERS, bars, relative, tensor
from ipu.experiments.lab.result import Result, Row

if TYPE_CHECKING:
    from matplotlib.figure import Figure

QUESTION = "Does the backward pass see the weights of the forward pass?"
BUDGET = 5
DEFAULT = False

BLOCKS = ("nvfp4", "nvfp4-2d", "mxfp8-rceil", "mxfp8-32x32", "mxfp4")


def run(quick: bool, seed: int) -> Result:
    size = 512 if quick else 1024
    w = tensor("normal", (size, size), seed)
    rows: list[Row] = []
    for name in BLOCKS:
        forward = quantize(w, name, axis=1).values
        backward = quantize(np.ascontiguousarray(w.T), name, axis=1).values.T
        rows.append({
            "block": name, "differ": float((forward != backward).mean()),
            "distance": relative(forward, backward), "sqnr": signal_to_noise(forward, w)[0],
        })
    parameters = {"shape": [size, size], "elements": "bfloat16"}
    return Result(rows, _answer(rows), "rounding=RNE", parameters, (QUANTISERS,))


def _answer(rows: list[Row]) -> str:
    of = {row["block"]: row for row in rows}
    one, two = of["nvfp4"], of["nvfp4-2d"]
    same = "the same bits" if two["differ"] == 0 else f"{two['differ']:.1%} other elements"
    return (
        f"With 1 x 16 blocks of NVFP4 {one['differ']:.0%} of the elements differ, by "
        f"{one['distance']:.1%} of the norm; 16 x 16 blocks give {same} and cost "
        f"{float(one['sqnr']) - float(two['sqnr']):.2f} dB ({one['sqnr']:.2f} to "  # type: ignore[arg-type]
        f"{two['sqnr']:.2f})."
    )


def plot(result: Result) -> Figure:
    from ipu.run.pages.drawing import new_figure

    figure, (differ, ratio) = new_figure(10, 4.2, mosaic="AB")
    bars(differ, list(BLOCKS), {
        "elements": [100 * v for v in result.column("differ")],
        "norm": [100 * v for v in result.column("distance")],
    })
    differ.set(title="Forward and backward weights differ", ylabel="share in %")
    bars(ratio, list(BLOCKS), {"SQNR": result.column("sqnr").tolist()})
    ratio.set(title="Signal to noise", ylabel="SQNR in dB")
    return figure
