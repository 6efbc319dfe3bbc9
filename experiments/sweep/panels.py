"""Small multiples of a sweep: one panel for each curve or number that differs between runs.

A number stands over the setting that is swept, with the mean of its seeds and the 95 % interval of
that mean; where no setting of numbers is swept, over the seed.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from ipu.experiments.sweep.metrics import SEED, ComparedRuns, Curve, differs
from ipu.run.verdict import over_seeds

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

#: Panels of a figure, and panels beside each other.
MOST, COLUMNS = 12, 3
#: Letters of a title's line.
LINE = 34


#: The settings of a run: names and values.
Settings = Sequence[tuple[str, object]]


class Axis(NamedTuple):
    """What a number stands over: its name, its value of each run, and the runs' colours by words.

    is_setting    of the experiment, so that runs of one value have a mean.
    """

    name: str
    values: list[float]
    groups: list[str]
    is_setting: bool


def axis_of(seeds: Sequence[int], settings: Sequence[Settings]) -> Axis:
    """The setting of numbers that has the most values, or the seed where there is none.

    >>> axis_of([0, 0], [[("rate", 0.1), ("way", "a")], [("rate", 0.2), ("way", "a")]])
    Axis(name='rate', values=[0.1, 0.2], groups=['way = a', 'way = a'], is_setting=True)
    """
    by_name: dict[str, list[object]] = {}
    for run in settings:
        for name, value in run:
            by_name.setdefault(name, []).append(value)
    swept = {
        name: values for name, values in by_name.items()
        if len({*values}) > 1 and len(values) == len(settings)
        and all(isinstance(v, (int, float)) and not isinstance(v, bool) for v in values)
    }
    if not swept:
        return Axis(SEED, [float(seed) for seed in seeds], list(map(_words, settings)), False)
    name = max(swept, key=lambda key: len({*swept[key]}))
    rest = [_words([pair for pair in run if pair[0] != name]) for run in settings]
    return Axis(name, [float(str(v)) for v in swept[name]], rest, True)


def _words(settings: Settings) -> str:
    return ", ".join(f"{name} = {value}" for name, value in settings)


def draw(
    measured: ComparedRuns, seeds: Sequence[int], settings: Sequence[Settings]
) -> tuple[Figure | None, int]:
    """The figure, and how many panels it leaves out; None where nothing differs."""
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
    axis, runs = axis_of(seeds, settings), list(map(_words, settings))
    of_curves = _colours(runs)
    # Where all panels are numbers, the setting is their axis and needs no colour.
    colours = of_curves if curves else _colours(axis.groups)
    for panel, title in zip(panels, shown, strict=True):
        if title in curves:
            _plot_curves(panel, curves[title], [of_curves[one] for one in runs])
        else:
            _plot_numbers(panel, numbers[title], axis, _colours(axis.groups))
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
    from ipu.run.pages.drawing import count_ticks

    drawn = [(curve, colour) for curve, colour in zip(curves, colours, strict=True) if curve]
    for curve, colour in drawn:
        marker = "o" if len(curve.x) < 10 else ""
        axes.plot(curve.x, curve.y, color=colour, linewidth=1.0, alpha=0.7, marker=marker,
                  markersize=3)
    axes.set_xlabel(drawn[0][0].x_name)
    x = [value for curve, _ in drawn for value in curve.x]
    if min(x) > 0 and max(x) > 300 * min(x):
        axes.set_xscale("log")
    elif _counts(x):
        count_ticks(axes.xaxis)
    y = [abs(value) for curve, _ in drawn for value in curve.y if value]
    if y and all(math.isfinite(v) for v in y) and _positive(drawn) and max(y) > 300 * min(y):
        axes.set_yscale("log")


def _positive(drawn: Sequence[tuple[Curve, str]]) -> bool:
    return all(value >= 0 for curve, _ in drawn for value in curve.y)


def _plot_numbers(
    axes: Axes, values: Sequence[float | None], axis: Axis, colours: Mapping[str, str]
) -> None:
    """A point for each run, and of each colour the means: over a setting with their intervals."""
    from ipu.run.pages.drawing import count_ticks

    for group, colour in colours.items():
        points = [
            (x, value) for x, value, other in zip(axis.values, values, axis.groups, strict=True)
            if other == group and value is not None and math.isfinite(value)
        ]
        if not points:
            continue
        axes.plot(*zip(*points, strict=True), "o", color=colour, markersize=4, alpha=0.5)
        if not axis.is_setting:
            mean = math.fsum(value for _, value in points) / len(points)
            axes.axhline(mean, color=colour, linewidth=0.9, linestyle=(0, (5, 2)))
            continue
        effects = {
            x: over_seeds(value for other, value in points if other == x)
            for x in sorted({x for x, _ in points})
        }
        bars = [e.uncertainty if math.isfinite(e.uncertainty) else 0.0 for e in effects.values()]
        axes.errorbar([*effects], [e.value for e in effects.values()], bars, color=colour,
                      linewidth=1.2, capsize=3)
    if not axis.is_setting:
        axes.set_xlabel("seed (dashed: mean)")
        count_ticks(axes.xaxis)
        return
    axes.set_xlabel(f"{axis.name} (mean ± 95 % interval)")
    if min(axis.values) > 0 and max(axis.values) >= 30 * min(axis.values):
        axes.set_xscale("log")
    elif _counts(axis.values):
        count_ticks(axes.xaxis)


def _counts(values: Sequence[float]) -> bool:
    """Whether values are whole numbers, as epochs are: between them there is nothing."""
    return all(float(value).is_integer() for value in values)


def _add_legend(figure: Figure, axes: Axes, colours: dict[str, str]) -> None:
    handles = [axes.plot([], [], "o-", color=colour, label=name)[0]
               for name, colour in colours.items()]
    figure.legend(handles=handles, loc="outside lower center", ncols=min(4, len(handles)))


def _wrapped(title: str) -> str:
    import textwrap

    return "\n".join(textwrap.wrap(title, LINE)[:3])
