"""Many small products in few calls of the loop of tiles.

What a call costs beside its products is shared by as many of them as fill a workspace. Threads take
products, not rows.

Source    docs/semantics.md §5.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from fpsim.kernels.by_unit.panels import fill_panels, fill_table
from fpsim.kernels.by_unit.tiles import COLUMNS
from fpsim.products.by_unit.panels import whole_tiles
from fpsim.products.by_unit.task import Task
from fpsim.products.by_unit.terms import all_terms
from fpsim.products.by_unit.unit_settings import UnitSettings
from fpsim.products.jobs.job import Job
from fpsim.products.jobs.stack import Stack
from fpsim.records.types import Carrier, Offsets
from fpsim.state.draws import NO_RANDOM
from fpsim.state.threads import run_blocks

__all__ = ["run_stack"]

#: Numbers in the tables and panels of a call.
_NUMBERS = 1 << 15

#: Products of numbers below which one thread is enough.
_SMALLEST = 1 << 20


def run_stack(job: Job, stack: Stack, task: Task, values: Carrier) -> int:
    """The products of a stack into values (n * M, N); their flags together."""
    n, rows, depth = stack.values.shape
    columns = values.shape[1]
    each = rows * depth + depth * (-(-columns // COLUMNS) * COLUMNS)
    step = max(1, _NUMBERS // each)

    def work(begin: int, end: int) -> int:
        flags = 0
        for first in range(begin, end, step):
            flags |= _some(job, stack, task, values, slice(first, min(first + step, end)))
        return flags

    return run_blocks(work, 0, n, max(1, _SMALLEST // (rows * depth * columns)))


def _some(job: Job, stack: Stack, task: Task, values: Carrier, chosen: slice) -> int:
    """Some of the products in one call."""
    a, b = (np.ascontiguousarray(x[chosen]) for x in (stack.values, job.b))
    n, rows, _ = a.shape
    columns = b.shape[2]
    offsets, terms, bases, outputs = _indices(job.settings, *a.shape, columns, task.height)
    table, fields = task.left.room("left", (-(-a.size // COLUMNS) * COLUMNS,))
    panels, exponents = task.right.room("right", (-(-columns // COLUMNS), len(terms), COLUMNS))
    codes = a.reshape(-1).view(np.uint32), b.reshape(-1).view(np.uint32)
    if task.left.bytes:
        fill_table(codes[0], 0, a.size, table, fields, task.zero, task.left.shift)
    fill_panels(
        codes[1], terms, (columns, 1), 0, columns, 0, len(panels), panels, exponents, task.zero,
        task.right.shift,
    )  # fmt: skip
    first = chosen.start * rows
    places = job.places.part(first).random if job.places.active else NO_RANDOM
    span = slice(first, first + n * rows)
    assert job.element_flags is not None
    flags: int = task.loop(
        (table if task.left.values else a.reshape(-1), fields, bases, offsets, outputs),
        (panels, exponents, 0, columns), values[span], job.element_flags[span], places,
        task.store, task.numbers,
    )  # fmt: skip
    return flags


@lru_cache(maxsize=64)
def _indices(
    settings: UnitSettings, n: int, m: int, k: int, columns: int, height: int
) -> tuple[Offsets, Offsets, Offsets, Offsets]:
    """Offsets of the terms, their rows in all right operands, bases of rows, places of results."""
    terms, products = all_terms(settings, np.arange(k)), np.arange(n)[:, None]
    rows = np.where(terms.rows < 0, -1, products * k + terms.rows)
    bases = whole_tiles(np.arange(m) * k, height) + products * (m * k)
    return terms.offsets, rows.reshape(-1), bases.reshape(-1), np.arange(n * m) * columns
