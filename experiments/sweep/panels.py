"""Small multiples of a sweep: one panel for each curve or number that differs between runs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ipu.experiments.sweep.metrics import ComparedRuns, Curve, differs

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

#: Panels of a figure, and panels beside each other.
MOST, COLUMNS = 12, 3
#: Letters of a title's line.
LINE = 34


def draw(
    measured: ComparedRuns, seeds: Sequence[int], settings: Sequence[str]
) -> tuple[Figure | None, int]:
    """The figure, and how many panels it leaves out; None where nothing differs.

    settings    the settings of each run in words; runs of equal ones have one colour.
    """
    from ipu.run.pages.drawing import new_figure

    curves = {title: values for title, values in measured.curves.items() if differs(values)}
    last_points = {title for title in measured.numbers
                   if any(title.startswith(f"{curve}, ") for curve in measured.curves)}
    numbers = {title: values for title, values in measured.numbers.items()
               if title not in last_points and differs(values)}
    titles = [*curves, *numbers]
    shown = titles[:MOST]
    if not shown:
        return None, 0
    columns = min(COLUMNS, len(shown))
    rows = -(-len(shown) // columns)
    grid = [[str(r * columns + c) if r * columns + c < len(shown) else "." for c in range(columns)]
            for r in range(rows)]
    figure, panels = new_figure(4.3 * columns, 3.1 * rows + 0.4, mosaic=grid)
    colours = _colours(settings)
    for panel, title in zip(panels, shown, strict=True):
        if title in curves:
            _plot_curves(panel, curves[title], [colours[one] for one in settings])
        else:
            _plot_numbers(panel, numbers[title], seeds, [colours[one] for one in settings])
        panel.set_title(_wrapped(title), fontsize=9.5)
    if len(colours) > 1:
        _add_legend(figure, panels[0], colours)
    return figure, len(titles) - len(shown)


def _colours(settings: Sequence[str]) -> dict[str, str]:
    from ipu.run.pages.drawing import BLACK, BLUE, GREEN, GREY, ORANGE, PURPLE, RED, SKY

    palette = (BLUE, ORANGE, GREEN, PURPLE, RED, SKY, GREY, BLACK)
    distinct = dict.fromkeys(settings)
    return {one: palette[i % len(palette)] for i, one in enumerate(distinct)}


def _plot_curves(axes: Axes, curves: Sequence[Curve | None], colours: Sequence[str]) -> None:
    """One thin line for each run."""
    drawn = [(curve, colour) for curve, colour in zip(curves, colours, strict=True) if curve]
    for curve, colour in drawn:
        marker = "o" if len(curve.x) < 10 else ""
        axes.plot(curve.x, curve.y, color=colour, linewidth=1.0, alpha=0.7, marker=marker,
                  markersize=3)
    axes.set_xlabel(drawn[0][0].x_name)
    x = [value for curve, _ in drawn for value in curve.x]
    if min(x) > 0 and max(x) > 300 * min(x):
        axes.set_xscale("log")
    y = [abs(value) for curve, _ in drawn for value in curve.y if value]
    if y and all(math.isfinite(v) for v in y) and _positive(drawn) and max(y) > 300 * min(y):
        axes.set_yscale("log")


def _positive(drawn: Sequence[tuple[Curve, str]]) -> bool:
    return all(value >= 0 for curve, _ in drawn for value in curve.y)


def _plot_numbers(
    axes: Axes, values: Sequence[float | None], seeds: Sequence[int], colours: Sequence[str]
) -> None:
    """One point for each run over its seed, and the mean of each colour."""
    from ipu.run.pages.drawing import count_ticks

    for colour in dict.fromkeys(colours):
        points = [(seed, value) for seed, value, other in zip(seeds, values, colours, strict=True)
                  if other == colour and value is not None and math.isfinite(value)]
        if not points:
            continue
        axes.plot(*zip(*points, strict=True), "o", color=colour, markersize=5, alpha=0.8)
        mean = math.fsum(value for _, value in points) / len(points)
        axes.axhline(mean, color=colour, linewidth=0.9, linestyle=(0, (5, 2)))
    axes.set_xlabel("seed (dashed: mean)")
    count_ticks(axes.xaxis)


def _add_legend(figure: Figure, axes: Axes, colours: dict[str, str]) -> None:
    handles = [axes.plot([], [], "o-", color=colour, label=name)[0]
               for name, colour in colours.items()]
    figure.legend(handles=handles, loc="outside lower center", ncols=min(4, len(handles)))


def _wrapped(title: str) -> str:
    import textwrap

    return "\n".join(textwrap.wrap(title, LINE)[:3])
