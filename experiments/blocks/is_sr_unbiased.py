"""Whether stochastic rounding under a scale keeps the mean.

Stochastic rounding of one number is unbiased up to its random bits, unless it saturates.
A scale that is rounded down, or chosen as floor does, makes the largest elements saturate: the mean
of all 256 draws then lies below. Headroom, or three quarters of each element, avoids it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from fpsim import SR, quantize
from fpsim.inspect.blocks import signal_to_noise
from ipu.experiments.blocks.tensors import QUANTISERS, bars, relative, tensor
from ipu.experiments.lab.result import STOCHASTIC, Result, Row

if TYPE_CHECKING:
    from matplotlib.figure import Figure

QUESTION = "Is stochastic rounding of NVFP4 and MXFP4 gradients unbiased?"
BUDGET = 12
DEFAULT = False

BLOCKS = ("nvfp4", "nvfp4-1617", "mxfp4", "mxfp4-34", "mxfp8", "mxfp8-rceil")


def run(quick: bool, seed: int) -> Result:
    size = 256 if quick else 512
    x = tensor("normal", (size, size), seed)
    rows: list[Row] = [_row(name, x) for name in BLOCKS]
    parameters = {"shape": [size, size], "draws": "all 256", "elements": "bfloat16"}
    return Result(rows, _answer(rows), "rounding=SR(bits=8)", parameters, (QUANTISERS, STOCHASTIC))


def _row(name: str, x: np.ndarray) -> Row:
    """Bias of the mean over all values of eight random bits, beside one rounding to nearest."""
    total = np.zeros(x.shape)
    for r in range(256):
        total += quantize(x, name, rounding=SR(bits=8), random=np.full(x.shape, r)).values
    mean, nearest = total / 256, quantize(x, name).values
    return {
        "block": name, "bias": relative(mean, x), "gain": signal_to_noise(mean, x)[1] - 1,
        "gain_nearest": signal_to_noise(nearest, x)[1] - 1, "error_nearest": relative(nearest, x),
    }


def _answer(rows: list[Row]) -> str:
    bias = {row["block"]: float(row["bias"]) for row in rows}  # type: ignore[arg-type]
    return (
        f"No: the mean of all draws misses {bias['nvfp4']:.2%} of the norm in TransformerEngine's "
        f"NVFP4 recipe and {bias['mxfp4']:.1%} in MXFP4 with floor, since scales that lie too low "
        f"clip. With headroom 17/16 it is {bias['nvfp4-1617']:.3%}, with three quarters of each "
        f"element {bias['mxfp4-34']:.3%}."
    )


def plot(result: Result) -> Figure:
    from ipu.run.pages.drawing import new_figure

    figure, (axes,) = new_figure(7, 4.4, mosaic="A")
    bars(axes, list(BLOCKS), {
        "mean of all draws": [100 * v for v in result.column("bias")],
        "shrinkage, to nearest": [-100 * v for v in result.column("gain_nearest")],
    })
    axes.set(title="What stochastic rounding leaves", ylabel="share of the norm in %",
             yscale="symlog")
    return figure
