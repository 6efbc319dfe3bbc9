"""What a Hadamard transform along tokens does for the weight gradient, with and without outliers.

Two per cent of the tokens are 30 or 100 times as large. In a block of 16 tokens one of them takes
the scale, and the others fall to a few codes or to zero. The transform spreads it over the block:
what is gained in the mean is paid with noise on the ordinary tokens.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from fpsim import quantize, round_to
from fpsim.elementwise.blocks.transforms import transformed
from fpsim.inspect.blocks import signal_to_noise
from fpsim.records.transforms import find_transform
from ipu.experiments.blocks.tensors import QUANTISERS, bars, relative, tensor
from ipu.experiments.lab.result import Result, Row
from ipu.experiments.sums.exact import product

if TYPE_CHECKING:
    from matplotlib.figure import Figure

QUESTION = "Does a random Hadamard transform help the weight gradient in NVFP4?"
BUDGET = 12
DEFAULT = False

OUTLIERS = (1, 30, 100)
SHARE = 0.02


def run(quick: bool, seed: int) -> Result:
    tokens, features = (2048, 128) if quick else (4096, 256)
    rows: list[Row] = []
    for factor in OUTLIERS:
        x, ordinary = _with_outliers(tensor("normal", (tokens, features), seed), factor, seed)
        dy = tensor("normal", (tokens, features), seed + 1)
        exact = product(x.T, dy)
        for transform in (None, "rht16"):
            values = _values(x, transform)
            error = relative(values[ordinary], x[ordinary])
            gain = signal_to_noise(values[ordinary], x[ordinary])[1]
            gradient = product(values.T, _values(dy, transform))
            rows.append({
                "outliers": factor, "transform": transform or "none", "error": error, "gain": gain,
                "error_of_product": relative(gradient, exact),
            })
    parameters = {"tokens": tokens, "features": features, "share of outliers": SHARE}
    return Result(rows, _answer(rows), "rounding=RNE", parameters, (QUANTISERS,))


def _with_outliers(
    x: NDArray[np.float32], factor: int, seed: int
) -> tuple[NDArray[np.float32], NDArray[np.bool_]]:
    """Some tokens so many times as large; which are not."""
    large = np.random.default_rng([seed, 7]).random(len(x)) < SHARE
    scaled: NDArray[np.float32] = round_to(x * np.where(large, factor, 1)[:, None], "bfloat16")
    return scaled, ~large


def _values(x: NDArray[np.float32], transform: str | None) -> NDArray[np.float64]:
    """What NVFP4 along tokens holds of x, the transform undone (H is its own inverse)."""
    values = quantize(x, "nvfp4", axis=0, transform=transform).values
    if transform is None:
        return values
    record = find_transform(transform)
    assert record.signs is not None
    blocks = np.moveaxis(values, 0, -1).reshape(x.shape[1], -1, record.size)
    # Rows of the matrix are what the transform makes of unit vectors, signs included.
    matrix = transformed(np.eye(record.size, dtype=np.float32), record).astype(np.float64)
    # Exact in any order: numbers of binary32 under one scale, with weights of a quarter.
    back = blocks @ matrix.T
    return np.ascontiguousarray(np.moveaxis(back.reshape(x.shape[1], -1), -1, 0))


def _answer(rows: list[Row]) -> str:
    of = {(row["outliers"], row["transform"]): row for row in rows}
    sentences = []
    for factor in OUTLIERS[1:]:
        plain, turned = of[factor, "none"], of[factor, "rht16"]
        sentences.append(
            f"with tokens {factor} times as large the error of ordinary tokens goes from "
            f"{plain['error']:.2f} to {turned['error']:.2f} and their gain from "
            f"{plain['gain']:.3f} to {turned['gain']:.3f}"
        )
    plain, turned = of[1, "none"], of[1, "rht16"]
    return (
        f"It trades: {'; '.join(sentences)}. Without outliers it changes nothing: the error of the "
        f"weight gradient is {plain['error_of_product']:.4f} without and "
        f"{turned['error_of_product']:.4f} with it."
    )


def plot(result: Result) -> Figure:
    from ipu.run.pages.drawing import new_figure

    figure, (error, gain) = new_figure(10, 4.2, mosaic="AB")
    names = [f"x{factor}" for factor in OUTLIERS]
    for axes, what in ((error, "error"), (gain, "gain")):
        bars(axes, names, {
            kind: result.column(what, transform=kind).tolist() for kind in ("none", "rht16")
        })
    error.set(title="Ordinary tokens", xlabel="outliers", ylabel="error, share of the norm")
    gain.set(title="Ordinary tokens", xlabel="outliers", ylabel="gain")
    return figure
