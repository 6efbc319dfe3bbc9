"""All of a plan on one sheet: Gantt chart, lanes, liveness of each IPU and the tiles' memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ipu.experiments.pictures.gantt import draw_gantt, draw_lanes, slot_starts
from ipu.experiments.pictures.looks import DOES, HOLDS, legend_below, patches, what
from ipu.experiments.pictures.memory import draw_liveness, draw_tile_memory
from ipu.machine.target import MK2, Target
from ipu.plan.cycles import Rates, timeline
from ipu.plan.memory import StageFigures, lives
from ipu.plan.plan import Plan

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["draw_sheet"]

#: Width of the sheet and of its panels, in inches.
_WIDTH, _PANEL = 12.0, 10.6


def draw_sheet(
    plan: Plan, figures: Sequence[StageFigures], target: Target = MK2, *, smallest: float = 1.0
) -> Figure:
    """The pictures of one update of one replica, under each other on one axis of cycles.

    smallest    size in points under which numbers are left out; a picture that zooms shows more.
    """
    from ipu.run.pages.drawing import new_figure

    events, rows = timeline(plan, figures, Rates(target)), lives(plan, figures)
    end = max(event.start + event.cycles for event in events)
    lanes = {(event.ipu, event.lane) for event in events if event.lane != "compute"}
    ipus = plan.ipus
    names = ["gantt", "lanes", *(f"ipu{ipu}" for ipu in ipus), "tiles"]
    heights = [0.42 * len(ipus), 0.24 * len(lanes), *(0.95 for _ in ipus), 0.3 * len(ipus)]
    heights = [max(height, 0.9) for height in heights]
    figure, axes = new_figure(
        _WIDTH, sum(heights) + 0.62 * len(heights) + 0.8, mosaic=[[name] for name in names],
        height_ratios=heights,
    )
    draw_gantt(axes[0], events, title="Programs, copies and the update (U), by slot",
               inches=_PANEL, smallest=smallest)
    draw_lanes(axes[1], events, title="Exchange and transfers", inches=_PANEL)
    starts = slot_starts(events)
    shown = [row for row in rows if row.slot in starts]
    for panel, ipu in zip(axes[2:-1], ipus, strict=True):
        draw_liveness(panel, shown, ipu, edges=starts, end=end,
                      update=plan.slots if plan.training else None)
    axes[2].set_title("Memory in use")
    axes[2].legend(
        handles=patches({row.kind for row in rows}, HOLDS), loc="lower right",
        bbox_to_anchor=(1, 0.97), ncols=8, fontsize=8.5, handlelength=1.2, columnspacing=1.2,
    )
    for panel in axes[:-2]:
        panel.tick_params(axis="x", labelbottom=False)
    axes[-2].set_xlabel("cycles of the declared model, from the start of the update")
    draw_tile_memory(axes[-1], plan, rows, target, title="Peak beside the memory of the tiles")
    legend_below(figure, patches({what(event.kind) for event in events}, DOES))
    return figure
