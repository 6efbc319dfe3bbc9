"""The fast engines' common half: how a product reaches the loop of tiles.

An engine says what its unit calls need; here is where the operands come from and go. Large products
run in blocks, windows as they lie in the images. Small ones run in one call, and many small ones in
few: what a call costs beside its products is shared by as many of them as fill a workspace, and
threads take products, not rows.

Source    docs/semantics.md §5.
"""

from __future__ import annotations

import math
import threading
from functools import lru_cache
from typing import Any

import numpy as np

from fpsim.kernels.by_unit.panels import fill_panels, fill_table
from fpsim.kernels.by_unit.tiles import COLUMNS
from fpsim.products.by_unit.blocks import run_in_blocks
from fpsim.products.by_unit.images import fits, run_windows
from fpsim.products.by_unit.panels import Right, whole_tiles
from fpsim.products.by_unit.task import FLOAT, WORD, Constants, OperandTable, TileTask
from fpsim.products.by_unit.terms import all_terms
from fpsim.products.by_unit.unit_settings import UnitSettings
from fpsim.products.jobs.job import Job, to_read
from fpsim.products.jobs.rows import Rows
from fpsim.products.jobs.stack import Stack
from fpsim.products.jobs.windows import Windows
from fpsim.records.types import Carrier, Offsets, Shape
from fpsim.state.draws import NO_RANDOM
from fpsim.state.threads import run_blocks

__all__ = ["run_tiles"]

#: Numbers of both operands, and products, up to which it is not worth blocks and threads.
_SMALL, _SHORT = 1 << 17, 1 << 22

#: Numbers in the tables and panels of a call.
_NUMBERS = 1 << 15

#: Numbers of an operand whose memory a thread keeps by its shape, and how many such arrays.
_TINY, _MOST_KEPT = 1 << 12, 32

_per_thread = threading.local()

#: Products of numbers below which one thread is enough.
_SMALLEST = 1 << 20


def run_tiles(job: Job, task: TileTask, values: Carrier | None = None) -> int:
    """One product into values (default: those of the job) and flags; its flags together."""
    a, b = job.a, job.b
    if (
        values is None
        and isinstance(a, np.ndarray)
        and a.size + b.size <= _SMALL
        and a.size * b.shape[1] <= _SHORT
    ):
        flags = _run_together(job, task, (a[None], b[None]), job.values)
    else:
        flags = _run(job, task, values)
    store = job.settings.store
    if store is not None and store.narrow.one_zero:
        sums = job.values if values is None else values
        sums[sums == 0] = 0.0  # loops of tiles give zeros a sign
    return flags


def _run(job: Job, task: TileTask, values: Carrier | None) -> int:
    if isinstance(job.a, Windows):
        return _run_images(job, job.a, task, job.values if values is None else values)
    if isinstance(job.a, Stack):
        return _run_stack(job, job.a, task, job.values if values is None else values)
    if values is None:
        values = job.values
    rows = job.a if isinstance(job.a, Rows) else Rows.of(job.a)
    return run_in_blocks(job, task, rows, values)


def _run_images(job: Job, a: Windows, task: TileTask, values: Carrier) -> int:
    """A product of windows as they lie in the images, or of pieces of them."""
    if fits(task, a):
        return run_windows(job, a, task, values)
    flags = 0
    for piece in job.pieces(values):
        flags |= run_tiles(piece, task, piece.values)
    return flags


def _run_stack(job: Job, stack: Stack, task: TileTask, values: Carrier) -> int:
    """The products of a stack into values (n * M, N); their flags together."""
    n, rows, depth = stack.values.shape
    columns = values.shape[1]
    numbers = rows * depth + depth * (-(-columns // COLUMNS) * COLUMNS)
    step = max(1, _NUMBERS // numbers)

    def work(begin: int, end: int) -> int:
        flags = 0
        for first in range(begin, end, step):
            matrices = slice(first, min(first + step, end))
            operands = stack.values[matrices], job.b[matrices]
            flags |= _run_together(job, task, operands, values, first * rows)
        return flags

    return run_blocks(work, 0, n, max(1, _SMALLEST // (rows * depth * columns)))


def _run_together(
    job: Job, task: TileTask, operands: tuple[Carrier, Carrier], values: Carrier, first: int = 0
) -> int:
    """Products a[i] @ b[i] of some operands in one call; their results are rows from `first` on."""
    a, b = operands
    if not a.flags.c_contiguous:
        a = np.ascontiguousarray(a)
    n, m, _ = a.shape
    columns = b.shape[2]
    if b.flags.c_contiguous:
        codes, steps = b.reshape(-1).view(np.uint32), (columns, 1)
        if not codes.flags.writeable:
            codes = to_read(codes)
    else:  # one that is transposed is read as it lies
        codes, steps = Right.of(b[0] if n == 1 else b.reshape(-1, columns))
    offsets, terms, bases, outputs = _indices(job.settings, *a.shape, columns, task.height)
    table, fields = _memory(task.left, "left", (-(-a.size // COLUMNS) * COLUMNS,))
    panels, exponents = _memory(task.right, "right", (-(-columns // COLUMNS), len(terms), COLUMNS))
    numbers = a.reshape(-1)
    if not numbers.flags.writeable:
        numbers = to_read(numbers)
    if task.left.bytes:
        fill_table(
            numbers.view(np.uint32), 0, a.size, table, fields, task.zero, task.left.shift
        )
    fill_panels(
        codes, terms, steps, 0, columns, 0, len(panels), panels, exponents, task.zero,
        task.right.shift,
    )
    places = job.places.part(first).random if job.places.active else NO_RANDOM
    element_flags = job.element_flags
    assert element_flags is not None
    if n * m < len(values):
        rows = slice(first, first + n * m)
        values, element_flags = values[rows], element_flags[rows]
    flags: int = task.loop(
        (table if task.left.values else numbers, fields, bases, offsets, outputs),
        (panels, exponents, 0, columns), values, element_flags, places, task.store, task.numbers,
    )
    return flags


def _memory(table: OperandTable, name: str, shape: Shape) -> tuple[Carrier, Constants]:
    """For values and exponents, empty where there are none; not initialised."""
    if math.prod(shape) > _TINY:
        return table.room(name, shape)
    cache: dict[Any, Any] = _per_thread.__dict__  # of this thread
    key = name, shape, table.values, table.exponents
    pair: tuple[Carrier, Constants] | None = cache.get(key)
    if pair is None:
        if len(cache) >= _MOST_KEPT:
            cache.clear()
        none = (0,) * len(shape)
        values = np.empty(shape if table.values else none, FLOAT[table.values])
        fields = np.empty(shape if table.exponents else none, WORD[table.exponents])
        pair = cache[key] = values, fields
    return pair


@lru_cache(maxsize=64)
def _indices(
    settings: UnitSettings, n: int, m: int, k: int, columns: int, height: int
) -> tuple[Offsets, Offsets, Offsets, Offsets]:
    """Offsets of the terms, their rows in all right operands, bases of rows, places of results."""
    terms, products = all_terms(settings, np.arange(k)), np.arange(n)[:, None]
    rows = np.where(terms.rows < 0, -1, products * k + terms.rows)
    bases = whole_tiles(np.arange(m) * k, height) + products * (m * k)
    return terms.offsets, rows.reshape(-1), bases.reshape(-1), np.arange(n * m) * columns
