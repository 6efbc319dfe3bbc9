"""The page of a search for a plan: its front as a picture and a table, the plan as a sheet."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

from fpsim.state.files import write_whole
from ipu.experiments.pictures.sheet import draw_sheet
from ipu.plan.explain import few_rounds
from ipu.plan.numbers import search_numbers
from ipu.plan.search import Search
from ipu.plan.written import HEADS, cells, evidence, times, verdict

if TYPE_CHECKING:
    from matplotlib.figure import Figure

#: What the page's sentences follow from.
DATA = "search.json"
#: Largest peak over the smallest from which the axis of memory is logarithmic.
_WIDE = 20

__all__ = ["draw_front", "write_plan_page"]


def write_plan_page(folder: Path, search: Search, title: str, code: str = "") -> Path:
    """Write index.html, search.json, front.png and plan.png of a search; returns the page's path.

    code    that makes the plan, in a front end's own words.

    Raises    OSError where the folder cannot be written.
    """
    from ipu.run.pages.rendering import data_url, write_figures, write_page

    folder.mkdir(parents=True, exist_ok=True)
    best = search.best or search.smallest
    sheet = draw_sheet(few_rounds(best.plan), best.figures(search.chain), search.target)
    images = write_figures(folder, {"front": draw_front(search), "plan": sheet})
    numbers = json.dumps(search_numbers(search), indent=1, ensure_ascii=False).encode()
    write_whole(folder / DATA, numbers)
    content = {
        "title": title, "target": search.target.name, "ipus": search.space.ipus,
        "micro_batches": search.space.micro_batches, "verdict": list(verdict(search)),
        "images": images, "heads": HEADS, "rows": [cells(search, row) for row in search.rows],
        "tried": f"{search.tried:,}", "of_all": f"{search.of_all:,}", "code": code,
        "facts": list(evidence(search)), "data": DATA,
        "data_url": data_url("application/json", numbers),
    }
    return write_page(folder / "index.html", "plan", content)


def draw_front(search: Search) -> Figure:
    """Time against memory of the plans on the front, with the memory that an IPU has.

    Bars are the interval of a time, by the fastest and the slowest rates of our sources.
    """
    from ipu.run.pages import drawing

    figure, (axes,) = drawing.new_figure(7.0, 3.6)
    clock = search.target.clock.value / 1e3
    points = [(row.bytes / 1e6, row.cycles / clock) for row in search.rows]
    axes.step(*zip(*points, strict=True), where="pre", color=drawing.GREY, linewidth=0.9)
    for (size, _), ends in zip(points, (times(search, row) for row in search.rows), strict=True):
        axes.vlines(size, *ends, color=drawing.SKY, linewidth=4, alpha=0.4)
    fits = [search.fits(row) for row in search.rows]
    for is_fitting, colour, label in (
        (True, drawing.BLUE, "fits"), (False, drawing.RED, "does not fit"),
    ):
        rows = [point for point, fit in zip(points, fits, strict=True) if fit is is_fitting]
        if rows:
            axes.plot(*zip(*rows, strict=True), "o", color=colour, label=label)
    if search.best is not None:
        best = search.best
        axes.plot([best.bytes / 1e6], [best.cycles / clock], "*", markersize=15,
                  color=drawing.ORANGE, label="the plan", zorder=4)
    if not all(fits):
        axes.axvline(search.room / 1e6, label="memory of an IPU", **drawing.THEORY)
    axes.set(xlabel="largest peak of an IPU in MB", ylabel="ms for an update", ylim=(0, None))
    sizes = [size for size, _ in points]
    if max(sizes) > _WIDE * min(sizes):
        axes.set_xscale("log")
    axes.legend(fontsize=8.5)
    return figure
