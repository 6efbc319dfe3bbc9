"""Products of windows of images: pieces of the images are laid out and multiplied one by one.

Forward, each thread takes some rows of outputs and lays out a piece at a time in memory of its own,
small enough for its cache; the panels of the kernels are filled once. For a weight gradient the
outputs are the terms, so pieces and the panels of their gradients follow each other and leave
their partials in the result, and threads share the rows of the result.

Source    docs/semantics.md §5.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import lru_cache, partial
from typing import NamedTuple

import numpy as np

from fpsim.kernels.by_unit.images import fill_windows, place_windows
from fpsim.kernels.by_unit.tiles import COLUMNS
from fpsim.products.by_unit.panels import (
    COLUMN_BYTES,
    Right,
    column_blocks,
    filled,
    n_panels,
    whole_tiles,
)
from fpsim.products.by_unit.task import Constants, TileTask, room
from fpsim.products.by_unit.terms import Terms, all_terms
from fpsim.products.by_unit.unit_settings import UnitSettings
from fpsim.products.jobs.job import Job
from fpsim.products.jobs.windows import Target, Windows
from fpsim.records.geometry import Geometry
from fpsim.records.types import Carrier, Offsets
from fpsim.state.draws import NO_RANDOM
from fpsim.state.threads import get_threads, run_blocks

__all__ = ["fits", "fits_any_lanes", "run_windows"]

#: Numbers of the pieces that are laid out together, and of the panels beside them.
_PIECE = 1 << 16

#: Windows of a piece up to which it is kept where they lie.
_FEW = 1 << 15

#: Products below which one thread is enough.
_SMALLEST = 1 << 20


def fits(task: TileTask, a: Windows) -> bool:
    """Whether panels and pieces are small enough, and rows of outputs enough for the threads."""
    return a.turned or _fits(task.right.bytes, a)


def fits_any_lanes(a: Windows) -> bool:
    """The same for operands of any lanes."""
    return a.turned or _fits(8, a)


def _fits(number: int, a: Windows) -> bool:
    return number * a.depth <= COLUMN_BYTES and a.lines >= get_threads()


def run_windows(job: Job, a: Windows, task: TileTask, values: Carrier) -> int:
    """The product of a job's windows into values; its flags together."""
    task = task.lanewise if a.lanewise else task
    return (_run_turned if a.turned else _run_forward)(job, a, task, values)


class _Operands(NamedTuple):
    """What the windows of a piece are multiplied with, and where the results go.

    offsets   of the terms, from the beginning of a window.
    right     panels: values, exponents, first and last column.
    shift     of the results from those of the first windows.
    """

    offsets: Offsets
    right: tuple[Carrier, Constants, int, int]
    shift: int


def _run_forward(job: Job, a: Windows, task: TileTask, values: Carrier) -> int:
    every = [
        all_terms(job.settings, windows.offsets(), task.terms) for windows in a.with_others
    ]
    flags, depth, lines = 0, sum([len(terms.rows) for terms in every]), a.lines
    for columns in column_blocks(task, depth, slice(0, values.shape[1])):
        operands = list(_operands(job, a, task, every, columns))
        products = depth * (columns.stop - columns.start) * a.geometry.output[1]
        work = partial(_lines, job, a, task, operands, values)
        flags |= run_blocks(work, 0, lines, max(1, _SMALLEST // products))
    return flags


def _operands(
    job: Job, a: Windows, task: TileTask, every: list[Terms], columns: slice
) -> Iterator[_Operands]:
    """The terms of all windows of an image and the panels of their weights."""
    weights, first, begin = Right.of(job.b), 0, a.target[0] if a.target else 0
    for i, (windows, terms) in enumerate(zip(a.with_others, every, strict=True)):
        panels = filled(
            task, weights.below(first), terms.rows, columns, name=f"right {i}" if i else "right"
        )
        shift = windows.target[0] - begin if windows.target else 0
        yield _Operands(terms.offsets, (*panels, columns.start, columns.stop), shift)
        first += len(windows.table)


def _lines(
    job: Job, a: Windows, task: TileTask, operands: list[_Operands], values: Carrier,
    begin: int, end: int,
) -> int:
    """Some rows of outputs on one thread; their flags together."""
    flags, step, wide = 0, a.lines_of(_PIECE), a.geometry.output[1]
    pieces = _Pieces(task, a, min(step, end - begin), task.height, a.places(values.shape[1]))
    random = NO_RANDOM
    for line in range(begin, end, step):
        *left, places = pieces.lay(line, min(line + step, end))
        if task.variant.store:
            random = job.places.part(line * wide).random
        for offsets, right, shift in operands:
            outputs = places + shift if shift else places
            flags |= task.loop(
                (*left, offsets, outputs), right, values, job.element_flags, random, task.store,
                task.numbers,
            )
    return flags


def _run_turned(job: Job, a: Windows, task: TileTask, values: Carrier) -> int:
    """Panels of the result on the threads, or rows of tiles where there are too few panels.

    Each thread lays out the pieces that it needs: waiting for a common one takes longer.
    """
    rows, columns = values.shape
    tiles, panels = -(-rows // task.height), -(-columns // COLUMNS)
    smallest = _SMALLEST // (a.lines * a.geometry.output[1] * task.height * COLUMNS)

    def some_panels(begin: int, end: int) -> int:
        across = slice(begin * COLUMNS, min(end * COLUMNS, columns))
        return _turned_part(job, a, task, values, slice(0, rows), across)

    def some_tiles(begin: int, end: int) -> int:
        down = slice(begin * task.height, min(end * task.height, rows))
        return _turned_part(job, a, task, values, down, slice(0, columns))

    if panels >= get_threads():
        return run_blocks(some_panels, 0, panels, max(1, smallest // tiles), even=True)
    return run_blocks(some_tiles, 0, tiles, max(1, smallest // panels), even=True)


def _turned_part(
    job: Job, a: Windows, task: TileTask, values: Carrier, down: slice, across: slice
) -> int:
    """Some rows and columns of a weight gradient on one thread; their flags together."""
    settings: UnitSettings = job.settings
    wide, multiple, flags = a.geometry.output[1], settings.unit.channels, 0
    bases = whole_tiles(a.offsets()[down], task.height)
    outputs = np.arange(down.start, down.stop) * values.shape[1]
    widest = n_panels(across) * COLUMNS
    step = min(a.lines_of(_PIECE, multiple), _lines_of_terms(widest, wide, multiple))
    pieces = _Pieces(task, a, min(step, a.lines), 1, (0, 0, 0, 0))
    gradient, random = Right.of(job.b), NO_RANDOM
    for line in range(0, a.lines, step):
        last = min(line + step, a.lines)
        table, exponents, starts, _ = pieces.lay(line, last)
        terms = all_terms(settings, starts, task.terms)
        left = table, exponents, bases, terms.offsets, outputs
        b = gradient.below(line * wide)
        if task.variant.store:
            random = job.places.part(down.start, place=settings.passes(line * wide)).random
        for columns in column_blocks(task, len(terms.rows), across):
            right = (*filled(task, b, terms.rows, columns, alone=True), columns.start, columns.stop)
            flags |= task.loop(
                left, right, values, job.element_flags, random, task.store, task.numbers
            )
    return flags


def _lines_of_terms(columns: int, wide: int, multiple: int) -> int:
    """Rows of outputs whose gradients fill panels of about a piece, a multiple of so many terms."""
    unit = multiple // math.gcd(multiple, wide)
    return max(1, _PIECE // (columns * wide) // unit) * unit


class _Pieces:
    """Pieces of images in memory of this thread, each in the place of the one before.

    lines    rows of outputs of a piece, at most; height: windows are as many as make whole tiles of
             so many rows.
    """

    def __init__(self, task: TileTask, a: Windows, lines: int, height: int, target: Target) -> None:
        geometry = self.geometry = a.geometry
        self.target, self.height = target, height
        image = a.x if a.x.flags.c_contiguous else np.ascontiguousarray(a.x)
        self.image = image.reshape(-1).view(np.uint32), a.x.shape[1:]
        # A piece that begins within an image may see one image more, so the kernel's height again.
        most = a.numbers(0, lines) + geometry.kernel[0] * geometry.line * a.x.shape[3] + 16
        self.tables = task.left.copied.room("pieces", (most,))
        self.how = *self.tables, task.zero, task.left.shift

    def lay(self, line: int, last: int) -> tuple[Carrier, Constants, Offsets, Offsets]:
        """Values and exponents, where windows begin, and where results stand."""
        fill_windows(*self.image, self.geometry.pairs, (line, last), *self.how)
        image, row = divmod(line, self.geometry.output[0])
        few = (last - line) * self.geometry.output[1] <= _FEW
        starts, places = (_windows if few else _windows.__wrapped__)(
            self.geometry, self.image[1][2], row, last - line, self.height, self.target
        )
        if image and self.target[1]:
            further = room("places", places.shape, np.int64)
            places = np.add(places, image * self.target[1], out=further)
        return *self.tables, starts, places


@lru_cache(maxsize=128)
def _windows(
    geometry: Geometry, channels: int, row: int, lines: int, height: int, target: Target
) -> tuple[Offsets, Offsets]:
    """Where the windows of a piece begin, and where their results stand, from a row of image 0."""
    outputs = lines * geometry.output[1]
    starts = np.empty(-(-outputs // height) * height, np.int64)
    places = np.empty(outputs, np.int64)
    place_windows(channels, geometry.pairs, (row, row + lines), starts, places, target)
    return starts, places
