"""Sums in a context: which additions, in which order, with which random bits.

An addition whose right operand starts with element j has place j - 1, so its random bits depend on
the tree alone. Where outputs are few, pairwise and blocked sums take parts of a row side by side.

Source    docs/semantics.md §2 (places) and §4 (orders); Kahan 1965.
"""

from __future__ import annotations

import math
from functools import cached_property

import numpy as np

from fpsim.elementwise.apply import as_read
from fpsim.elementwise.axes import checked_axes
from fpsim.elementwise.compare import is_signalling
from fpsim.elementwise.constants import exact_width, plan
from fpsim.elementwise.sizes import checked_count
from fpsim.kernels.by_operation import orders
from fpsim.kernels.by_operation.sums import (
    COLUMN_BLOCK,
    WORDS_GIVEN,
    WORDS_HALF,
    WORDS_NONE,
    WORDS_WHOLE,
    SumLayout,
    SumVariant,
    sum_kernel,
)
from fpsim.kernels.elementwise.special import OPERATIONS
from fpsim.kernels.elementwise.step import FLAGS_EACH, FLAGS_STICKY
from fpsim.products.exact_sums import exact_sums
from fpsim.products.native64 import native_sums as native_sums64
from fpsim.products.native_sums import is_native, native_sums
from fpsim.products.nearest_sums import is_nearest, nearest_sums
from fpsim.products.one_by_one import sums_one_by_one
from fpsim.products.rows import as_rows, origin, steps_of
from fpsim.records.flags import Flags
from fpsim.records.settings import ZERO_OR_NORMAL, Settings
from fpsim.records.types import Axis, Carrier, ElementFlags, Index, Shape, Words
from fpsim.state.draws import NO_DRAW, Draw, draw
from fpsim.state.publish import fold, publish
from fpsim.state.state import State
from fpsim.state.threads import run_blocks

__all__ = ["ORDERS", "AxisSum", "RowSums"]

_CODES = {name: i for i, name in enumerate(OPERATIONS)}
_NO_WORDS = np.zeros((1, COLUMN_BLOCK), np.uint32)

#: Elements of a mean: their number is divided by exactly.
_MOST = 1 << 26

#: Additions of sixteen outputs below which a second thread costs more than it gives.
_SMALLEST = 1 << 15

#: Orders by name, as kernels know them; `exact` is none of additions.
ORDERS = {
    "sequential": orders.SEQUENTIAL,
    "pairwise": orders.PAIRWISE,
    "blocked": orders.BLOCKED,
    "kahan": orders.KAHAN,
}

#: Fewer outputs than this have parts of their rows side by side, of so many elements or more; and
#: so many parts at a time.
_FEW, _LEAST_PART, _MOST_PARTS = COLUMN_BLOCK, 256, 1 << 12


class AxisSum:
    """The sum of an array over axes (default: all), or its mean; checked when it is made.

    order   sequential, pairwise, blocked (blocks of `block` elements), kahan, exact (one rounding).

    Shapes    the axes vanish; over several, elements come in C order.
    """

    def __init__(
        self, values: Carrier, axis: Axis, order: str, block: int, *, divide: bool
    ) -> None:
        if not isinstance(order, str) or (order != "exact" and order not in ORDERS):
            raise ValueError(f"order={order!r} is not known; use one of {', '.join(ORDERS)}, exact")
        self.values, self.order, self.divide = values, order, divide
        # A block beyond any row is one block.
        self.block = min(checked_count("block", block, 1), 1 << 62)
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
            return self._run_binary64(state, target)
        if state.settings.subnormals == ZERO_OR_NORMAL:
            return self._run_one_by_one(state, target)
        watched = state.watched
        native = None if self.divide else self.run_native(state, target)
        if native is not None:
            return native
        rows = RowSums(state.settings, self.order, as_rows(self.values, self.axes), self.block)
        rows.draw(state, self.shape, self.divide)
        result, flags, element_flags = rows.run(
            FLAGS_EACH if watched else FLAGS_STICKY, self.divide
        )
        return publish(
            state, self.name, result.reshape(self.shape), flags,
            element_flags.reshape(self.shape) if watched else None, self.elements, target,
            advances=state.settings.rounding.stochastic,
        )

    def _check_sequential(self, where: str) -> None:
        if self.order != "sequential":
            raise TypeError(f"order={self.order!r} is not offered {where}; use sequential")

    def _run_one_by_one(self, state: State, target: Carrier | None) -> Carrier:
        self._check_sequential("with subnormals='zero_or_normal'")
        rows = as_rows(self.values, self.axes)
        sums, flags = sums_one_by_one(rows, state.settings, divide=self.divide)
        return publish(
            state, self.name, sums.reshape(self.shape), fold(flags),
            flags.reshape(self.shape) if state.watched else None, self.elements, target,
        )

    def _run_binary64(self, state: State, target: Carrier | None) -> Carrier:
        self._check_sequential("in binary64, the native reference")
        sums = native_sums64(as_rows(self.values, self.axes), divide=self.divide)
        return publish(state, self.name, sums.reshape(self.shape), 0, target=target)

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
        sums, element_flags = native
        inexact = 1 in element_flags.tobytes()
        return publish(
            state, self.name, sums, int(inexact), element_flags if state.watched else None,
            self.elements, target,
        )

    def elements(self, index: Index) -> tuple[Carrier]:
        """The elements of one output, as a trap shows them."""
        number = int(np.ravel_multi_index(index, self.shape)) if self.shape else 0
        return (as_rows(self.values, self.axes)[number],)


def _axes(values: Carrier, axis: Axis) -> tuple[int, ...]:
    """Axes from the first on, each once; default: all."""
    if axis is None:
        return tuple(range(values.ndim))
    n = values.ndim
    plain = type(axis) is tuple and all(type(a) is int and 0 <= a < n for a in axis)
    if plain and len(axis) == len(set(axis)):  # type: ignore[arg-type]
        return axis  # type: ignore[return-value]  # numpy takes longer
    return checked_axes(axis, n)


class RowSums:
    """The sums of the rows of a matrix, and their division by the number of elements.

    Nothing is rounded stochastically before `draw`.
    """

    def __init__(self, settings: Settings, order: str, rows: Carrier, block: int) -> None:
        self.settings, self.order, self.rows, self.block = settings, order, rows, block
        self.outputs, self.n = rows.shape
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
            self.words = np.zeros((self.places, _padded(self.outputs)), np.uint32)
            self.words[:, : self.outputs] = self.bits.words.reshape(self.places, self.outputs)

    def run(self, level: int, divide: bool) -> tuple[Carrier, int, ElementFlags]:
        """Values, flags, and the flags of each output if the level says so."""
        element_flags = np.zeros(self.outputs, np.uint8)
        if self.n == 0 or self.outputs == 0:
            result, flags = np.zeros(self.outputs, self.rows.dtype), 0
        elif self.n == 1:
            result, flags = self._only(element_flags)
        elif self.order == "exact":
            result, flags = self._exact(level, element_flags)
        else:
            result, flags = self._add(level, element_flags)
        if divide:
            flags |= self._divide(result, level, element_flags)
        return result, flags, element_flags

    def _only(self, element_flags: ElementFlags) -> tuple[Carrier, int]:
        """Single elements: themselves, as they are read."""
        x = as_read(self.rows[:, 0], self.settings)
        loud = np.isnan(x) if self.settings.quiet_nan_raises else is_signalling(x)
        element_flags[:] = loud * np.uint8(Flags.INVALID)
        return x.copy(), fold(element_flags)

    def _add(self, level: int, element_flags: ElementFlags) -> tuple[Carrier, int]:
        if is_nearest(self.settings, self.order):
            nearest = nearest_sums(self.rows, self.settings.format, kahan=self.order == "kahan")
            if nearest is not None:
                result, element_flags[:] = nearest
                return result, int(element_flags.any())
        work = _Additions(self, level, element_flags)
        few = self.rows.shape[0] < _FEW and self.words is None
        if few and self.order == "pairwise":
            result = work.pairwise(self.rows)
        elif few and self.order == "blocked" and self.block >= 16 and self.block % 8 == 0:
            result = work.blocked(self.rows)
        else:
            result = work.run(self.rows, ORDERS[self.order], block=self.block)
        return result, work.flags

    def _exact(self, level: int, element_flags: ElementFlags) -> tuple[Carrier, int]:
        """The exact sum rounded to odd in binary64, then once into the format."""
        sums, special = exact_sums(self.rows, self.settings)
        work = _Additions(self, level, element_flags)
        result = work.run(sums[:, None], orders.SINGLE, "convert").astype(self.rows.dtype)
        if special:
            # Infinities and NaN: their sum in any order, which rounds nothing.
            numbers = list(special)
            rows = np.zeros((len(special), 1 + max(map(len, special.values()))), result.dtype)
            for row, values in zip(rows, special.values(), strict=True):
                row[1 : 1 + len(values)] = values
            alone = RowSums(self.settings, "sequential", rows, self.block)
            result[numbers], flags, special_each = alone.run(FLAGS_EACH, divide=False)
            element_flags[numbers] |= special_each
            work.flags |= flags
        return result, work.flags

    def _divide(self, result: Carrier, level: int, element_flags: ElementFlags) -> int:
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
        work = _Additions(self, level, element_flags)
        result[...] = work.run(pair, orders.SINGLE, "divide", place=(self.places - 1, 1))
        return work.flags


class _Additions:
    """Runs of the kernel for one sum; their flags together, and those of each output."""

    def __init__(self, sums: RowSums, level: int, element_flags: ElementFlags) -> None:
        self.sums, self.settings, self.level, self.element_flags = (
            sums,
            sums.settings,
            level,
            element_flags,
        )
        self.flags = 0

    def pairwise(self, rows: Carrier, width: int = 1) -> Carrier:
        """Parts whose length is a power of two, then their sums; elements are `width` wide."""
        outputs, n = rows.shape
        if n < 2 * _LEAST_PART:
            return self.run(rows, orders.PAIRWISE, place=(0, width))
        length = max(_LEAST_PART, 1 << (n // _MOST_PARTS).bit_length())
        whole, rest = divmod(n, length)
        sums = np.empty((outputs, whole + (rest > 0)), rows.dtype)
        sums[:, :whole] = self.run(
            rows, orders.PAIRWISE, parts=(whole, length), place=(0, width)
        ).reshape(outputs, whole)
        if rest:
            place = whole * length * width, width
            sums[:, whole] = self.run(rows[:, n - rest :], orders.PAIRWISE, place=place)
        return self.pairwise(sums, width * length)

    def blocked(self, rows: Carrier) -> Carrier:
        """Blocks side by side, a bounded number at a time, then the chain of their sums."""
        (outputs, n), length = rows.shape, self.sums.block
        total = np.empty((outputs, 0), rows.dtype)
        for first in range(0, n, length * _MOST_PARTS):
            part = rows[:, first : first + length * _MOST_PARTS]
            whole, rest = divmod(part.shape[1], length)
            sums = [total]
            if whole:
                blocks = self.run(part, orders.SEQUENTIAL, parts=(whole, length), place=(first, 1))
                sums.append(blocks.reshape(outputs, whole))
            if rest:
                place = first + whole * length, 1
                sums.append(
                    self.run(part[:, whole * length :], orders.SEQUENTIAL, place=place)[:, None]
                )
            before = first - length * total.shape[1], length
            chain = np.concatenate(sums, axis=1)
            total = self.run(chain, orders.SEQUENTIAL, place=before)[:, None]
        return total[:, 0]

    def run(
        self, rows: Carrier, order: int, operation: str = "add", *, block: int = 1,
        parts: tuple[int, int] | None = None, place: tuple[int, int] = (0, 1),
    ) -> Carrier:
        """Sums of rows, or of their parts (number, length), row by row.

        place    that of element 1 is place[0] + place[1] - 1.
        """
        outputs, n = rows.shape
        count, length = parts or (1, n)
        rule = plan(operation, self.settings, exact_width(operation, self.settings, rows.itemsize))
        source = self._source(rule.whole_words)
        kernel = sum_kernel(
            SumVariant(
                _CODES[operation], rule.mode, self.level, rule.flush, rule.one_zero, source,
                rule.residual,
            )
        )
        down, along = steps_of(rows)
        layout = SumLayout(
            length, count, down, length * along, along, order, block, *place,
            part_counters=length * place[1] // (4 if rule.whole_words else 8),
        )
        first, total = origin(rows), outputs * count
        sums, flags = np.empty(total, rows.dtype), np.zeros(total, np.uint8)
        bits, words = self.sums.bits, self.sums.words
        numbers, random = np.array(layout, np.int64), (0, bits.seed, bits.number)

        def work(begin: int, end: int) -> int:
            span = begin * COLUMN_BLOCK, min(end * COLUMN_BLOCK, total)
            raised: int = kernel(
                first, numbers, span, sums, flags, _NO_WORDS if words is None else words,
                rule.constants, random,
            )
            return raised

        self.flags |= run_blocks(work, 0, -(-total // COLUMN_BLOCK), max(1, _SMALLEST // length))
        self.element_flags |= np.bitwise_or.reduce(flags.reshape(outputs, count), axis=1)
        return sums

    def _source(self, whole_words: bool) -> int:
        """Where random words come from."""
        if not self.sums.places:
            return WORDS_NONE
        if self.sums.words is not None:
            return WORDS_GIVEN
        return WORDS_WHOLE if whole_words else WORDS_HALF


def _padded(outputs: int) -> int:
    return -(-outputs // COLUMN_BLOCK) * COLUMN_BLOCK
