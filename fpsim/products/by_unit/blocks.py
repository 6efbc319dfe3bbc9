"""Products in blocks of terms, columns and rows: tables and panels filled, tiles over threads.

Tables and panels stay within a bounded workspace. Blocks of terms leave their partials in the
result, as the unit itself does between passes: no bit depends on where a block ends.

Source    docs/semantics.md §5.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from fpsim.kernels.by_unit.panels import fill_table
from fpsim.kernels.by_unit.tiles import COLUMNS
from fpsim.products.by_unit.panels import (
    BYTES,
    Left,
    Right,
    column_blocks,
    filler,
    multiply,
    n_panels,
)
from fpsim.products.by_unit.task import TileTask
from fpsim.products.by_unit.terms import Terms, all_terms
from fpsim.products.by_unit.unit_settings import UnitSettings
from fpsim.products.jobs.job import Job, to_read
from fpsim.products.jobs.rows import Rows
from fpsim.records.types import Carrier, ElementFlags, Offsets
from fpsim.state.draws import Places
from fpsim.state.threads import run_blocks

__all__ = ["run_in_blocks"]

#: Numbers below which one thread is enough.
_FEW = 1 << 15

#: Passes whose random words may share a counter: blocks of terms end after so many.
_TOGETHER = 8

#: Something done for a range of parts, and how many parts there are.
_Filling = tuple[Callable[[int, int], int], int]


def run_in_blocks(job: Job, task: TileTask, rows: Rows, values: Carrier) -> int:
    """One product into values and the job's flags; its flags together."""
    flags, columns = 0, values.shape[1]
    for terms, blocks in _blocks(job.settings, task, rows):
        for block in column_blocks(task, len(terms.rows), slice(0, columns)):
            # Not named: its panels are gone before the next ones are made.
            flags |= _Part(job, task, rows, terms, block).run(blocks, values)
    return flags


def _blocks(settings: UnitSettings, task: TileTask, a: Rows) -> Iterator[tuple[Terms, list[slice]]]:
    """Terms, and rows for each of them, whose panels and tables are small enough."""
    everything = all_terms(settings, a.offsets, task.terms)
    deepest = BYTES // (task.right.bytes * COLUMNS)
    numbers = BYTES // max(1, task.left.bytes)
    every_term, rows = slice(0, len(everything.rows)), slice(0, len(a.bases))
    if every_term.stop <= deepest and a.values.size <= numbers:
        yield everything, [rows]
        return

    def shallow(part: slice) -> bool:
        return part.stop - part.start <= deepest and _span(everything.offsets[part]) <= numbers // 2

    for part in _halved(every_term, _TOGETHER * settings.unit.channels, shallow):
        terms = Terms(everything.offsets[part], everything.rows[part], part.start)
        spread = _span(terms.offsets)

        def near(piece: slice, spread: int = spread, n: int = len(terms.rows)) -> bool:
            written_out = (piece.stop - piece.start) * n
            return bool(min(_span(a.bases[piece]) + spread, written_out) <= numbers)

        yield terms, list(_halved(rows, task.height, near))


def _span(places: Offsets) -> int:
    return int(places.max() - places.min()) + 1


def _halved(whole: slice, unit: int, fits: Callable[[slice], bool]) -> Iterator[slice]:
    """Parts that fit or cannot be halved: all but the last are multiples of a unit."""
    half = (whole.stop - whole.start) // 2 // unit * unit
    if half == 0 or fits(whole):
        yield whole
        return
    middle = whole.start + half
    yield from _halved(slice(whole.start, middle), unit, fits)
    yield from _halved(slice(middle, whole.stop), unit, fits)


class _Part:
    """Some terms of some columns: their panels, and the table of some rows at a time."""

    def __init__(self, job: Job, task: TileTask, a: Rows, terms: Terms, columns: slice) -> None:
        self.job, self.task, self.a, self.terms, self.columns = job, task, a, terms, columns
        self.place = terms.first // job.settings.unit.channels
        self.panels = task.right.room("right", (n_panels(columns), len(terms.rows), COLUMNS))

    def run(self, blocks: list[slice], values: Carrier) -> int:
        """All rows; the flags of all."""
        # Kept by no attribute: the panels would be freed by the garbage collector alone.
        fill = filler(self.task, Right.of(self.job.b), self.terms.rows, self.columns, self.panels)
        fillings, flags = [(fill, len(self.panels[0]))], 0
        element_flags = self.job.element_flags
        assert element_flags is not None
        for rows in blocks:
            target = values[rows], element_flags[rows], self.job.places.part(rows.start)
            flags |= self._rows(self._near(self.a.part(rows)), fillings, *target)
            fillings = []
        return flags

    def _near(self, rows: Rows) -> Rows:
        """Some rows with the numbers they reach, written out where these are too far apart."""
        rows = rows._replace(offsets=self.terms.offsets)
        if len(rows.values) * self.task.left.bytes <= BYTES:
            return rows
        first = int(rows.bases.min() + rows.offsets.min())
        last = int(rows.bases.max() + rows.offsets.max()) + 1
        if (last - first) * self.task.left.bytes > BYTES:
            return Rows.of(rows.matrix())
        return rows._replace(values=rows.values[first:last], bases=rows.bases - first)

    def _rows(
        self,
        rows: Rows,
        fillings: list[_Filling],
        values: Carrier,
        flags: ElementFlags,
        places: Places,
    ) -> int:
        """Some rows: their table, and whatever else is to be done before the products."""
        left, zero = self.task.left, self.task.zero
        codes = to_read(rows.values.view(np.uint32))
        table, fields = left.room("left", (-(-len(codes) // COLUMNS) * COLUMNS,))
        part = len(rows.offsets) * COLUMNS

        def fill(begin: int, end: int) -> int:
            stop = min(end * part, len(codes))
            fill_table(codes, begin * part, stop, table, fields, zero, left.shift)
            return 0

        if left.bytes:
            fillings = [*fillings, (fill, -(-len(codes) // part))]
        _fill(fillings, part)
        numbers = table if left.values else rows.values
        return multiply(
            self.task, Left(numbers, fields, rows.bases, rows.offsets), self.panels, self.columns,
            values, flags, places.part(place=self.place),
        )


def _fill(fillings: list[_Filling], numbers: int) -> None:
    """Parts of all tables and panels on the threads; each part has so many numbers."""

    def work(begin: int, end: int) -> int:
        first = 0
        for filling, parts in fillings:
            share = slice(max(begin - first, 0), min(end - first, parts))
            if share.start < share.stop:
                filling(share.start, share.stop)
            first += parts
        return 0

    total = sum(parts for _, parts in fillings)
    if total:
        run_blocks(work, 0, total, max(1, _FEW // numbers))
