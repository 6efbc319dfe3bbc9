"""The fast engines' common half: how a product reaches the loop of tiles.

An engine says what its unit calls need; here is where the operands come from and go. Large products
run in blocks, windows as they lie in the images. Small ones run in one call, and many small ones in
few: what a call costs beside its products is shared by as many of them as fill a workspace, and
threads take products, not rows. What follows from their shapes alone is prepared once.

Source    docs/semantics.md §5.
"""

from __future__ import annotations

import math
import threading
from functools import partial
from typing import Any, NamedTuple

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
from fpsim.records.types import Carrier, ElementFlags, Offsets, Shape
from fpsim.state.draws import NO_RANDOM
from fpsim.state.threads import run_blocks

__all__ = ["RepeatedTiles", "run_tiles"]

#: Numbers of both operands, and products, up to which it is not worth blocks and threads.
_SMALL, _SHORT = 1 << 17, 1 << 22

#: Numbers in the tables and panels of a call.
_NUMBERS = 1 << 15

#: Numbers of an operand whose memory a thread keeps by its shape, and shapes that it knows.
_TINY, _MOST_KEPT = 1 << 12, 64

_per_thread = threading.local()

#: Values and exponents of an operand.
_Table = tuple[Carrier, Constants]

#: Products of numbers below which one thread is enough.
_SMALLEST = 1 << 20

#: Of products that are repeated: numbers of the left and of the right operand, and products.
_MOST_LEFT, _MOST_RIGHT, _LONGEST = 1 << 16, 1 << 19, 1 << 24

#: Bytes of panels that are filled before they are multiplied.
_PANEL_BYTES = 1 << 18


def run_tiles(job: Job, task: TileTask, values: Carrier | None = None) -> int:
    """One product into values (default: those of the job) and flags; its flags together."""
    a, b = job.a, job.b
    sums = job.values if values is None else values
    if (
        isinstance(a, np.ndarray)
        and a.size + b.size <= _SMALL
        and a.size * b.shape[1] <= _SHORT
    ):
        flags = _run_together(job, task, (a, b), sums)
    elif isinstance(a, Windows):
        flags = _run_images(job, a, task, sums)
    elif isinstance(a, Stack):
        flags = _run_stack(job, a, task, sums)
    else:
        flags = run_in_blocks(job, task, a if isinstance(a, Rows) else Rows.of(a), sums)
    store = job.settings.store
    if store is not None and store.narrow.one_zero:
        sums[sums == 0] = 0.0  # loops of tiles give zeros a sign
    return flags


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


class _Prepared(NamedTuple):
    """Products of some shapes on their way to the loop: all that their numbers do not change.

    offsets, terms, bases, outputs    see `_indices`.
    left, right    shapes of the operands' values and exponents.
    tables         their memory, not initialised; None for what is too large to be kept by shape.
    """

    offsets: Offsets
    terms: Offsets
    bases: Offsets
    outputs: Offsets
    left: Shape
    right: Shape
    tables: tuple[_Table | None, _Table | None]

    @classmethod
    def of(
        cls, settings: UnitSettings, task: TileTask, n: int, m: int, k: int, columns: int
    ) -> _Prepared:
        """Of n products of (m, k) and (k, columns)."""
        indices = _indices(settings, task, n, m, k, columns)
        left = (-(-n * m * k // COLUMNS) * COLUMNS,)
        right = -(-columns // COLUMNS), len(indices[1]), COLUMNS
        return cls(*indices, left, right, (_kept(task.left, left), _kept(task.right, right)))


def _prepared(
    settings: UnitSettings, task: TileTask, n: int, m: int, k: int, columns: int
) -> _Prepared:
    """The same object for the same shapes in a thread."""
    products: dict[Any, _Prepared] = _per_thread.__dict__  # of this thread
    key = task, settings, n, m, k, columns
    prepared = products.get(key)
    if prepared is None:
        if len(products) >= _MOST_KEPT:
            products.clear()
        prepared = products[key] = _Prepared.of(settings, task, n, m, k, columns)
    return prepared


def _kept(table: OperandTable, shape: Shape) -> _Table | None:
    """Memory for values and exponents, empty where there are none; None for much of it."""
    return None if math.prod(shape) > _TINY else _table_of(table, shape)


def _run_together(
    job: Job, task: TileTask, operands: tuple[Carrier, Carrier], values: Carrier, first: int = 0
) -> int:
    """Products a[i] @ b[i] of some operands in one call; their results are rows from `first` on.

    Shapes    a (n, M, K), b (n, K, N), or two matrices.
    """
    a, b = operands
    *stack, m, k = a.shape
    n, columns = stack[0] if stack else 1, b.shape[-1]
    flat = a.reshape(-1)  # of one number that is repeated it is a view without steps
    numbers = to_read(flat if flat.flags.c_contiguous else flat.copy())
    if b.flags.c_contiguous:
        right = Right(to_read(b.reshape(-1)).view(np.uint32), (columns, 1))
    else:  # one that is transposed is read as it lies
        right = Right.of(b if not stack else b[0] if n == 1 else b.reshape(-1, columns))
    offsets, terms, bases, outputs, *shapes, tables = _prepared(
        job.settings, task, n, m, k, columns
    )
    table, fields = tables[0] or task.left.room("left", shapes[0])
    panels, exponents = tables[1] or task.right.room("right", shapes[1])
    if task.left.bytes:
        fill_table(
            numbers.view(np.uint32), 0, a.size, table, fields, task.zero, task.left.shift
        )
    fill_panels(
        right.codes, terms, right.steps, 0, columns, 0, len(panels), panels, exponents, task.zero,
        task.right.shift,
    )
    places = NO_RANDOM
    if job.places.active:
        places = (job.places.part(first) if first else job.places).random
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


class _Call(NamedTuple):
    """Arguments of the kernels for products that are repeated.

    table, panels    that fill the tables of the operands; panels None: a part at a time.
    right            of the loop, or how many panels there are and terms in each.
    terms, smallest  of the parts: their rows of the right operand, and panels of the least one.
    """

    table: tuple[Any, ...] | None
    panels: tuple[Any, ...] | None
    left: tuple[Any, ...]
    right: tuple[Any, ...]
    terms: Offsets | None = None
    smallest: int = 1


class RepeatedTiles:
    """Products on the same memory time after time, small ones each time in one call of the loop.

    numbers, codes    of the operands in a row, as they are read; `read` brings them there.

    Shapes    a (n, M, K), b (n, K, N), or two matrices; values and element_flags (n * M, N).
    """

    def __init__(
        self, settings: UnitSettings, a: Carrier, b: Carrier, values: Carrier,
        element_flags: ElementFlags,
    ) -> None:
        self._settings, self._copies = settings, list[tuple[Carrier, Carrier]]()
        *stack, m, k = a.shape
        columns = b.shape[-1]
        self._shape = (stack[0] if stack else 1), m, k, columns
        self.numbers = to_read(self._in_a_row(a))
        is_turned = not stack and b.T.flags.c_contiguous and not b.flags.c_contiguous
        flat = b.T.reshape(-1) if is_turned else self._in_a_row(b)
        self.codes = to_read(flat).view(np.uint32)
        self._steps = (1, k) if is_turned else (columns, 1)
        self._values, self._flags = values, element_flags
        self._calls: dict[int, _Call] = {}

    @staticmethod
    def takes(a: Carrier, b: Carrier) -> bool:
        """Whether the left operand is so small that all of it is there at once."""
        m, k = a.shape[-2:]
        columns = b.shape[-1]
        if a.ndim != b.ndim or a.ndim > 3 or not (a.size and b.size):
            return False
        if a.ndim == 2:
            is_small = a.size <= _MOST_LEFT and b.size <= _MOST_RIGHT
            return is_small and a.size * columns <= _LONGEST
        numbers = m * k + k * (-(-columns // COLUMNS) * COLUMNS)
        return bool(a.shape[0] == b.shape[0] and 1 < a.shape[0] <= _NUMBERS // numbers)

    def _in_a_row(self, x: Carrier) -> Carrier:
        """The memory of an operand, or memory for a copy of it."""
        if x.flags.c_contiguous:
            return x.reshape(-1)
        copy: Carrier = np.empty(x.shape, x.dtype)
        self._copies.append((copy, x))
        return copy.reshape(-1)

    def read(self) -> None:
        """Numbers and codes are those that the operands hold now."""
        for copy, source in self._copies:
            copy[...] = source

    def run(self, task: TileTask, random: Any) -> int:
        """The products of what was read, into values that are zeros; flags together.

        random    of the places of the result, as kernels take them.
        """
        call = self._calls.get(id(task))
        if call is None:  # tasks are kept, so that no other has the number of one
            call = self._calls[id(task)] = self._call(task)
        if call.table is not None:
            fill_table(*call.table)
        if call.panels is None:
            work = partial(self._part, task, call, random)
            return run_blocks(work, 0, call.right[0], call.smallest)
        fill_panels(*call.panels)
        flags: int = task.loop(
            call.left, call.right, self._values, self._flags, random, task.store, task.numbers
        )
        return flags

    def _part(self, task: TileTask, call: _Call, random: Any, begin: int, end: int) -> int:
        """The results of some panels, as many at a time as stay in the cache."""
        flags, (_, depth) = 0, call.right
        step = max(1, _PANEL_BYTES // (task.right.bytes * depth * COLUMNS))
        for panel in range(begin, end, step):
            n = min(step, end - panel)
            edges = panel * COLUMNS, min((panel + n) * COLUMNS, self._shape[-1])
            panels = task.right.room("right", (n, depth, COLUMNS))
            fill_panels(
                self.codes, call.terms, self._steps, *edges, 0, n, *panels, task.zero,
                task.right.shift,
            )
            flags |= task.loop(
                call.left, (*panels, *edges), self._values, self._flags, random, task.store,
                task.numbers,
            )
        return flags

    def _call(self, task: TileTask) -> _Call:
        """Arguments of the kernels, by the shapes and the task."""
        n, m, k, columns = self._shape
        shapes = _prepared(self._settings, task, n, m, k, columns)
        table, fields = _table_of(task.left, shapes.left)
        fill_left = None
        if task.left.bytes:
            fill_left = (
                self.numbers.view(np.uint32), 0, n * m * k, table, fields, task.zero,
                task.left.shift,
            )
        numbers = table if task.left.values else self.numbers
        left = numbers, fields, shapes.bases, shapes.offsets, shapes.outputs
        if math.prod(shapes.right) * task.right.bytes > _PANEL_BYTES:
            smallest = max(1, _SMALLEST // (shapes.right[1] * COLUMNS * m))
            return _Call(fill_left, None, left, shapes.right[:2], shapes.terms, smallest)
        panels, exponents = _table_of(task.right, shapes.right)
        fill_right = (
            self.codes, shapes.terms, self._steps, 0, columns, 0, len(panels), panels, exponents,
            task.zero, task.right.shift,
        )
        return _Call(fill_left, fill_right, left, (panels, exponents, 0, columns))


def _table_of(table: OperandTable, shape: Shape) -> _Table:
    """Memory for values and exponents, empty where there are none."""
    none = (0,) * len(shape)
    values = np.empty(shape if table.values else none, FLOAT[table.values])
    return values, np.empty(shape if table.exponents else none, WORD[table.exponents])


def _indices(
    settings: UnitSettings, task: TileTask, n: int, m: int, k: int, columns: int
) -> tuple[Offsets, Offsets, Offsets, Offsets]:
    """Offsets of the terms, their rows in all right operands, bases of rows, places of results."""
    terms, products = all_terms(settings, np.arange(k), task.terms), np.arange(n)[:, None]
    rows = np.where(terms.rows < 0, -1, products * k + terms.rows)
    bases = whole_tiles(np.arange(m) * k, task.height) + products * (m * k)
    return terms.offsets, rows.reshape(-1), bases.reshape(-1), np.arange(n * m) * columns
