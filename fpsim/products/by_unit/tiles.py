"""The fast engines' common half: operands into tables and panels, tiles over the threads.

An engine says what its unit calls need; here is where the operands come from and go. All is done in
blocks of terms, columns and rows, so that tables and panels stay within a bounded workspace. Blocks
of terms leave their partials in the result, as the unit itself does between passes: no bit depends
on where a block ends.

Source    docs/semantics.md §5.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fpsim.kernels.by_unit.panels import fill_panels, fill_table
from fpsim.kernels.by_unit.tiles import COLUMNS
from fpsim.products.by_unit.task import FLOAT, WORD, Constants, OperandTable, Task
from fpsim.products.by_unit.unit_settings import UnitSettings
from fpsim.products.jobs.job import Job
from fpsim.products.jobs.rows import Rows
from fpsim.records.types import Carrier, ElementFlags, Offsets, Shape
from fpsim.state.draws import NO_RANDOM, Places
from fpsim.state.threads import run_blocks

__all__ = ["pairs", "run_tiles"]

#: Bytes of the table of a block, and of its panels.
_BYTES = 16 << 20

#: Products and numbers below which one thread is enough.
_SMALLEST, _FEW = 1 << 20, 1 << 15

#: Numbers of both operands up to which a product is not worth blocks and threads.
_SMALL = 1 << 12

#: Passes whose random words may share a counter: blocks of terms end after so many.
_TOGETHER = 8


class _Terms(NamedTuple):
    """Some terms of a product: their offsets in the left operand, their rows of the right one."""

    offsets: Offsets
    rows: Offsets  # -1 where there is none
    first: int  # number of the first


#: Something done for a range of parts, and how many parts there are.
_Filling = tuple[Callable[[int, int], int], int]


def run_tiles(job: Job, task: Task, values: Carrier | None = None) -> int:
    """One product into values (default: those of the job) and flags; its flags together."""
    if values is None:
        values = job.values
        if not isinstance(job.a, Rows) and job.a.size + job.b.size <= _SMALL:
            return _run_small(job, task, job.a)
    rows = job.a if isinstance(job.a, Rows) else Rows.of(job.a)
    flags, columns = 0, values.shape[1]
    for terms, blocks in _blocks(job.settings, task, rows):
        step = max(1, _BYTES // (task.right.bytes * COLUMNS * len(terms.rows))) * COLUMNS
        for first in range(0, columns, step):
            some = slice(first, min(first + step, columns))
            # Not named: its panels are gone before the next ones are made.
            flags |= _Part(job, task, rows, terms, some).run(blocks, values)
    return flags


def _run_small(job: Job, task: Task, a: Carrier) -> int:
    """A product of two small matrices: one table, one set of panels, one call of the loop."""
    a, b = np.ascontiguousarray(a), np.ascontiguousarray(job.b)
    columns = b.shape[1]
    offsets, rows, bases = _small_terms(job.settings, *a.shape, task.height)
    padded = -(-a.size // COLUMNS) * COLUMNS
    table, fields = _memory(task.left, (padded,))
    panels, exponents = _memory(task.right, (-(-columns // COLUMNS), len(rows), COLUMNS))
    values, codes = a.reshape(-1), b.reshape(-1).view(np.uint32)
    if task.left.bytes:
        fill_table(
            values.view(np.uint32), 0, a.size, table, fields, task.zero, task.left.shift
        )  # fmt: skip
    fill_panels(
        codes, rows, (columns, 1), 0, columns, 0, len(panels), panels, exponents, task.zero,
        task.right.shift,
    )  # fmt: skip
    random = job.places.random if job.places.active else NO_RANDOM
    flags: int = task.loop(
        (table if task.left.values else values, fields, bases, offsets),
        (panels, exponents, 0, columns), job.values, job.element_flags, random,
        task.store, task.numbers,
    )  # fmt: skip
    return flags


def _memory(table: OperandTable, shape: Shape) -> tuple[Carrier, Constants]:
    """New memory for values and exponents, empty where there are none."""
    none = (0,) * len(shape)
    values = np.empty(shape if table.values else none, FLOAT[table.values])
    return values, np.empty(shape if table.exponents else none, WORD[table.exponents])


@lru_cache(maxsize=64)
def _small_terms(
    settings: UnitSettings, m: int, k: int, height: int
) -> tuple[Offsets, Offsets, Offsets]:
    """Offsets and rows of the terms, and the rows' places up to whole tiles."""
    terms = _all_terms(settings, np.arange(k))
    bases = np.minimum(np.arange(-(-m // height) * height), m - 1) * k
    return terms.offsets, terms.rows, bases


def _blocks(settings: UnitSettings, task: Task, a: Rows) -> Iterator[tuple[_Terms, list[slice]]]:
    """Terms, and rows for each of them, whose panels and tables are small enough."""
    everything = _all_terms(settings, a.offsets)
    deepest = _BYTES // (task.right.bytes * COLUMNS)
    numbers = _BYTES // max(1, task.left.bytes)
    every_term, rows = slice(0, len(everything.rows)), slice(0, len(a.bases))
    if every_term.stop <= deepest and a.values.size <= numbers:
        yield everything, [rows]
        return

    def shallow(part: slice) -> bool:
        return part.stop - part.start <= deepest and _span(everything.offsets[part]) <= numbers // 2

    for part in _halved(every_term, _TOGETHER * settings.unit.channels, shallow):
        terms = _Terms(everything.offsets[part], everything.rows[part], part.start)
        spread = _span(terms.offsets)

        def near(some: slice, spread: int = spread, n: int = len(terms.rows)) -> bool:
            written_out = (some.stop - some.start) * n
            return bool(min(_span(a.bases[some]) + spread, written_out) <= numbers)

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


def _all_terms(settings: UnitSettings, offsets: Offsets) -> _Terms:
    """Every term in the order the unit takes them, zeros at the end."""
    k, unit = len(offsets), settings.unit
    if settings.depth(k) == k and unit.order == "ascending":
        return _Terms(offsets, _ascending(k), 0)
    rows = np.arange(settings.depth(k))
    if unit.order == "pairs":
        rows = rows[pairs(unit.channels, len(rows))]
    rows[rows >= k] = -1
    return _Terms(offsets[np.maximum(rows, 0)], rows, 0)


@lru_cache(maxsize=8)
def _ascending(n: int) -> Offsets:
    return np.arange(n)


@lru_cache(maxsize=64)
def pairs(channels: int, k: int) -> NDArray[np.intp]:
    """Of each pass the terms with bit 1 of their number clear, then the others."""
    number = np.arange(k)
    return np.argsort(number // channels * 2 + (number >> 1 & 1), kind="stable")


class _Part:
    """Some terms of some columns: their panels, and the table of some rows at a time."""

    def __init__(self, job: Job, task: Task, a: Rows, terms: _Terms, columns: slice) -> None:
        self.job, self.task, self.a, self.terms, self.columns = job, task, a, terms, columns
        self.place = terms.first // job.settings.unit.channels
        n_panels = -(-(columns.stop - columns.start) // COLUMNS)
        self.panels = task.right.room("right", (n_panels, len(terms.rows), COLUMNS))

    def run(self, blocks: list[slice], values: Carrier) -> int:
        """All rows; the flags of all."""
        # Kept by no attribute: the panels would be freed by the garbage collector alone.
        fillings, flags = [(self._panel_filler(self.job.b), len(self.panels[0]))], 0
        element_flags = self.job.element_flags
        assert element_flags is not None
        for rows in blocks:
            some = values[rows], element_flags[rows], self.job.places.part(rows.start)
            flags |= self._rows(self._near(self.a.part(rows)), fillings, *some)
            fillings = []
        return flags

    def _near(self, rows: Rows) -> Rows:
        """Some rows with the numbers they reach, written out where these are too far apart."""
        rows = rows._replace(offsets=self.terms.offsets)
        if len(rows.values) * self.task.left.bytes <= _BYTES:
            return rows
        first = int(rows.bases.min() + rows.offsets.min())
        last = int(rows.bases.max() + rows.offsets.max()) + 1
        if (last - first) * self.task.left.bytes > _BYTES:
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
        codes = rows.values.view(np.uint32)
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
        return self._multiply((numbers, fields, rows.bases, rows.offsets), values, flags, places)

    def _panel_filler(self, b: Carrier) -> Callable[[int, int], int]:
        if not (b.flags.c_contiguous or b.T.flags.c_contiguous):
            b = np.ascontiguousarray(b)
        steps = tuple(step // b.itemsize for step in b.strides)
        codes, shape = b.ravel("K").view(np.uint32), self.columns
        values, exponents = self.panels
        shift, zero = self.task.right.shift, self.task.zero

        def fill(begin: int, end: int) -> int:
            fill_panels(
                codes, self.terms.rows, steps, shape.start, shape.stop, begin, end, values,
                exponents, zero, shift,
            )  # fmt: skip
            return 0

        return fill

    def _multiply(
        self, left: tuple[Carrier, Constants, Offsets, Offsets], values: Carrier,
        flags: ElementFlags, places: Places,
    ) -> int:  # fmt: skip
        """Tiles of rows on the threads, or panels where there are more of them."""
        height, task = self.task.height, self.task
        numbers, fields, bases, offsets = left
        n_tiles, n_panels = -(-len(bases) // height), len(self.panels[0])
        whole = np.full(n_tiles * height, bases[-1], np.int64)
        whole[: len(bases)] = bases

        def work(begin: int, end: int, first: int, last: int) -> int:
            rows = slice(begin * height, end * height)
            at = self.columns.start + first * COLUMNS
            stop = min(self.columns.start + last * COLUMNS, self.columns.stop)
            panels, exponents = self.panels
            raised: int = task.loop(
                (numbers, fields, whole[rows], offsets),
                (panels[first:last], exponents[first:last], at, stop), values[rows], flags[rows],
                places.part(rows.start, place=self.place).random, task.store, task.numbers,
            )  # fmt: skip
            return raised

        smallest = max(1, _SMALLEST // (len(offsets) * COLUMNS * height))
        if n_tiles >= n_panels:
            some = max(1, smallest // n_panels)
            return run_blocks(lambda i, j: work(i, j, 0, n_panels), 0, n_tiles, some)
        some = max(1, smallest // n_tiles)
        return run_blocks(lambda i, j: work(0, n_tiles, i, j), 0, n_panels, some)


def _fill(fillings: list[_Filling], numbers: int) -> None:
    """Parts of all tables and panels on the threads; each part has so many numbers."""

    def work(begin: int, end: int) -> int:
        first = 0
        for filling, parts in fillings:
            some = slice(max(begin - first, 0), min(end - first, parts))
            if some.start < some.stop:
                filling(some.start, some.stop)
            first += parts
        return 0

    total = sum(parts for _, parts in fillings)
    if total:
        run_blocks(work, 0, total, max(1, _FEW // numbers))
