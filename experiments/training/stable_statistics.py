"""Batch norm of data far from zero: the variance as mean of squares less square of the mean, or
from data whose mean has been taken off first (`use_stable_statistics`).

The data are N(0, 1) plus an offset, rounded to FP16; the exact deviation is that of the rounded
data. The mean is stored in the format of the activations. From an offset of 1024 on the spacing of
FP16 itself is as large as the deviation, which neither way can undo.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from fpsim import BINARY16, BINARY32
from fpsim.records.formats import Format
from ipu.experiments.lab.progress import progress
from ipu.experiments.lab.result import ELEMENTWISE, Result, Row, UnitUsed
from ipu.machine import Device
from ipu.ops.norms import batch_statistics

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

QUESTION = "How far from zero may activations lie before batch norm loses their variance?"
BUDGET = 60
DEFAULT = False

OFFSETS = [2.0**e for e in range(-3, 12)]
FORMATS = {"FP16": BINARY16, "FP32": BINARY32}
EPSILON = 1e-5
#: A channel whose 1/σ is off by more has lost its variance.
LOST = 0.1
_NORMS = UnitUsed("statistics of norms", "DOCUMENTED", "poplibs Norms.cpp, InverseStdDeviation.cpp")


def run(quick: bool, seed: int) -> Result:
    samples, channels = (256, 8) if quick else (4096, 32)
    draw = np.random.default_rng(seed)
    noise = draw.standard_normal((samples, channels))
    rows: list[Row] = []
    for offset in progress(OFFSETS, "offsets"):
        for name, fmt in FORMATS.items():
            for stable in (False, True):
                errors = _errors(noise + offset, fmt, stable)
                rows.append({"format": name, "stable": stable, "offset": offset, **errors})
    parameters = {"samples": samples, "channels": channels, "epsilon": EPSILON, "seed": seed}
    return Result(rows, _answer(rows), "c=f16|f32, statistics f32", parameters,
                  (ELEMENTWISE, _NORMS))


def _errors(values: np.ndarray, fmt: Format, stable: bool) -> Row:
    """Of 1/σ over the channels: root mean square and largest relative error."""
    device = Device()
    x = device.from_host(values, fmt)
    inverse = batch_statistics(device, x, EPSILON, stable).inverse.values.reshape(-1)
    exact = 1 / np.sqrt(x.values.astype(np.float64).var(axis=0) + EPSILON)
    error = inverse.astype(np.float64) / exact - 1
    return {"rms": float(np.sqrt((error**2).mean())), "largest": float(np.abs(error).max())}


def lost_from(result: Result, fmt: str, stable: bool) -> float | None:
    """The first offset at which 1/σ is off by more than LOST in some channel."""
    rows = result.select(format=fmt, stable=stable)
    return next((float(str(r["offset"])) for r in rows if float(str(r["largest"])) > LOST), None)


def _answer(rows: list[Row]) -> str:
    table = Result(rows, "", "")

    def from_on(fmt: str, stable: bool) -> str:
        offset = lost_from(table, fmt, stable)
        return f"from {offset:g}σ on" if offset else f"nowhere up to {OFFSETS[-1]:g}σ"

    return (
        f"With the mean of squares 1/σ is off by more than {LOST:.0%} in some channel "
        f"{from_on('FP16', False)} in FP16 and {from_on('FP32', False)} in FP32; with stable "
        f"statistics {from_on('FP16', True)} and {from_on('FP32', True)}."
    )


def plot(result: Result) -> Figure:
    from ipu.run.pages.drawing import BLUE, GREY, THEORY, new_figure

    figure, (axes,) = new_figure(9, 4.8)
    for name, color in zip(FORMATS, (BLUE, GREY), strict=True):
        for stable, style in ((False, "-"), (True, "--")):
            _line(axes, result, name, stable, color, style)
    axes.axhline(LOST, label=f"{LOST:.0%}", **THEORY)
    axes.set(title="Error of 1/σ in batch norm", xlabel="offset of the data, in σ",
             ylabel="relative error of the worst channel", ylim=(1e-9, 2e3))
    axes.legend(fontsize=9, loc="upper left")
    return figure


def _line(axes: Axes, result: Result, name: str, stable: bool, color: str, style: str) -> None:
    offset = result.column("offset", format=name, stable=stable)
    error = np.maximum(result.column("largest", format=name, stable=stable), 1e-9)
    label = f"{name}, {'stable' if stable else 'mean of squares'}"
    axes.loglog(offset, error, style, marker="o", markersize=3, color=color, label=label, base=2)
    axes.set_yscale("log", base=10)
