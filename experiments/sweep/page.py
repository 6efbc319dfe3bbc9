"""The page of a sweep: its runs in a table that sorts and filters, and small multiples."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from ipu.experiments.lab import store
from ipu.experiments.lab.result import Result
from ipu.experiments.sweep.metrics import compared, differs
from ipu.experiments.sweep.panels import draw
from ipu.experiments.sweep.sweep import Swept
from ipu.run.pages import rendering

#: Columns of numbers that the table shows at most.
MOST_COLUMNS = 16


class Cell(NamedTuple):
    """A cell of the table: what is read, and what it is sorted by."""

    text: str
    key: str


def write_page(swept: Swept, result: Result, folder: Path) -> Path:
    """Write folder.html and the figure in the folder; returns the page's path."""
    runs = swept.finished
    measured = compared([one.rows for _, one in runs])
    figure, left_out = draw(
        measured, [job.seed for job, _ in runs], [job.settings for job, _ in runs])
    images = rendering.write_figures(folder, {"figure": figure})
    different = {title: numbers for title, numbers in measured.numbers.items() if differs(numbers)}
    columns = dict(list(different.items())[:MOST_COLUMNS])
    keys = list(dict.fromkeys(name for job, _ in runs for name, _ in job.settings))
    content = {
        "swept": swept, "result": result,
        "heads": ["run", "seed", *keys, *columns],
        "lines": [_line(place, swept, keys, list(columns.values())) for place in range(len(runs))],
        "declared": swept.declared, "verdicts": list(map(str, swept.verdicts)),
        "equal": len(measured.numbers) - len(different),
        "more_columns": len(different) - len(columns), "more_panels": left_out,
        "images": images,
        "folder": folder.name, "files": _files(folder),
    }
    return rendering.write_page(folder.with_name(f"{folder.name}.html"), "sweep", content)


def _files(folder: Path) -> list[tuple[str, str]]:
    """The data of a sweep by its files' names, as URLs that hold it."""
    kinds = {store.DATA: "text/csv", store.META: "application/json"}
    return [
        (name, rendering.data_url(kind, (folder / name).read_bytes()))
        for name, kind in kinds.items() if (folder / name).exists()
    ]


def _line(
    place: int, swept: Swept, keys: Sequence[str], columns: Sequence[Sequence[float | None]]
) -> list[Cell]:
    job, _ = swept.finished[place]
    values: list[object] = [place + 1, job.seed, *(dict(job.settings).get(key) for key in keys)]
    return [*map(cell, values), *(cell(column[place]) for column in columns)]


def cell(value: object) -> Cell:
    """A number with six digits for the reader, and all of them to sort by.

    >>> cell(0.1234567), cell(None)
    (Cell(text='0.123457', key='0.1234567'), Cell(text='–', key=''))
    """
    if value is None:
        return Cell("–", "")
    if isinstance(value, float) and math.isfinite(value):
        return Cell(f"{value:.6g}", repr(value))
    return Cell(str(value), str(value))
