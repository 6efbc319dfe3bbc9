"""What every IPU does and when: a Gantt chart, and the lanes of exchange and transfers.

Bars are the events of `ipu.plan.cycles.timeline`. Numbers in bars are micro-batches; thin
lines are the starts of slots, where IPUs have waited for each other; the second axis counts slots.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from ipu.experiments.pictures.looks import DOES, ink_on, what
from ipu.plan.cycles import LANES, Event
from ipu.run.pages.vector import add_tip

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["draw_gantt", "draw_lanes", "slot_starts"]

#: Height of a bar, of one row.
_BAR = 0.78
#: Width of a digit as a share of its height, and the largest size of a number, in points.
_DIGIT, _LARGEST = 0.62, 8.5
#: How a tooltip names a program of a stage.
_SHORT = {"forward": "F", "backward": "B", "recompute": "recompute F"}
#: The lanes that a Gantt chart shows: replicas' sums and copies run while nothing computes.
_WORK = ("compute", "exchange")


def slot_starts(events: Sequence[Event]) -> dict[int, float]:
    """The first cycle of every slot."""
    starts: dict[int, float] = {}
    for event in events:
        starts[event.slot] = min(event.start, starts.get(event.slot, event.start))
    return dict(sorted(starts.items()))


def draw_gantt(
    axes: Axes, events: Sequence[Event], *, title: str, inches: float, smallest: float = 5.0
) -> None:
    """Programs, copies, sums and updates of each IPU.

    inches      width of the panel, for the size of numbers.
    smallest    size in points under which a number is left out; pictures that zoom have small ones.
    """
    ipus = sorted({event.ipu for event in events})
    end = max(event.start + event.cycles for event in events)
    for event in events:
        if event.lane in _WORK:
            _draw_bar(axes, event, ipus.index(event.ipu), inches * 72 / end, smallest)
    starts = slot_starts(events)
    _draw_slots(axes, starts)
    _number_slots(axes, events, starts)
    axes.set(title=title, xlim=(0, end), ylim=(len(ipus) - 0.5, -0.5), ylabel="IPU")
    axes.set_yticks(range(len(ipus)), [str(ipu) for ipu in ipus])
    axes.grid(False)


def draw_lanes(axes: Axes, events: Sequence[Event], *, title: str, inches: float) -> None:
    """Exchange between IPUs, transfers from and to remote memory and the host, of each IPU."""
    end = max(event.start + event.cycles for event in events)
    used = {(event.ipu, event.lane) for event in events if event.lane != "compute"}
    rows = [(ipu, lane) for ipu in sorted({i for i, _ in used}) for lane in LANES[1:]
            if (ipu, lane) in used]
    for event in events:
        if event.lane != "compute":
            _draw_bar(axes, event, rows.index((event.ipu, event.lane)), inches * 72 / end, 0.0)
    _draw_slots(axes, slot_starts(events))
    axes.set(title=title, xlim=(0, end), ylim=(max(len(rows), 1) - 0.5, -0.5))
    axes.set_yticks(range(len(rows)), [f"{lane}, IPU {ipu}" for ipu, lane in rows])
    axes.grid(False)


def _draw_bar(axes: Axes, event: Event, row: int, points: float, smallest: float) -> None:
    """A bar with its tooltip and, where it fits, its micro-batch's number.

    points    of paper for one cycle. A bar that is narrow has no white edge, which would hide it.
    """
    from matplotlib.patches import Rectangle

    colour = DOES[what(event.kind)]
    width = points * event.cycles
    bar = Rectangle((event.start, row - _BAR / 2), event.cycles, _BAR, facecolor=colour,
                    edgecolor="#FFFFFF" if width > 3 else colour, linewidth=0.3,
                    in_layout=False)
    axes.add_patch(bar)
    add_tip(bar, _tip(event))
    number = str(event.micro_batch)
    size = min(_LARGEST, 0.9 * width / (_DIGIT * len(number)))
    if event.lane == "compute" and event.micro_batch >= 0 and size >= max(smallest, 0.1):
        axes.text(event.start + event.cycles / 2, row, number, ha="center", va="center_baseline",
                  fontsize=size, color=ink_on(colour), clip_on=True, in_layout=False)


def _tip(event: Event) -> str:
    short = _SHORT.get(event.kind)
    words = [f"IPU {event.ipu}", f"{short}{event.stage}" if short else event.kind]
    if event.micro_batch >= 0:
        words.append(f"micro-batch {event.micro_batch}")
    return ", ".join([*words, f"slot {event.slot}", f"{event.cycles:.0f} cycles"])


def _draw_slots(axes: Axes, starts: Mapping[int, float]) -> None:
    """Lines between slots."""
    for start in list(starts.values())[1:]:
        axes.axvline(start, color="#444444", linewidth=0.5, linestyle=(0, (1, 2)), zorder=3,
                     in_layout=False)


def _number_slots(axes: Axes, events: Sequence[Event], starts: Mapping[int, float]) -> None:
    """Numbers of slots above the panel; U is the update."""
    updates = {event.slot for event in events if event.kind in ("update", "reduce")}
    step = -(-len(starts) // 24)
    above = axes.secondary_xaxis("top")
    end = max(event.start + event.cycles for event in events)
    last = min((starts[slot] for slot in updates), default=2 * end) - 0.012 * end
    shown = {slot: start for slot, start in starts.items() if start < last and slot % step == 0}
    shown |= {slot: starts[slot] for slot in updates}
    names = ["U" if slot in updates else str(slot) for slot in shown]
    above.set_xticks(list(shown.values()), names, fontsize=7.5)
    above.tick_params(length=2, pad=1)
    above.spines["top"].set_visible(False)
