"""What every fast product does: the right operand into panels, tiles of outputs on the threads."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fpsim.kernels.by_unit.panels import fill_panels
from fpsim.kernels.by_unit.tiles import COLUMNS
from fpsim.products.by_unit.task import Constants, TileTask
from fpsim.products.jobs.job import to_read
from fpsim.records.types import Carrier, ElementFlags, Offsets
from fpsim.state.draws import Places
from fpsim.state.threads import run_blocks

__all__ = [
    "BYTES",
    "COLUMN_BYTES",
    "Left",
    "Right",
    "column_blocks",
    "filled",
    "filler",
    "multiply",
    "n_panels",
    "whole_tiles",
]

#: Bytes of the table of a block, and of its panels.
BYTES = 16 << 20

#: Bytes of one column of a panel.
COLUMN_BYTES = BYTES // COLUMNS

#: Products and numbers below which one thread is enough.
_SMALLEST, _FEW = 1 << 20, 1 << 15


class Left(NamedTuple):
    """The left operand as the loop reads it: numbers, exponents, bases of rows, terms' offsets."""

    values: Carrier
    exponents: Constants
    bases: Offsets
    offsets: Offsets


def n_panels(columns: slice) -> int:
    """Panels of so many columns."""
    n: int = columns.stop - columns.start
    return -(-n // COLUMNS)


def column_blocks(task: TileTask, depth: int, columns: slice) -> Iterator[slice]:
    """These columns, as many at a time as make panels of bounded size."""
    step = max(1, COLUMN_BYTES // (task.right.bytes * depth)) * COLUMNS
    for first in range(columns.start, columns.stop, step):
        yield slice(first, min(first + step, columns.stop))


def whole_tiles(bases: Offsets, height: int) -> Offsets:
    """Bases of rows, the last one repeated until they make whole tiles of so many rows."""
    missing = -len(bases) % height
    return np.concatenate((bases, bases[-1:].repeat(missing))) if missing else bases


class Right(NamedTuple):
    """The right operand as panels are filled from it: numbers, steps from row to row and across."""

    codes: NDArray[np.uint32]
    steps: tuple[int, int]

    @classmethod
    def of(cls, b: Carrier) -> Right:
        """A matrix, as it lies where it is contiguous."""
        if not (b.flags.c_contiguous or b.T.flags.c_contiguous):
            b = np.ascontiguousarray(b)
        down, across = b.strides
        steps = down // b.itemsize, across // b.itemsize
        return cls(to_read(b.ravel("K").view(np.uint32)), steps)

    def below(self, row: int) -> Right:
        """The rows from this one on."""
        if row == 0:
            return self
        return Right(self.codes[row * self.steps[0] :], self.steps)


def filler(
    task: TileTask, b: Right, rows: Offsets, columns: slice, panels: tuple[Carrier, Constants]
) -> Callable[[int, int], int]:
    """What fills some of the panels with rows and columns of b."""
    codes, steps = b

    def fill(begin: int, end: int) -> int:
        fill_panels(
            codes, rows, steps, columns.start, columns.stop, begin, end, *panels, task.zero,
            task.right.shift,
        )
        return 0

    return fill


def filled(
    task: TileTask, b: Right, rows: Offsets, columns: slice, *, alone: bool = False,
    name: str = "right",
) -> tuple[Carrier, Constants]:
    """The panels of some columns, in memory of this name.

    alone    a thread is one of several and does not call others.
    """
    n = n_panels(columns)
    panels = task.right.room(name, (n, len(rows), COLUMNS))
    fill = filler(task, b, rows, columns, panels)
    if alone:
        fill(0, n)
    else:
        run_blocks(fill, 0, n, max(1, _FEW // (len(rows) * COLUMNS)))
    return panels


def multiply(
    task: TileTask, left: Left, panels: tuple[Carrier, Constants], columns: slice, values: Carrier,
    flags: ElementFlags | None, places: Places,
) -> int:
    """Tiles of rows on the threads, or panels where there are more of them."""
    assert flags is not None
    height, wide = task.height, len(panels[0])
    bases = whole_tiles(left.bases, height)
    n_tiles = len(bases) // height
    outputs = np.arange(0, values.size, values.shape[1])
    numbers = to_read(left.values)

    def work(begin: int, end: int, first: int, last: int) -> int:
        rows = slice(begin * height, end * height)
        at = columns.start + first * COLUMNS
        stop = min(columns.start + last * COLUMNS, columns.stop)
        raised: int = task.loop(
            (numbers, left.exponents, bases[rows], left.offsets, outputs[rows]),
            (panels[0][first:last], panels[1][first:last], at, stop), values, flags,
            places.part(rows.start).random, task.store, task.numbers,
        )
        return raised

    smallest = max(1, _SMALLEST // (len(left.offsets) * COLUMNS * height))
    if n_tiles >= wide:
        return run_blocks(partial(_rows_of, work, wide), 0, n_tiles, max(1, smallest // wide))
    return run_blocks(partial(work, 0, n_tiles), 0, wide, max(1, smallest // n_tiles))


def _rows_of(work: Callable[[int, int, int, int], int], wide: int, begin: int, end: int) -> int:
    """Some rows of tiles, all panels."""
    return work(begin, end, 0, wide)
