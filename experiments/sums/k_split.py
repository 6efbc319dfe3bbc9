"""One inner dimension cut over tiles: what a result gains or loses, and what it costs.

Each tile sums its part of K through the AMP from zero; then the parts are added in FP32 in order
and rounded once. Shorter chains lose less on the way, and more tiles need fewer cycles for the
products, until reduction and exchange outweigh them. Cycles are the ledger's declared model of the
busiest tile, never promised time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from fpsim import BINARY16, BINARY32
from fpsim.records.formats import Format
from ipu.experiments.lab.machine import units_of
from ipu.experiments.lab.progress import progress
from ipu.experiments.lab.result import Collected, Result, Row
from ipu.experiments.sums.exact import inner_products
from ipu.machine import Device

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

QUESTION = "What does splitting a long inner dimension over tiles change?"
BUDGET = 60
DEFAULT = False

TERMS = 16_384
SPLITS = [2**e for e in range(11)]
PARTIALS = {"half partials": BINARY16, "float partials": BINARY32}


def run(quick: bool, seed: int) -> Result:
    terms, side = (2_048, 8) if quick else (TERMS, 24)
    splits = [s for s in SPLITS if s <= terms // 16]
    draw = np.random.default_rng([seed, terms])
    a, b = np.abs(draw.standard_normal((side, terms))), np.abs(draw.standard_normal((terms, side)))
    collected = Collected()
    for name, partials in PARTIALS.items():
        for split in progress(splits, name):
            device = Device(partials=partials, seed=seed)
            row = _product(device, a / 4, b / 4, split, partials)
            collected.add([row], units_of(device), partials=name, tiles=split)
    parameters = {"terms": terms, "products": side * side, "operands": "|N(0, 1)|/4 in FP16"}
    policy = "c=f16, part=f16|f32, out=f16|f32, rounding=RNE"
    return Result(collected.rows, _answer(collected.rows), policy, parameters, collected.units)


def _product(device: Device, a: np.ndarray, b: np.ndarray, split: int, partials: Format) -> Row:
    """Error beside the exact sums, and the row of the ledger."""
    x, y = device.from_host(a, BINARY16), device.from_host(b, BINARY16)
    product = device.matmul(x, y, k_split=split, to=partials).values.astype(np.float64)
    exact, _ = inner_products(x.carrier, y.carrier)
    row = device.ledger.last
    assert row is not None
    return {
        "rms": float(np.sqrt(((product / exact - 1) ** 2).mean())),
        "mean": float((product / exact - 1).mean()),
        "cycles": row.cycles, "exchange_bytes": row.exchange_bytes, "passes": row.passes,
    }


def _answer(rows: list[Row]) -> str:
    table = Result(rows, "", "")

    def of(what: str, partials: str) -> np.ndarray:
        return table.column(what, partials=partials)

    tiles, half, single = of("tiles", "half partials"), *(of("rms", p) for p in PARTIALS)
    cycles = of("cycles", "float partials")
    best = int(np.argmin(cycles))
    return (
        f"Of positive terms one tile with half partials loses {half[0]:.1%} (rms), {tiles[-1]} "
        f"tiles lose {half[-1]:.2%}; with float partials {single[0]:.1e} and {single[-1]:.1e}. "
        f"By the model of cycles {tiles[best]} tiles are fastest with float partials: "
        f"{cycles[best]} cycles beside {cycles[0]} on one."
    )


def plot(result: Result) -> Figure:
    from ipu.run.pages.drawing import BLUE, GREY, new_figure

    figure, (errors, cycles, exchange) = new_figure(13, 4.4, mosaic="ABC")
    for name, color in zip(PARTIALS, (BLUE, GREY), strict=True):
        _line(errors, result, name, "rms", color)
        _line(cycles, result, name, "cycles", color)
        _line(exchange, result, name, "exchange_bytes", color)
    errors.set(title="Result", ylabel="relative error, root mean square")
    cycles.set(title="Time by the declared model", ylabel="cycles of the busiest tile")
    exchange.set(title="Exchange by the declared model", ylabel="bytes over the wires")
    for axes in (errors, cycles, exchange):
        axes.set_xlabel("tiles that share K")
        axes.legend(fontsize=9)
    return figure


def _line(axes: Axes, result: Result, name: str, what: str, color: str) -> None:
    tiles, values = result.column("tiles", partials=name), result.column(what, partials=name)
    axes.loglog(tiles[values > 0], values[values > 0], "o-", markersize=3, color=color, label=name)
    axes.set_xscale("log", base=2)
    axes.set_yscale("log", base=10)
