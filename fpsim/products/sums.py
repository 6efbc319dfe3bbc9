"""Sums in a context: which additions, in which order, with which random bits.

A tree of additions over elements 0 … n - 1 is a list of pairs (i, j): the partial sum that begins
with element j is added to the one that begins with element i. That addition has place j - 1, so its
random bits depend on the tree alone.

Source    docs/semantics.md §2 (places) and §4 (orders); Kahan 1965.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cached_property, lru_cache

import numpy as np
from numpy.typing import NDArray

from fpsim.elementwise.apply import as_read
from fpsim.elementwise.compare import is_signalling
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
)
from fpsim.kernels.elementwise.special import OPERATIONS
from fpsim.kernels.elementwise.step import FLAGS_EACH, FLAGS_STICKY
from fpsim.products.native_sums import is_native, native_sums
from fpsim.records.flags import Flags
from fpsim.records.settings import Settings
from fpsim.records.types import Axis, Carrier, ElementFlags, Index, Shape, Words
from fpsim.state.draws import NO_DRAW, Draw, draw
from fpsim.state.publish import fold, publish
from fpsim.state.state import State
from fpsim.state.threads import run_blocks

__all__ = ["ORDERS", "AxisSum"]

Program = NDArray[np.int64]

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


class AxisSum:
    """The sum of an array over axes (default: all), or its mean; checked when it is made.

    order   sequential, pairwise, blocked (blocks of `block` elements), kahan, exact (one rounding).

    Shapes    the axes vanish; over several, elements come in C order.
    """

    def __init__(
        self, values: Carrier, axis: Axis, order: str, block: int, *, divide: bool
    ) -> None:
        if order != "exact" and order not in ORDERS:
            raise ValueError(f"order={order!r} is not known; use one of {', '.join(ORDERS)}, exact")
        if block < 1:
            raise ValueError(f"block={block} is not a number of elements; use 1 or more")
        self.values, self.order, self.block, self.divide = values, order, block, divide
        self.axes = _axes(values, axis)
        if divide:
            n = math.prod(values.shape[i] for i in self.axes)
            if n > _MOST:
                raise ValueError(f"x has {n} elements; a mean takes at most 2**26, split it")

    @cached_property
    def shape(self) -> Shape:
        """Of the result."""
        shape = self.values.shape
        return tuple(extent for i, extent in enumerate(shape) if i not in self.axes)

    @property
    def name(self) -> str:
        return "mean" if self.divide else "sum"

    def run(self, state: State, target: Carrier | None) -> Carrier:
        """The result, published."""
        if state.settings.native:
            raise TypeError("binary64 is the native reference; use numpy on .values for its sums")
        watched = state.watched
        native = None if self.divide else self.run_native(state, target)
        if native is not None:
            return native
        rows = _Rows(state.settings, self.order, _rows(self.values, self.axes), self.block)
        rows.draw(state, self.shape, self.divide)
        result, flags, each = rows.run(FLAGS_EACH if watched else FLAGS_STICKY, self.divide)
        return publish(
            state, self.name, result.reshape(self.shape), flags,
            each.reshape(self.shape) if watched else None, self._elements, target,
            advances=state.settings.rounding.stochastic,
        )  # fmt: skip

    def run_native(
        self, state: State, target: Carrier | None = None, *, squared: bool = False
    ) -> Carrier | None:
        """The result by the processor's own additions, published; None where it may differ.

        squared   the sum of squares, which must be numbers of binary32.
        """
        if not is_native(state.settings, self.order):
            return None
        native = native_sums(self.values, self.axes, squared=squared)
        if native is None:
            return None
        sums, each = native
        inexact = 1 in each.tobytes()
        return publish(
            state, self.name, sums, int(inexact), each if state.watched else None,
            self._elements, target,
        )  # fmt: skip

    def _elements(self, index: Index) -> tuple[Carrier]:
        """The elements of one output, as a trap shows them."""
        number = int(np.ravel_multi_index(index, self.shape)) if self.shape else 0
        return (_rows(self.values, self.axes)[number],)


def _axes(values: Carrier, axis: Axis) -> tuple[int, ...]:
    """Axes from the first on, each once; default: all."""
    if axis is None:
        return tuple(range(values.ndim))
    n = values.ndim
    plain = type(axis) is tuple and all(type(a) is int and 0 <= a < n for a in axis)
    if plain and len(axis) == len(set(axis)):  # type: ignore[arg-type]
        return axis  # type: ignore[return-value]  # numpy takes longer
    return np.lib.array_utils.normalize_axis_tuple(axis, n, "axis")


def _rows(values: Carrier, axes: tuple[int, ...]) -> Carrier:
    """Values as (outputs, elements)."""
    kept = tuple(i for i in range(values.ndim) if i not in axes)
    moved = values.transpose((*kept, *sorted(axes)))
    outputs, elements = (math.prod(values.shape[i] for i in chosen) for chosen in (kept, axes))
    return moved.reshape(outputs, elements)


class _Rows:
    """The sums of the rows of a matrix, and their division by the number of elements.

    Nothing is rounded stochastically before `draw`.
    """

    def __init__(self, settings: Settings, order: str, rows: Carrier, block: int) -> None:
        self.settings, self.order, self.rows, self.block = settings, order, rows, block
        self.n = rows.shape[1]
        self.places = 0
        self.bits: Draw = NO_DRAW
        self.words: Words | None = None

    def draw(self, state: State, shape: Shape, divide: bool) -> None:
        """Take random bits for every addition, and for the division."""
        if not self.settings.rounding.stochastic:
            return
        additions = 1 if self.order == "exact" else max(0, self.n - 1)
        if self.order == "kahan":
            additions *= 4
        self.places = additions + divide
        self.bits = draw(state, (self.places, *shape), places=self.places)
        if self.bits.words is not None:
            outputs = self.rows.shape[0]
            self.words = np.zeros(
                (self.places, -(-outputs // COLUMN_BLOCK) * COLUMN_BLOCK), np.uint32
            )
            self.words[:, :outputs] = self.bits.words.reshape(self.places, outputs)

    def run(self, level: int, divide: bool) -> tuple[Carrier, int, ElementFlags]:
        """Values, flags, and the flags of each output if the level says so."""
        each = np.zeros((_groups(self.rows.shape[0]), COLUMN_BLOCK), np.uint8)
        if self.n == 0 or self.rows.shape[0] == 0:
            result, flags = np.zeros(self.rows.shape[0], self.rows.dtype), 0
        elif self.n == 1:
            result, flags = self._only(each)
        elif self.order == "exact":
            result, flags = self._exact(level, each)
        else:
            result, flags = self._run_program(level, each)
        if divide:
            flags |= self._divide(result, level, each)
        return result, flags, each.reshape(-1)[: self.rows.shape[0]]

    def _only(self, each: ElementFlags) -> tuple[Carrier, int]:
        """Single elements: themselves, as they are read."""
        x = as_read(self.rows[:, 0], self.settings)
        loud = np.isnan(x) if self.settings.quiet_nan_raises else is_signalling(x)
        each.reshape(-1)[: len(x)] = loud * np.uint8(Flags.INVALID)
        return x.copy(), fold(each)

    def _run_program(self, level: int, each: ElementFlags) -> tuple[Carrier, int]:
        program, result = _program(self.order, self.n, self.block)
        spare = 4 if self.order == "kahan" else 0
        slots = _slots(self.rows, self.n + spare)
        flags = self._run("add", slots, program, each, level)
        return _outputs(slots, result, self.rows.shape[0]), flags

    def _exact(self, level: int, each: ElementFlags) -> tuple[Carrier, int]:
        """The exact sum rounded to odd in binary64, then once into the format."""
        with np.errstate(invalid="ignore"):  # the processor's flag for a signalling NaN is not ours
            wide = as_read(self.rows, self.settings).astype(np.float64)
        finite = np.asarray(np.isfinite(wide).all(axis=1))
        codes = np.empty(len(wide), np.int64)
        exact_sums(np.where(finite[:, None], wide, 0.0).view(np.int64), codes)
        sums = codes.view(np.float64)
        sums[_negative_zeros(sums, wide, self.settings)] = -0.0
        slots = _slots(sums[:, None], 1)
        flags = self._run("convert", slots, np.zeros((1, 5), np.int64), each, level)
        result = _outputs(slots, 0, len(wide)).astype(self.rows.dtype)
        if not finite.all():
            # Infinities and NaN: their sum in any order, which rounds nothing.
            special = np.where(np.isfinite(self.rows), 0, self.rows)[~finite]
            rows = _Rows(self.settings, "sequential", special, self.block)
            result[~finite], special_flags, special_each = rows.run(FLAGS_EACH, divide=False)
            each.reshape(-1)[: len(wide)][~finite] |= special_each
            flags |= special_flags
        return result, flags

    def _divide(self, result: Carrier, level: int, each: ElementFlags) -> int:
        """result /= n, with the last place; n is exact, whatever becomes of operands."""
        sums, divisor = result, float(self.n)
        fmt = self.settings.format
        if self.settings.subnormals == "flush_both" and self.n < fmt.smallest_normal:
            # The kernel would read n as zero: both times a power of two, which no quotient shows.
            # No sum is subnormal: results are flushed as operands are.
            with np.errstate(invalid="ignore"):
                sums = result.astype(np.float64) * fmt.smallest_normal
            divisor *= fmt.smallest_normal
        pair = np.empty((len(result), 2), np.float64)
        pair[:, 0], pair[:, 1] = sums, divisor
        slots = _slots(pair, 2)
        slots[:, 1] = divisor  # also beside the last output
        program = np.array([[0, 0, 0, 1, self.places - 1]], np.int64)
        flags = self._run("divide", slots, program, each, level)
        result[...] = _outputs(slots, 0, len(result))
        return flags

    def _run(
        self, operation: str, slots: Carrier, program: Program, each: ElementFlags, level: int
    ) -> int:
        settings = self.settings
        chosen = plan(operation, settings, exact_width(operation, settings, slots.itemsize))
        source = WORDS_NONE
        if self.places:
            source = WORDS_WHOLE if chosen.whole_words else WORDS_HALF
            if self.words is not None:
                source = WORDS_GIVEN
        kernel = sum_kernel(
            SumVariant(
                _CODES[operation], chosen.mode, level, chosen.flush, chosen.one_zero, source,
                chosen.residual,
            )
        )  # fmt: skip
        rows = _NO_WORDS if self.words is None else self.words

        def work(begin: int, end: int) -> int:
            flags: int = kernel(
                slots[begin:end], program, each[begin:end], rows, chosen.constants,
                begin * COLUMN_BLOCK, self.bits.seed, self.bits.number,
            )  # fmt: skip
            return flags

        smallest = max(1, _SMALLEST // max(1, len(program)))
        return run_blocks(work, 0, len(slots), smallest)


def _negative_zeros(
    sums: NDArray[np.float64], rows: NDArray[np.float64], settings: Settings
) -> NDArray[np.bool_]:
    """Where a sum is -0: of zeros that all are, and toward -infinity of numbers that cancel."""
    if not settings.format.has_negative_zero:
        return np.zeros(len(sums), np.bool_)
    negative = np.signbit(rows)
    zeros = (rows == 0).all(axis=1)
    minus = zeros & negative.all(axis=1)
    if settings.rounding.minus_zero:
        minus |= ~(zeros & ~negative.any(axis=1))
    return np.asarray((sums == 0) & minus)


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
