"""How busy a pipeline is against the number of micro-batches, beside the printed formulas."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from ipu.plan.schedule import ramp_share
from ipu.run.pages import drawing

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["FORMULAS", "LOOKS", "UtilisationCurve", "draw_utilisation"]

#: Colour, marker and its size of each schedule: equal points stay visible over each other.
LOOKS = {
    "grouped": (drawing.BLUE, "o", 9), "popart": (drawing.RED, "s", 4),
    "interleaved": (drawing.ORANGE, "^", 6), "sequential": (drawing.GREY, "v", 6),
}

#: Share of busy time that follows from what the documents print, of G micro-batches and N stages.
FORMULAS: dict[str, Callable[[int, int], float]] = {
    "G / (G + 2N): 2N under-used steps": lambda count, stages: count / (count + 2 * stages),
    "G / (G + 2N − 1): slots that fill or drain": lambda count, stages: (
        1 - ramp_share(count, stages)
    ),
    "1 / N: one stage at a time": lambda count, stages: 1 / stages,
}


class UtilisationCurve(NamedTuple):
    """Utilisation of one schedule at some numbers of micro-batches."""

    counts: Sequence[int]
    shares: Sequence[float]


def draw_utilisation(
    axes: Axes, curves: Mapping[str, UtilisationCurve], stages: int, *, title: str,
    legend: bool = True,
) -> None:
    """Markers: counted from the schedules; thin lines: the formulas of the documents.

    legend    in the panel; else the figure has one for several panels.
    """
    for name, curve in curves.items():
        colour, marker, size = LOOKS[name]
        axes.plot(curve.counts, [100 * share for share in curve.shares], marker, color=colour,
                  markersize=size, label=name)
    counts = sorted({count for curve in curves.values() for count in curve.counts})
    styles = ((0, (5, 2)), (0, (1, 1.5)), (0, (6, 2, 1, 2)))
    for (name, formula), style in zip(FORMULAS.items(), styles, strict=True):
        percents = [100 * formula(count, stages) for count in counts]
        axes.plot(counts, percents, **{**drawing.THEORY, "linestyle": style}, label=name)
    axes.set_xscale("log", base=2)
    axes.set_xticks(counts, [str(count) for count in counts])
    axes.minorticks_off()
    axes.set(title=title, xlabel="micro-batches of an update (G)", ylim=(0, 104),
             ylabel="utilisation in % of cycles")
    if legend:
        axes.legend(fontsize=8.5)
