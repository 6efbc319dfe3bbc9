"""Sums in a context: which additions, in which order, with which random bits.

A tree of additions over elements 0 … n - 1 is a list of pairs (i, j): the partial sum that begins
with element j is added to the one that begins with element i. That addition has place j - 1, so its
random bits depend on the tree alone.

Source    docs/semantics.md §2 (places) and §4 (orders); Kahan 1965.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from fpsim.array import Array
from fpsim.elementwise.apply import Carrier
from fpsim.elementwise.constants import exact_width, plan
from fpsim.kernels.by_operation.sums import (
    COLUMN_BLOCK,
    WORDS_GIVEN,
    WORDS_HALF,
    WORDS_NONE,
    WORDS_WHOLE,
    SumVariant,
    exact_sums,
    sum_kernel,
)  # fmt: skip
from fpsim.kernels.elementwise.loop import FLAGS_EACH, FLAGS_STICKY
from fpsim.kernels.elementwise.special import OPERATIONS
from fpsim.products.native_sums import is_native, outer_sums
from fpsim.state.bits import Philox
from fpsim.state.publish import checked_target, fold_flags, published, wants_marks
from fpsim.state.threads import run_blocks

if TYPE_CHECKING:
    from fpsim.context import Context

__all__ = ["ORDERS", "mean", "sum"]

Program = NDArray[np.int64]
Marks = NDArray[np.uint8]
Axis = int | tuple[int, ...] | None

_CODES = {name: i for i, name in enumerate(OPERATIONS)}
_NO_WORDS = np.zeros((1, COLUMN_BLOCK), np.uint32)

#: Elements of a mean: their number is divided by exactly.
_MOST = 1 << 26

#: Additions of sixteen outputs below which a second thread costs more than it gives.
_SMALLEST = 1 << 15


def _steps(pairs: NDArray[np.int64]) -> Program:
    """Additions in place: slot i += slot j at place j - 1."""
    i, j = pairs[:, 0], pairs[:, 1]
    return np.stack([np.zeros_like(i), i, i, j, j - 1], axis=1)


def _sequential(n: int, block: int) -> tuple[Program, int]:
    j = np.arange(1, n)
    return _steps(np.stack([np.zeros_like(j), j], axis=1)), 0


def _blocked(n: int, block: int) -> tuple[Program, int]:
    j = np.arange(1, n)
    inside = j[j % block != 0]
    over = np.arange(block, n, block)
    first = np.concatenate([inside // block * block, np.zeros_like(over)])
    return _steps(np.stack([first, np.concatenate([inside, over])], axis=1)), 0


def _pairwise(n: int, block: int) -> tuple[Program, int]:
    """Splits at the largest power of two below n: level by level, as a counter carries."""
    pairs = []
    width = 1
    while width < n:
        j = np.arange(width, n, 2 * width)
        pairs.append(np.stack([j - width, j], axis=1))
        width *= 2
    return _steps(np.concatenate(pairs) if pairs else np.empty((0, 2), np.int64)), 0


def _kahan(n: int, block: int) -> tuple[Program, int]:
    """s and t change places, so that s = t costs nothing; c, y, t - s have slots of their own."""
    sums, c, y, lost = (0, n), n + 1, n + 2, n + 3
    program = []
    for j in range(1, n):
        s, t = sums[(j - 1) % 2], sums[j % 2]
        place = 4 * (j - 1)
        program += [
            (1, y, j, c, place),
            (0, t, s, y, place + 1),
            (1, lost, t, s, place + 2),
            (1, c, lost, y, place + 3),
        ]
    return np.array(program, np.int64).reshape(-1, 5), sums[(n - 1) % 2]


#: Orders by name: a program for n elements and the slot of its result.
ORDERS: dict[str, Callable[[int, int], tuple[Program, int]]] = {
    "sequential": _sequential,
    "pairwise": _pairwise,
    "blocked": _blocked,
    "kahan": _kahan,
}


@lru_cache(maxsize=32)
def _program(order: str, n: int, block: int) -> tuple[Program, int]:
    return ORDERS[order](n, block)


def sum(  # noqa: A001  (numpy's name)
    x: Array, axis: Axis = None, order: str = "sequential", *, context: Context | None = None,
    block: int = 256, out: Array | Carrier | None = None,
) -> Array:  # fmt: skip
    """Sum over axes (default: all), each addition rounded in the context.

    order   sequential, pairwise, blocked (blocks of `block` elements), kahan, exact (one rounding).

    Shapes    the axes vanish; over several, elements come in C order. An empty sum is +0.
    Rounding  at every addition, `exact`: once.
    Flags     those of the additions.
    Source    docs/semantics.md §4.

    >>> import fpsim as fp
    >>> half = fp.Context(fp.BINARY16)
    >>> x = half.array([1e-4] * 10_000)
    >>> [float(sum(x, order=order)) for order in ("sequential", "pairwise", "kahan", "exact")]
    [0.25, 1.0, 1.0, 1.0]
    """
    return _reduce(x, axis, order, context or x.context, block, out, divide=False)


def mean(
    x: Array, axis: Axis = None, order: str = "sequential", *, context: Context | None = None,
    block: int = 256, out: Array | Carrier | None = None,
) -> Array:  # fmt: skip
    """Sum as `sum` computes it, then one division by the number of elements.

    Flags     those of the additions and the division; INVALID for the mean of nothing.
    """
    return _reduce(x, axis, order, context or x.context, block, out, divide=True)


def _reduce(
    x: Array, axis: Axis, order: str, context: Context, block: int, out: Array | Carrier | None,
    divide: bool,
) -> Array:  # fmt: skip
    if order != "exact" and order not in ORDERS:
        raise ValueError(f"order={order!r} is not known; use one of {', '.join(ORDERS)}, exact")
    if block < 1:
        raise ValueError(f"block={block} is not a number of elements; use 1 or more")
    if context.settings.native:
        raise TypeError("binary64 is the native reference; use numpy on .values for its sums")
    (values,) = context.carriers((x,))
    axes = _axes(values, axis)
    n = math.prod(values.shape[i] for i in axes)
    if divide and n > _MOST:
        raise ValueError(f"x has {n} elements; a mean takes at most 2**26, split it")
    shape = tuple(extent for i, extent in enumerate(values.shape) if i not in axes)
    target = checked_target(context, out, shape)
    name, watched = "mean" if divide else "sum", wants_marks(context)
    if not divide and is_native(context.settings, order):
        native = outer_sums(values, axes)
        if native is not None:
            result, marks = native
            fold_flags(context, name, int(marks.max()), result, marks if watched else None)
            return published(context, result, target, out)
    job = _Job(context, order, _rows(values, axes), block, divide, shape)
    result, flags, marks = job.run(FLAGS_EACH if watched else FLAGS_STICKY)
    result = result.reshape(shape)
    fold_flags(context, name, flags, result, marks if watched else None)
    job.advance()
    return published(context, result, target, out)


def _axes(values: Carrier, axis: Axis) -> tuple[int, ...]:
    """Axes from the first on, each once; default: all."""
    if axis is None:
        return tuple(range(values.ndim))
    return np.lib.array_utils.normalize_axis_tuple(axis, values.ndim, "axis")


def _rows(values: Carrier, axes: tuple[int, ...]) -> Carrier:
    """Values as (outputs, elements)."""
    kept = tuple(i for i in range(values.ndim) if i not in axes)
    moved = values.transpose((*kept, *sorted(axes)))
    outputs, elements = (math.prod(values.shape[i] for i in some) for some in (kept, axes))
    return moved.reshape(outputs, elements)


class _Job:
    """One sum over the rows of a matrix, and the division of a mean.

    `shape` is that of the outputs; without one nothing is drawn, since nothing is rounded.
    """

    def __init__(
        self, context: Context, order: str, rows: Carrier, block: int, divide: bool,
        shape: tuple[int, ...] | None,
    ) -> None:  # fmt: skip
        self.context, self.order, self.rows, self.divide = context, order, rows, divide
        self.block = block
        self.n = rows.shape[1]
        stochastic = context.rounding.stochastic and shape is not None
        additions = 1 if order == "exact" else max(0, self.n - 1)
        if order == "kahan":
            additions *= 4
        self.places = additions + divide if stochastic else 0
        self.words: NDArray[np.uint32] | None = None
        if self.places:
            bits = context.settings.random_most
            drawn = context.source.draw(context.operation, (self.places, *(shape or ())), bits)
            if drawn is not None:
                wide = -(-rows.shape[0] // COLUMN_BLOCK) * COLUMN_BLOCK
                self.words = np.zeros((self.places, wide), np.uint32)
                self.words[:, : rows.shape[0]] = drawn.reshape(self.places, -1)

    def advance(self) -> None:
        if self.places:
            self.context.source.advance()
            self.context.operation += 1

    def run(self, level: int) -> tuple[Carrier, int, Marks]:
        marks = np.zeros((_groups(self.rows.shape[0]), COLUMN_BLOCK), np.uint8)
        if self.n == 0 or self.rows.shape[0] == 0:
            result, flags = np.zeros(self.rows.shape[0], self.rows.dtype), 0
        elif self.order == "exact":
            result, flags = self._exact(level, marks)
        else:
            result, flags = self._run_program(level, marks)
        if self.divide:
            flags |= self._divide(result, level, marks)
        flat = marks.reshape(-1)[: self.rows.shape[0]]
        return result, flags, flat

    def _run_program(self, level: int, marks: Marks) -> tuple[Carrier, int]:
        program, result = _program(self.order, self.n, self.block)
        spare = 4 if self.order == "kahan" else 0
        slots = _slots(self.rows, self.n + spare)
        flags = self._run("add", slots, program, marks, level)
        return _outputs(slots, result, self.rows.shape[0]), flags

    def _exact(self, level: int, marks: Marks) -> tuple[Carrier, int]:
        """The exact sum rounded to odd in binary64, then once into the format."""
        wide = self.rows.astype(np.float64)
        finite = np.asarray(np.isfinite(wide).all(axis=1))
        sums = np.empty(len(wide), np.int64)
        exact_sums(np.where(finite[:, None], wide, 0.0).view(np.int64), sums)
        slots = _slots(sums.view(np.float64)[:, None], 1)
        flags = self._run("convert", slots, np.zeros((1, 5), np.int64), marks, level)
        result = _outputs(slots, 0, len(wide)).astype(self.rows.dtype)
        if not finite.all():
            # Infinities and NaN: their sum in any order, which rounds nothing.
            special = np.where(np.isfinite(self.rows), 0, self.rows)[~finite]
            job = _Job(self.context, "sequential", special, self.block, divide=False, shape=None)
            found = np.zeros((_groups(len(special)), COLUMN_BLOCK), np.uint8)
            result[~finite], more = job._run_program(FLAGS_EACH, found)
            marks.reshape(-1)[: len(wide)][~finite] |= found.reshape(-1)[: len(special)]
            flags |= more
        return result, flags

    def _divide(self, result: Carrier, level: int, marks: Marks) -> int:
        """result /= n, with the last place."""
        pair = np.empty((len(result), 2), np.float64)
        pair[:, 0], pair[:, 1] = result, self.n
        slots = _slots(pair, 2)
        slots[:, 1] = self.n  # also beside the last output
        program = np.array([[0, 0, 0, 1, self.places - 1]], np.int64)
        flags = self._run("divide", slots, program, marks, level)
        result[...] = _outputs(slots, 0, len(result))
        return flags

    def _run(
        self, operation: str, slots: Carrier, program: Program, marks: Marks, level: int
    ) -> int:
        settings = self.context.settings
        chosen = plan(operation, settings, exact_width(operation, settings, slots.itemsize))
        words = WORDS_NONE
        if self.places:
            made = WORDS_WHOLE if chosen.whole_words else WORDS_HALF
            words = made if self.words is None else WORDS_GIVEN
        kernel = sum_kernel(
            SumVariant(
                _CODES[operation], chosen.mode, level, chosen.flush, chosen.one_zero, words,
                chosen.residual,
            )
        )  # fmt: skip
        source = self.context.source
        seed = np.uint64(source.seed if isinstance(source, Philox) else 0)
        number = np.uint64(self.context.operation)
        given = _NO_WORDS if self.words is None else self.words

        def work(begin: int, end: int) -> int:
            flags: int = kernel(
                slots[begin:end], program, marks[begin:end], given, chosen.constants,
                begin * COLUMN_BLOCK, seed, number,
            )  # fmt: skip
            return flags

        smallest = max(1, _SMALLEST // max(1, len(program)))
        return run_blocks(work, 0, len(slots), smallest)


def _groups(outputs: int) -> int:
    return -(-max(1, outputs) // COLUMN_BLOCK)


def _slots(rows: Carrier, n: int) -> Carrier:
    """Rows (outputs, elements) as slots (groups, n, 16), zeros where there is nothing."""
    outputs, elements = rows.shape
    groups, whole = _groups(outputs), outputs // COLUMN_BLOCK
    slots = np.zeros((groups, n, COLUMN_BLOCK), rows.dtype)
    full = rows[: whole * COLUMN_BLOCK].reshape(whole, COLUMN_BLOCK, elements)
    slots[:whole, :elements] = full.swapaxes(1, 2)
    if whole < groups:
        slots[whole, :elements, : outputs - whole * COLUMN_BLOCK] = rows[whole * COLUMN_BLOCK :].T
    return slots


def _outputs(slots: Carrier, slot: int, outputs: int) -> Carrier:
    return slots[:, slot].reshape(-1)[:outputs].copy()
