"""Rates of kernels against what memory and multipliers of the machine allow, as a picture.

A kernel's intensity is how many results, or multiply-adds, there are for each byte that has to move
between memory and processor at least once: operands in, results out, in carriers. The sloping roof
is the bandwidth of np.copyto, the level one the rate of BLAS in binary32: medians of the records. A
kernel stands as far below its roof as it was in its own run, since a machine's speed varies.

Source    Williams, Waterman, Patterson 2009, Roofline (CACM 52(4)).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ipu.experiments.bench.compare import read as records_of
from ipu.experiments.bench.hardware import Hardware

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["Point", "Roofs", "draw", "points", "read", "roofs"]

#: Numbers that an operation reads and writes for each result.
_ARRAYS = {"sqrt": 2, "fma": 4}

#: Families of points: marker and which colour of `drawing`.
_LOOKS = {
    "rounding": ("o", "BLUE"), "stochastic rounding": ("s", "ORANGE"),
    "+ − × ÷ √ fma": ("^", "GREEN"), "products rounded after × and +": ("D", "PURPLE"),
    "products through units": ("v", "RED"),
}

#: Logarithms of rates by which labels are apart.
_APART = 0.15

#: Families whose points have their names beside them.
_PRODUCTS = ("products rounded after × and +", "products through units")


class Point(NamedTuple):
    """A measured kernel: results for each byte, and its rate as a share of the roof's."""

    family: str
    label: str
    intensity: float
    share: float


class Roofs(NamedTuple):
    """10^9 bytes a second of a copy, 10^9 multiply-adds a second of BLAS in binary32."""

    bandwidth: float
    multiplies: float

    def at(self, intensity: float) -> float:
        """The highest rate there."""
        return min(self.bandwidth * intensity, self.multiplies)


def read(files: Sequence[Path]) -> list[dict[str, Any]]:
    """Records of several files, of one machine.

    Raises    ValueError for records of several machines, and where a roof is missing.
    """
    records = [record for file in files for record in records_of(file)]
    machines = {json.dumps(record.get("hardware"), sort_keys=True) for record in records}
    if len(machines) > 1:
        raise ValueError("the records are of several machines; draw those of one")
    roofs(records)
    return records


def roofs(records: Sequence[Mapping[str, Any]]) -> Roofs:
    """Both roofs, from the copies of `round` and the BLAS of `gemm`."""
    copies = [_copied(r) / r["reference"] for r in records if _is_round(r)]
    blas = [r["reference"] for r in records if r["topic"].startswith("gemm")]
    if not copies or not blas:
        raise ValueError("no roof without records of both topics; run: fpsim bench round, gemm")
    return Roofs(median(copies), median(blas))


def _is_round(record: Mapping[str, Any]) -> bool:
    return record["topic"].startswith("round") and record["peer"] is None


def _is_blas(record: Mapping[str, Any]) -> bool:
    return bool(record["topic"].startswith("gemm BLAS"))


def _copied(record: Mapping[str, Any]) -> int:
    """Bytes that move for each element of the copy."""
    return 16 if "64" in record["topic"] else 8


def points(records: Sequence[Mapping[str, Any]]) -> Iterator[Point]:
    """Kernels of the project; other tools, and BLAS, are none."""
    for r in records:
        topic, _, rest = r["topic"].partition(" ")
        if r.get("peer") or _is_blas(r):
            continue
        mode = r["rounding"] if r["bits"] is None else f"{r['rounding']}({r['bits']})"
        label = f"{r['format']} {mode}{' flags' if r['flags'] else ''}"
        if topic == "gemm":
            family = "products through units" if rest else "products rounded after × and +"
            data = "" if r["data"] == "normal" else f", {r['data']}"
            yield Point(family, (rest or label) + data, r["n"] / 12, r["ratio"])
        elif topic.startswith("round"):
            random = r["rounding"] == "SR"
            family = "stochastic rounding" if random else "rounding"
            yield Point(family, label, 1 / _copied(r), 1 / r["ratio"])
        elif topic.startswith("arith"):
            arrays = _ARRAYS.get(rest, 3)  # the reference copies one: it moves two
            intensity, share = 2 / (arrays * _copied(r)), arrays / 2 / r["ratio"]
            yield Point("+ − × ÷ √ fma", f"{rest} {label}", intensity, share)


def draw(axes: Axes, records: Sequence[Mapping[str, Any]]) -> None:
    """Every kernel under its roof."""
    from ipu.run.pages import drawing

    roof, kernels = roofs(records), list(points(records))
    ridge = roof.multiplies / roof.bandwidth
    intensities = [p.intensity for p in kernels]
    xs = [min(intensities) / 1.6, ridge, max(*intensities, ridge) * 6]
    axes.plot(xs, [roof.at(x) for x in xs], **drawing.THEORY)
    _name(axes, f"np.copyto: {roof.bandwidth:.1f} GB/s", ridge / 8, roof.at(ridge / 8), (-6, 4))
    _name(axes, f"BLAS, binary32: {roof.multiplies:.0f} GMAC/s", ridge, roof.multiplies, (4, 4))
    for family, (marker, colour) in _LOOKS.items():
        of_family = [p for p in kernels if p.family == family]
        if of_family:
            rates = [p.share * roof.at(p.intensity) for p in of_family]
            axes.plot([p.intensity for p in of_family], rates, marker, label=family,
                      color=getattr(drawing, colour), markersize=5, alpha=0.75)
    products = sorted((p for p in kernels if p.family in _PRODUCTS), key=lambda p: p.share)
    rates = [p.share * roof.at(p.intensity) for p in products]
    for point, rate, height in zip(products, rates, _spread(rates), strict=True):
        axes.annotate(
            point.label, (point.intensity, rate), (point.intensity * 1.5, height), fontsize=7,
            va="center", zorder=5, bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.3},
            arrowprops={"arrowstyle": "-", "linewidth": 0.4, "relpos": (0, 0.5), "shrinkA": 0},
        )
    axes.set(xscale="log", yscale="log",
             xlabel="results, or multiply-adds, for each byte that has to move",
             ylabel="10⁹ results, or multiply-adds, a second")
    axes.set_title(_machine(records), fontsize=9.5)
    axes.legend(fontsize=8.5, loc="lower left", bbox_to_anchor=(0.3, 0.0))


def _name(axes: Axes, text: str, x: float, y: float, offset: tuple[int, int]) -> None:
    """A roof's name above it: left of the point where the offset goes left."""
    side: Any = "right" if offset[0] < 0 else "left"
    axes.annotate(text, (x, y), offset, textcoords="offset points", fontsize=8.5, ha=side)


def _spread(rates: Sequence[float]) -> list[float]:
    """Heights of labels, near their rates in order, so far apart that they do not overlap."""
    from scipy.optimize import isotonic_regression

    if not rates:
        return []
    apart = _APART * np.arange(len(rates))
    heights: list[float] = np.exp(isotonic_regression(np.log(rates) - apart).x + apart).tolist()
    return heights


def _machine(records: Sequence[Mapping[str, Any]]) -> str:
    """The machine and its compiler, a line each."""
    hardware = records[0].get("hardware")
    threads = ", ".join(str(n) for n in sorted({r["threads"] for r in records}))
    named = str(Hardware(**hardware)) if hardware else "an unknown machine"
    return named.replace("; ", "\n") + f"; threads: {threads}"
