"""What every IPU holds: liveness by kind over time, and its peak beside the tiles' memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from ipu.experiments.pictures.looks import HOLDS
from ipu.machine.target import Target
from ipu.plan.memory import KINDS, Live, capacity, peaks
from ipu.plan.plan import Plan

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["draw_liveness", "draw_tile_memory", "in_bytes"]


def in_bytes(n: float) -> str:
    """A number of bytes for people, in decimal units.

    >>> in_bytes(980), in_bytes(98_304), in_bytes(940_572_672)
    ('980 B', '98.3 kB', '941 MB')
    """
    for size, unit in ((1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if n >= size:
            return f"{n / size:.3g} {unit}"
    return f"{n:.0f} B"


def draw_liveness(
    axes: Axes,
    rows: Sequence[Live],
    ipu: int,
    *,
    edges: Mapping[int, float],
    end: float,
    update: int | None = None,
) -> None:
    """Bytes of one IPU by kind, stacked, with the peak in figures.

    edges    where each slot starts on the axis; end: where the last one stops.
    update   the slot of the update, if there is one.
    """
    of_ipu = [row for row in rows if row.ipu == ipu]
    slots = sorted(edges)
    sizes = {kind: dict.fromkeys(slots, 0) for kind in KINDS}
    for row in of_ipu:
        sizes[row.kind][row.slot] += row.bytes
    x = [*(edges[slot] for slot in slots), end]
    below = np.zeros(len(x))
    for kind, by_slot in sizes.items():
        if not any(by_slot.values()):
            continue
        values = [by_slot[slot] / 1e3 for slot in slots]
        above = below + np.array([*values, values[-1]])
        axes.fill_between(x, below, above, step="post", color=HOLDS[kind], linewidth=0)
        below = above
    axes.step(x, below, where="post", color="#222222", linewidth=0.7)
    peak = peaks(of_ipu)[ipu]
    axes.axhline(peak.bytes / 1e3, color="#222222", linewidth=0.6, linestyle=(0, (5, 2)))
    number = f"{peak.bytes:,}".replace(",", " ")
    where = "the update" if peak.slot == update else f"slot {peak.slot}"
    axes.annotate(f"peak {number} B in {where}", (1, peak.bytes / 1e3),
                  xycoords=("axes fraction", "data"), xytext=(-3, 2), textcoords="offset points",
                  fontsize=8, ha="right", va="bottom")
    axes.set(xlim=(x[0], end), ylim=(0, peak.bytes / 1e3 * 1.35), ylabel=f"IPU {ipu}\nkB")


def draw_tile_memory(
    axes: Axes, plan: Plan, rows: Sequence[Live], target: Target, *, title: str
) -> None:
    """The peak of every IPU by kind, as a bar beside the size of its tiles' memory.

    Units    bytes of one IPU; the axis is logarithmic, for a small network fills little.
    """
    held = peaks(rows)
    room = capacity(plan, target)
    for place, peak in enumerate(held.values()):
        share = peak.bytes / room
        axes.barh([place], [room], height=0.62, color="none", edgecolor="#444444")
        axes.barh([place], [peak.bytes], height=0.62, color=HOLDS["fifo"])
        axes.annotate(f"{in_bytes(peak.bytes)}, {share:.2%}", (peak.bytes, place), xytext=(4, 0),
                      textcoords="offset points", va="center", fontsize=8.5)
    axes.set_yticks(range(len(held)), [str(ipu) for ipu in held])
    axes.set(title=title, xscale="log", xlim=(1e3, 2 * room), ylim=(len(held) - 0.5, -0.5),
             ylabel="IPU")
    tiles = target.tiles.value - plan.io_tiles
    axes.xaxis.set_major_formatter(lambda n, _: in_bytes(n))
    axes.minorticks_off()
    size = f"{target.tile_memory.value / 1024:.0f} KiB"
    axes.set_xlabel(f"bytes of an IPU; frame: {tiles} tiles × {size} = {in_bytes(room)}")
    axes.grid(False, axis="y")
