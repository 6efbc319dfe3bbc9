"""Two reports side by side: which cells differ, from the data files of both folders alone."""

from __future__ import annotations

import csv
import io
import itertools
from pathlib import Path

from tests.experiments.readers.pages import Reading, WholePage

#: Cells that are listed, at most.
SHOWN = 12


def read_beside(text, left, right):
    """Verdicts and cells of each experiment; the experiments that differ."""
    page = WholePage(text)
    names = sorted({path.parent.name for path in Path(left).glob("*/data.csv")}
                   & {path.parent.name for path in Path(right).glob("*/data.csv")})
    tables = iter(page.tables[1:])
    verdicts = [piece for _, kind, piece in page.texts if kind in ("same", "differs")]
    assert [row[1] for row in page.tables[0][1:]] == verdicts
    differing = []
    for name, verdict in zip(names, verdicts, strict=True):
        sides = [cells_of(Path(folder, name, "data.csv")) for folder in (left, right)]
        other = [
            (number, column, *(row.get(column, "") for row in rows))
            for number, rows in enumerate(itertools.zip_longest(*sides, fillvalue={}), 1)
            for column in dict.fromkeys((*rows[0], *rows[1]))
            if rows[0].get(column, "") != rows[1].get(column, "")
        ]
        read_verdict(Reading(verdict), [len(side) for side in sides], other)
        if other:
            differing.append(name)
            check_cells(next(tables)[1:], other)
            if len(other) > SHOWN:
                reading = Reading(page.text("The first"))
                reading.says("The first {} of {} cells.", SHOWN, len(other))
    assert next(tables, None) is None
    return differing


def cells_of(path):
    """Rows of a data file as their texts: equal texts are equal bits."""
    with io.StringIO(path.read_text(encoding="utf-8")) as file:
        return [{name: cell for name, cell in row.items() if cell} for row in csv.DictReader(file)]


def read_verdict(reading, lengths, other):
    if not other:
        reading.says("the same bits: {} rows", lengths[0])
    else:
        reading.says("{} of {} rows differ", len({row for row, *_ in other}), max(lengths))
        if lengths[0] != lengths[1]:
            reading.says("; {} rows left, {} right", *lengths)
    reading.is_read()


def check_cells(rows, other):
    shown = [(number, column, _number(a), _number(b)) for number, column, a, b in other[:SHOWN]]
    assert [(int(number), column, _number(a), _number(b))
            for number, column, a, b in rows] == shown


def _number(text):
    """Of a cell: its value, so that 1 and 1.0 are one."""
    try:
        return float(text)
    except ValueError:
        return text
