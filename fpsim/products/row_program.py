"""What a recording noted on rows, run again on other arrays in one call.

All arrays have one shape, rows times columns, or are one number for each row or for each column, or
single numbers. The program holds for arrays of the same shapes; numbers of no dimension are part of
it. Where data need what the kernels leave to others, `run` has no result, nothing has happened, and
the operations run alone as before.

Source    docs/semantics.md §2 (numbering), §6 (sums of the device).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from operator import itemgetter
from typing import Any, NamedTuple

import numpy as np
from numba.core import types
from numpy.typing import NDArray

from fpsim.elementwise.apply import KernelCall
from fpsim.elementwise.code_tables import CodeTable
from fpsim.elementwise.elementary import FunctionSteps, function_steps
from fpsim.elementwise.recording import (
    FUNCTION,
    LARGEST,
    OPERATION,
    POSITIVE,
    SAME,
    SQUARES,
    SUM,
    TABLE,
    RecordedOperation,
    Recording,
)
from fpsim.elementwise.selection import least_positive
from fpsim.kernels.by_operation.spread_sums import spread_sums
from fpsim.kernels.elementwise import row_steps
from fpsim.kernels.elementwise.look_up import look_up
from fpsim.kernels.elementwise.selection import keep_least
from fpsim.kernels.elementwise.sequence import address_of
from fpsim.kernels.elementwise.step import FLAGS_EACH, FLAGS_STICKY
from fpsim.kernels.elementwise.tally import TALLIED
from fpsim.kernels.random.words import NO_WORDS
from fpsim.kernels.rounding.rule import FIELDS
from fpsim.products.native_spread_sums import sum_rooms
from fpsim.products.native_sums import is_native
from fpsim.records.settings import Settings
from fpsim.records.types import Carrier, Shape
from fpsim.state.memory import memory_address, memory_addresses
from fpsim.state.threads import run_blocks

__all__ = ["RowProgram", "RowResults"]

#: Elements of the rows that pass through all steps together.
_TILE = 8192
#: Elements for which a second thread is worth its cost.
_SMALLEST = 1 << 15
_NO_TABLE, _NO_MARKS = np.zeros(1), np.zeros(1, np.uint8)
_SUMS = {SUM: row_steps.SUM, SQUARES: row_steps.SQUARES}
#: What a step does for other kinds of operations than functions.
_STEPS = {
    OPERATION: row_steps.OPERATION, TABLE: row_steps.TABLE, POSITIVE: row_steps.POSITIVE,
}

#: How an operand lies beside a result.
FULL, ROW, COLUMN, SINGLE = "full", "row", "column", "single"


class _UnfitError(Exception):
    """The recording is no program on rows."""


class RowGeometry(NamedTuple):
    """Rows and columns of the largest arrays."""

    rows: int
    columns: int

    @property
    def size(self) -> int:
        return self.rows * self.columns


class _RowValue(NamedTuple):
    """A result of a step, or an input: its number, and whether it is one number a row."""

    number: int
    by_row: bool


class _RowStep(NamedTuple):
    """One step on values by their numbers.

    operands     values; -1 - c is constant c.
    settings     whose flags it raises.
    draw         its number among the operations that round stochastically; -1 for none.
    counted      the name that its results count under; "" where they do not.
    """

    what: int
    operands: tuple[int, ...]
    result: int
    by_row: bool
    name: str = ""
    settings: Settings | None = None
    draw: int = -1
    function: FunctionSteps | None = None
    table: CodeTable | None = None
    counted: str = ""


def lies(shape: Shape, result: Shape) -> str:
    """How an operand of a shape lies beside a result of another.

    >>> lies((4, 1, 1), (4, 1, 3)), lies((3,), (4, 1, 3)), lies((4, 3), (4, 3)), lies((1,), (4, 3))
    ('row', 'column', 'full', 'single')
    """
    padded = (1,) * (len(result) - len(shape)) + shape
    is_there = [n == m for n, m in zip(padded, result, strict=True) if m > 1]
    if all(is_there):
        return FULL
    if not any(is_there):
        return SINGLE
    n = sum(is_there)
    if all(is_there[:n]):
        return ROW
    return COLUMN if all(is_there[-n:]) else ""


def _geometry(operations: Sequence[RecordedOperation]) -> RowGeometry:
    """Rows and columns, from what sums and broadcasts along them."""
    size = max([o.operands[0].size for o in operations] + [o.result.size for o in operations])
    columns = set()
    for operation in operations:
        shape = operation.operands[0].shape
        if operation.axes:
            long = [axis for axis, n in enumerate(shape) if n > 1]
            along = [axis for axis in long if axis in operation.axes]
            if not along or long[-len(along) :] != along or math.prod(shape) != size:
                raise _UnfitError
            columns.add(math.prod([shape[axis] for axis in along]))
        elif operation.result.size == size:
            for operand in operation.operands:
                n, where = operand.size, lies(operand.shape, operation.result.shape)
                if where in (ROW, COLUMN):
                    columns.add(size // n if where == ROW else n)
    if len(columns) > 1:
        raise _UnfitError
    width = columns.pop() if columns else 1
    return RowGeometry(size // width, width)


class _RowBuilder:
    """Steps of a recording, in order."""

    def __init__(self, recording: Recording, inputs: Sequence[Carrier]) -> None:
        if not recording.is_whole or not recording.operations:
            raise _UnfitError
        self.geometry = _geometry(recording.operations)
        self.inputs = inputs
        #: By where they lie in memory: the newest value, and its bytes.
        self._values: dict[int, tuple[_RowValue, int]] = {}
        self._input_places = {
            memory_address(x): i for i, x in enumerate(inputs)
            if x.shape != () and x.flags.c_contiguous
        }
        #: Inputs as they are read: number of the input, and how it lies.
        self.readings: dict[tuple[int, str], int] = {}
        self.steps: list[_RowStep] = []
        self.constants: list[float] = []
        #: Operations on single numbers, and how many steps there are before each.
        self.single: list[tuple[int, RecordedOperation]] = []
        self._n_values = self.n_draws = 0
        self._checked: set[int] = set()
        self._spread: dict[int, int] = {}
        for operation in recording.operations:
            self._add(operation)

    def value_of(self, carrier: Carrier) -> _RowValue | None:
        """The value that lies in this memory; None for what is no result."""
        value, size = self._values.get(memory_address(carrier), (None, 0))
        if value is None or not carrier.flags.c_contiguous or size != carrier.nbytes:
            return None
        return value

    def _new(self, by_row: bool) -> _RowValue:
        self._n_values += 1
        return _RowValue(self._n_values - 1, by_row)

    def _append(self, step: _RowStep) -> None:
        self.steps.append(step)

    def _read(self, carrier: Carrier, where: str) -> int:
        """An input as an operand that lies so."""
        i = self._input_places.get(memory_address(carrier))
        expected = {FULL: self.geometry.size, ROW: self.geometry.rows}
        expected[COLUMN] = self.geometry.columns
        if i is None or self.inputs[i].size != carrier.size or not carrier.flags.c_contiguous:
            raise _UnfitError
        if carrier.size != expected[where]:
            raise _UnfitError
        number = self.readings.get((i, where))
        if number is None:
            number = self.readings[i, where] = self._new(where == ROW).number
        return number

    def _operand(self, carrier: Carrier, shape: Shape, by_row: bool) -> int:
        """The number of an operand of a result of this shape, or of a constant."""
        value = self.value_of(carrier)
        if value is None and carrier.shape == ():
            self.constants.append(float(carrier))
            return -len(self.constants)
        where = lies(carrier.shape, shape)
        if value is not None:
            if value.by_row == by_row and carrier.size == math.prod(shape):
                return value.number
            if value.by_row and where in (ROW, SINGLE) and carrier.size == self.geometry.rows:
                return self._spread_out(value.number)
            raise _UnfitError
        if by_row:
            if where != FULL:
                raise _UnfitError
            return self._read(carrier, ROW)
        if where == ROW:
            return self._spread_out(self._read(carrier, ROW))
        if where == SINGLE:
            raise _UnfitError
        return self._read(carrier, where)

    def _spread_out(self, number: int) -> int:
        """One number a row, written out."""
        if number not in self._spread:
            result = self._new(False)
            self._append(_RowStep(row_steps.SPREAD, (number,), result.number, False))
            self._spread[number] = result.number
        return self._spread[number]

    def _put(self, carrier: Carrier, value: _RowValue) -> None:
        address = memory_address(carrier)
        if address in self._input_places or not carrier.flags.c_contiguous:
            raise _UnfitError
        self._values[address] = value, carrier.nbytes

    def _add(self, operation: RecordedOperation) -> None:
        rows, result = self.geometry.rows, operation.result
        if operation.is_single and operation.is_drawn:
            raise _UnfitError
        is_constant = operation.is_single and all(
            x.shape == () and self.value_of(x) is None for x in operation.operands
        )
        if is_constant and operation.kind in (OPERATION, FUNCTION):
            self.single.append((len(self.steps), operation))
            return
        if operation.kind == SAME:
            self._check(operation.operands[0])
            return
        if operation.kind in (SUM, SQUARES, LARGEST):
            x = self._source(operation.operands[0])
            if result.size != rows or self.geometry.columns == 1:
                raise _UnfitError
            if operation.kind != LARGEST and not is_native(operation.settings, "sequential"):
                raise _UnfitError
            what = _SUMS.get(operation.kind, row_steps.LARGEST)
            value = self._new(True)
            self._append(_RowStep(
                what, (x,), value.number, True, settings=operation.settings,
                counted=operation.counted,
            ))
            self._put(result, value)
            return
        by_row = result.size != self.geometry.size
        if by_row and result.size != rows:
            raise _UnfitError
        operands = tuple([self._operand(x, result.shape, by_row) for x in operation.operands])
        draw = -1
        if operation.settings.rounding.stochastic and operation.kind != POSITIVE:
            draw, self.n_draws = self.n_draws, self.n_draws + 1
        value, settings = self._new(by_row), operation.settings
        if operation.kind == FUNCTION:
            self._add_function(operation, operands, value, draw)
        else:
            self._append(_RowStep(
                _STEPS[operation.kind], operands, value.number, by_row, operation.name, settings,
                draw, table=operation.table, counted=operation.counted,
            ))
        self._put(result, value)

    def _add_function(
        self, operation: RecordedOperation, operands: tuple[int, ...], value: _RowValue, draw: int
    ) -> None:
        """From a table or by a kernel; what chance rounds is converted afterwards."""
        name, (number, by_row) = operation.name, value
        function = function_steps(name, operation.settings)
        if function is None or operands[0] < 0:
            raise _UnfitError
        table, settings = function.table, operation.settings
        if table is not None and draw < 0:
            self._append(_RowStep(
                row_steps.TABLE, operands, number, by_row, name, settings, table=table,
                counted=operation.counted,
            ))
            return
        what = row_steps.FUNCTION if table is None else row_steps.WIDE_TABLE
        self._append(_RowStep(what, operands, -1, by_row, name, function=function, table=table))
        self._append(_RowStep(
            row_steps.ROUND, (), number, by_row, "convert", function.conversion, draw,
            counted=operation.counted,
        ))

    def _source(self, carrier: Carrier) -> int:
        """What is summed along rows."""
        if carrier.size != self.geometry.size:
            raise _UnfitError
        value = self.value_of(carrier)
        if value is None:
            return self._read(carrier, FULL)
        if value.by_row:
            raise _UnfitError
        return value.number

    def _check(self, carrier: Carrier) -> None:
        """A look for NaNs: of numbers without one a cast changes nothing."""
        value = self.value_of(carrier)
        if value is None:
            for where, size in zip((FULL, ROW, COLUMN), (self.geometry.size, *self.geometry),
                                   strict=True):
                if carrier.size == size:
                    value = _RowValue(self._read(carrier, where), where == ROW)
                    break
            else:
                raise _UnfitError
        if value.number not in self._checked:
            self._checked.add(value.number)
            self._append(_RowStep(row_steps.CHECK, (value.number,), -1, value.by_row))


class CountedStep(NamedTuple):
    """What the results of an operation count: its name, their number, and `TALLIED` numbers."""

    name: str
    results: int
    numbers: tuple[int, ...]


class RowResults(NamedTuple):
    """Results of a program, the flags under each settings, and what counted, in order."""

    results: list[Carrier]
    flags: dict[int, tuple[Settings, int]]
    counted: list[CountedStep]


class RowProgram:
    """Steps on rows of arrays; see `fpsim.kernels.elementwise.row_steps`.

    n_draws   how many of them round stochastically.
    """

    def __init__(self, builder: _RowBuilder, results: Sequence[int]) -> None:
        self.n_draws, self.geometry = builder.n_draws, builder.geometry
        self._single_flags = [(o.settings, o.flags) for _, o in builder.single]
        #: What operations on single numbers count, and how many steps there are before each.
        self._single = [
            (n, CountedStep(o.counted, 1, o.numbers)) for n, o in builder.single if o.counted
        ]
        self._steps = builder.steps
        self._is_counted = any(step.counted for step in builder.steps)
        self._readings = list(builder.readings)
        self._results = results
        self._tile = max(1, min(self.geometry.rows, _TILE // self.geometry.columns))
        numbers = list(builder.readings.values())
        #: Arrays: inputs as they are read, then results.
        self._n_arrays = len(numbers) + len(results)
        slots = {number: i for i, number in enumerate(numbers)}
        slots |= {number: len(numbers) + i for i, number in enumerate(results)}
        steps_of = {FULL: self.geometry.columns, ROW: 1, COLUMN: 0}
        row_results = {s.result for s in builder.steps if s.by_row}
        self._steps_of = np.array(
            [steps_of[where] for _, where in self._readings]
            + [1 if number in row_results else self.geometry.columns for number in results],
            np.int64,
        )
        self._result_sizes = [
            self.geometry.rows if number in row_results else self.geometry.size
            for number in results
        ]
        self._n_rooms = self._assign(builder.steps, slots)
        self._constants = np.repeat(
            np.array(builder.constants or [0.0], np.float32)[:, None],
            self._tile * self.geometry.columns, 1,
        )
        self._compile(builder.steps, slots)

    @classmethod
    def of(
        cls, recording: Recording, inputs: Sequence[Carrier], outputs: Sequence[Carrier]
    ) -> RowProgram | None:
        """The program that computes the outputs from the inputs; None where there is none."""
        try:
            builder = _RowBuilder(recording, inputs)
        except _UnfitError:
            return None
        values = [builder.value_of(carrier) for carrier in outputs]
        if any(value is None for value in values):
            return None
        numbers = [value.number for value in values if value is not None]
        return None if len(set(numbers)) < len(numbers) else cls(builder, numbers)

    def _assign(self, steps: Sequence[_RowStep], slots: dict[int, int]) -> int:
        """A room for each value that is no array; how many there are."""
        last = {number: o for o, step in enumerate(steps) for number in step.operands}
        free: list[int] = []
        n_rooms = 0
        for o, step in enumerate(steps):
            number = step.result
            if number >= 0 and number not in slots:
                if not free:
                    free.append(self._n_arrays + n_rooms)
                    n_rooms += 1
                slots[number] = free.pop()
            for operand in {*step.operands, number}:
                is_room = operand >= 0 and slots[operand] >= self._n_arrays
                if is_room and last.get(operand, o) == o:
                    free.append(slots[operand])
        return max(1, n_rooms)

    def _compile(self, steps: Sequence[_RowStep], slots: dict[int, int]) -> None:
        """Addresses of kernels, and what they are kernel."""
        n, first_constant = len(steps), self._n_arrays + self._n_rooms
        table_of_steps = np.zeros((n, 11), np.int64)
        narrow, wide = (np.zeros((n, len(FIELDS)), kind) for kind in (np.uint32, np.uint64))
        words, reals = np.zeros((n, 2), np.uint64), np.zeros((n, 5))
        self._kernels = table_of_steps, narrow, wide, words, reals
        self._draws = np.array([step.draw for step in steps], np.int64)
        self._settings = [step.settings for step in steps]
        self._smallest = np.array(
            [_smallest_of(step) for step in steps] if self._is_counted else (), np.float32
        )
        #: Kernels and tables stay in memory.
        level = FLAGS_EACH if self._is_counted else FLAGS_STICKY
        self._step_kernels = [_kernel_of(step, level) for step in steps]
        for o, (step, kernel) in enumerate(zip(steps, self._step_kernels, strict=True)):
            is_wide = kernel.constants is not None and kernel.constants.dtype == np.uint64
            if kernel.constants is not None:
                (wide if is_wide else narrow)[o] = kernel.constants
            words[o, : len(kernel.words)] = kernel.words
            reals[o, : len(kernel.reals)] = kernel.reals
            places = [slots[x] if x >= 0 else first_constant - 1 - x for x in step.operands]
            x, y, z = (*places, *places[:1] * 2, 0, 0, 0)[:3]
            table_of_steps[o] = (
                step.what, kernel.address, is_wide, x, y, z, slots.get(step.result, 0), step.by_row,
                memory_address(kernel.table), kernel.table.size, memory_address(kernel.marks),
            )

    def run(
        self, inputs: Sequence[Carrier], seed: int, numbers: Sequence[int] | NDArray[np.uint64],
        into: Sequence[Carrier] = (),
    ) -> RowResults | None:
        """The results; None where the steps have to run alone.

        numbers    of the operations that round stochastically, in order.
        into       memory of the results, in C order; by default it is new, and flat.
        """
        columns, tile = self.geometry.columns, self._tile
        arrays: list[Carrier] = []
        for i, where in self._readings:
            array = inputs[i]
            if where == COLUMN and tile > 1:
                array = _repeated(array, tile)
            elif not array.flags.c_contiguous:
                array = np.ascontiguousarray(array)
            arrays.append(array)
        results = list(into) or [np.empty(size, np.float32) for size in self._result_sizes]
        starts = np.array(memory_addresses(arrays + results), np.int64)
        drawn = np.zeros(self.n_draws + 1, np.uint64)
        drawn[: self.n_draws] = numbers
        kernels, word = (*self._kernels, drawn[self._draws]), np.uint64(seed)
        raised: list[NDArray[np.int64]] = []
        tallies: list[NDArray[np.int64]] = []
        pool = _pool(self._n_rooms, tile, columns)

        def work(begin: int, end: int) -> int:
            room, rooms = pool.pop() if pool else _rooms(self._n_rooms, tile, columns)
            flags = np.zeros(len(self._settings), np.int64)
            tally = np.zeros((len(self._settings), TALLIED), np.int64)
            counting = self._smallest, np.empty(TALLIED - 2, np.int64), tally
            outcome: int = row_steps.run_rows(
                kernels, word, (starts, self._steps_of, room, self._constants), rooms, columns,
                tile, flags, counting, begin, end,
            )
            raised.append(flags)
            tallies.append(tally)
            pool.append((room, rooms))
            return outcome

        smallest = -(-_SMALLEST // columns)
        if run_blocks(work, 0, self.geometry.rows, smallest, tile) < 0:
            return None
        return RowResults(results, self._flags(raised), self._counted(tallies))

    def _counted(self, tallies: Sequence[NDArray[np.int64]]) -> list[CountedStep]:
        """What each operation counts, in order."""
        if not self._is_counted:
            return []
        rows, total = [*self._single], np.sum(tallies, axis=0).tolist()
        for o, (step, numbers) in enumerate(zip(self._steps, total, strict=True)):
            if step.counted:
                size = self.geometry.rows if step.by_row else self.geometry.size
                rows.append((o, CountedStep(step.counted, size, tuple(numbers))))
        # Of one place those of single numbers come first, as they ran before the step behind.
        return [row for _, row in sorted(rows, key=itemgetter(0))]

    def _flags(self, raised: Sequence[NDArray[np.int64]]) -> dict[int, tuple[Settings, int]]:
        together: dict[int, tuple[Settings, int]] = {}
        flags = raised[0] if len(raised) == 1 else np.bitwise_or.reduce(raised)
        for settings, flag in (
            *zip(self._settings, flags.tolist(), strict=True), *self._single_flags
        ):
            if flag and settings is not None:
                _, before = together.get(id(settings), (settings, 0))
                together[id(settings)] = settings, before | flag
        return together


# Rooms ----------------------------------------------------------------------------------------


def _repeated(column: Carrier, times: int) -> Carrier:
    """A column for each of so many rows."""
    repeated: Carrier = np.empty((times, column.size), column.dtype)
    repeated[...] = column.reshape(-1)
    return repeated


#: Rooms of the kernel: those of values between steps, and the others.
_Rooms = tuple[Carrier, tuple[Any, ...]]


def _rooms(n: int, tile: int, columns: int) -> _Rooms:
    size = tile * columns
    others = np.empty(size), np.empty(size, np.uint8), NO_WORDS, sum_rooms(tile, columns)
    return np.empty((n, size), np.float32), others


@lru_cache(maxsize=64)
def _pool(n: int, tile: int, columns: int) -> list[_Rooms]:
    """Rooms that no thread is using: new memory costs as much as a small operation."""
    return []


# Kernels --------------------------------------------------------------------------------------


class _StepKernel(NamedTuple):
    """The kernel of a step, by its address, and what it is given beside arrays."""

    address: int = 0
    kernel: Any = None
    constants: NDArray[Any] | None = None
    words: tuple[int, ...] = ()
    reals: tuple[float, ...] = ()
    table: NDArray[Any] = _NO_TABLE
    marks: NDArray[np.uint8] = _NO_MARKS


def _smallest_of(step: _RowStep) -> float:
    """The smallest normal number of the format of what a step counts; -1 where it does not."""
    counts = step.counted and step.settings is not None
    return step.settings.format.smallest_normal if counts else -1.0  # type: ignore[union-attr]


def _kernel_of(step: _RowStep, level: int) -> _StepKernel:
    if step.table is not None:
        shift, values, marks = step.table
        end = step.function.kernel.end if step.function is not None else 0.0
        address = _address_of(look_up, _OF_TABLES[values.dtype.itemsize])
        return _StepKernel(address, None, None, (shift,), (0.0, end), values, marks)
    if step.function is not None:
        kernel = step.function.kernel
        return _StepKernel(
            _address_of(kernel.loop, _OF_FUNCTION), kernel.loop, None,
            (int(kernel.half), int(kernel.mask)),
            (kernel.least, kernel.end, *step.function.infinities, step.function.is_odd),
            kernel.table,
        )
    if step.what in (row_steps.SUM, row_steps.SQUARES):
        return _StepKernel(_address_of(spread_sums, _OF_SUMS))
    if step.what in (row_steps.SPREAD, row_steps.CHECK):
        return _StepKernel()
    assert step.settings is not None
    if step.what == row_steps.LARGEST:
        is_flushing = step.settings.subnormals == "flush_both"
        least = np.float32(step.settings.format.smallest_normal if is_flushing else 0)
        return _StepKernel(words=(int(least.view(np.uint32)),))
    if step.what == row_steps.POSITIVE:
        reals = (least_positive(step.settings),)
        return _StepKernel(_address_of(keep_least, _OF_LEAST), keep_least, reals=reals)
    is_from_wide = step.what == row_steps.ROUND
    size = 8 if is_from_wide else 4
    call = KernelCall(step.name, step.settings, size, level, supplied=False)
    is_wide = call.constants.dtype == np.uint64
    address = address_of(call.loop, is_wide=is_wide, is_from_wide=is_from_wide)
    return _StepKernel(address, call, call.constants)


# Addresses --------------------------------------------------------------------------------------


_NARROW, _WIDE = (types.Array(kind, 1, "C") for kind in (types.float32, types.float64))
_BYTES, _INTEGERS = (types.Array(kind, 1, "C") for kind in (types.uint8, types.int64))
_AXES = types.UniTuple(_INTEGERS, 2)
#: Types of arguments, as kernels are called with them here.
_OF_FUNCTION = (
    _NARROW, _WIDE, _BYTES, types.uint64, types.uint64, types.float64, types.float64, _WIDE,
)
#: By bytes of a value.
_OF_TABLES = {
    size: (
        types.Array(types.uint32, 1, "C"), types.uint32, values, _BYTES, values, _BYTES,
        types.boolean,
    ) for size, values in ((4, _NARROW), (8, _WIDE))
}
_OF_LEAST = _NARROW, types.float32, _NARROW
_OF_SUMS = (
    _NARROW, _AXES, _AXES,
    types.Tuple((types.int64, types.int64, types.boolean, types.boolean, types.int64)),
    types.boolean, _NARROW, _BYTES,
)


def _address_of(kernel: Any, signature: tuple[Any, ...]) -> int:
    kernel.compile(signature)
    address: int = kernel._cache.addresses[signature]
    return address
