"""Elementwise operations, recorded as they run and then run on many other arrays in one call.

A recording is made on arrays of one element. What it notes are operations of one kernel each, on
what was given, on results before, and on single numbers; from anything else it refuses to become a
program, and its operations stay what they are.

Single numbers that were computed are part of the program: it holds for arrays beside which the same
numbers stand. Under stochastic rounding that needs their results to be exact.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import sub
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fpsim.elementwise.apply import KernelCall
from fpsim.elementwise.code_tables import CodeTable
from fpsim.kernels.elementwise.sequence import COPY, PART, STEP, address_of, run_sequence
from fpsim.kernels.elementwise.step import FLAGS_EACH, FLAGS_STICKY
from fpsim.kernels.elementwise.tally import TALLIED, tally_numbers
from fpsim.kernels.random.words import NO_WORDS
from fpsim.kernels.rounding.rule import FIELDS
from fpsim.records.settings import ZERO_OR_NORMAL, Settings
from fpsim.records.types import Carrier
from fpsim.state.counts import Counts
from fpsim.state.memory import flat_in_memory
from fpsim.state.tallies import (
    BINS,
    ValueTally,
    sampled_exponents_of_many,
    stride_of,
    tally_of,
)
from fpsim.state.threads import run_blocks

__all__ = [
    "FUNCTION", "LARGEST", "OPERATION", "SAME", "SQUARES", "SUM", "TABLE", "JobTallies",
    "RecordedJob", "RecordedOperation", "RecordedProgram", "Recording", "are_apart",
]

#: Kinds of operations: of one kernel; a function; sums and the largest number along axes; a cast
#: that changes no number; results from a table of codes.
OPERATION, FUNCTION, SUM, SQUARES, LARGEST, SAME, TABLE = (
    "operation", "function", "sum", "squares", "largest", "same", "table"
)

#: Layouts that are kept.
_KEPT = 256


class RecordedOperation(NamedTuple):
    """An operation: its settings, operands, result and flags, as it ran.

    is_single    the result is one number.
    axes         of a sum or the largest number.
    table        where the results come from one.
    counted      the name that it counts under; "" where operations are not counted, or this is not.
    """

    name: str
    settings: Settings
    operands: tuple[Carrier, ...]
    result: Carrier
    flags: int
    is_single: bool
    kind: str = OPERATION
    axes: tuple[int, ...] = ()
    table: CodeTable | None = None
    counted: str = ""

    @property
    def numbers(self) -> tuple[int, ...]:
        """What a single result counts: zeros, subnormals and elements of each flag."""
        zeros, subnormals = tally_numbers(
            flat_in_memory(self.result), np.float32(self.settings.format.smallest_normal)
        )
        return (zeros, subnormals, *[self.flags >> f & 1 for f in range(TALLIED - 2)])


class LookedAt(NamedTuple):
    """A result that is looked at when so many operations have run."""

    n_operations: int
    result: Carrier


class Recording:
    """Operations in order; see `RecordedProgram.of` and `fpsim.products.row_program`.

    counts   of the device, where operations are counted: until `close` is called all that counts
             must belong to an operation that is noted behind it.
    """

    def __init__(self, counts: Counts | None = None) -> None:
        self._counts = counts
        if counts is not None:
            self._tensor, counts.noted = counts.tensor, []
        self.operations: list[RecordedOperation] = []
        self.looked_at: list[LookedAt] = []
        #: Whether all that ran is noted.
        self.is_whole = True
        #: Whether all of it are operations of one kernel.
        self.is_elementwise = True

    def note(
        self, name: str, settings: Settings, operands: Sequence[Carrier], result: Carrier,
        flags: int, kind: str = OPERATION, axes: tuple[int, ...] = (),
        table: CodeTable | None = None,
    ) -> None:
        """An operation has run."""
        is_single = result.shape == ()
        self.operations.append(RecordedOperation(
            name, settings, tuple(operands), result, flags, is_single, kind, axes, table,
            self._counted_as(settings, result),
        ))
        self.is_elementwise &= kind == OPERATION
        fits = settings.subnormals != ZERO_OR_NORMAL and result.dtype == np.float32
        if not fits or any(operand.dtype != np.float32 for operand in operands):
            self.is_whole = False
        is_drawn = settings.rounding.stochastic and flags != 0
        if is_single and (is_drawn or any(x is result for x in operands)):
            self.is_whole = False

    def refuse(self) -> None:
        """Something else has run."""
        self.is_whole = False

    def look(self, result: Carrier) -> None:
        """This result is looked at now."""
        self.looked_at.append(LookedAt(len(self.operations), result))

    def close(self) -> None:
        """Nothing more is noted."""
        if self._counts is not None:
            self.is_whole &= not self._counts.noted
            self._counts.noted = None

    def _counted_as(self, settings: Settings, result: Carrier) -> str:
        """The name that the operation which has just run counted under."""
        if self._counts is None or not self._counts.noted:
            return ""
        row, *others = self._counts.noted
        self._counts.noted.clear()
        is_its = row.size == result.size and row.format == settings.format
        if others or not is_its or row.tensor != self._tensor:
            self.is_whole = False
        return row.operation


class RecordedRow(NamedTuple):
    """An operation, or a copy (None), on values by their numbers; -1 - c is constant c."""

    operation: RecordedOperation | None
    operands: tuple[int, ...]
    result: int


class RecordedJob(NamedTuple):
    """Arrays that a program runs on: where they begin, and what they draw.

    inputs, outputs   addresses of the elements, which lie side by side; an output may be an input.
    first             index of the first element in the whole operation.
    numbers           of the operations that round stochastically, in order.
    """

    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    size: int
    first: int
    numbers: Sequence[int]


def are_apart(inputs: Sequence[int], outputs: Sequence[int], size: int) -> bool:
    """Whether arrays have memory of their own, but for an output that replaces an input.

    >>> are_apart([0, 4096], [0], 1024), are_apart([0, 4096], [8], 1024)
    (True, False)
    """
    starts = sorted({*inputs, *outputs})
    if len(set(inputs)) < len(inputs) or len(set(outputs)) < len(outputs):
        return False
    return min(map(sub, starts[1:], starts), default=0) >= 4 * size or len(starts) < 2


class RecordedProgram:
    """Operations on the elements of arrays that lie side by side.

    operations  those that are recorded, in order.
    n_draws     how many of them round stochastically.
    """

    def __init__(
        self, operations: Sequence[RecordedOperation], rows: list[RecordedRow],
        constants: list[float], n_inputs: int, results: list[int], looks: list[int],
        single_looks: dict[int, Carrier],
    ) -> None:
        self.operations = operations
        self.n_draws = sum([o.settings.rounding.stochastic for o in operations])
        self._flags = np.array([o.flags if o.is_single else 0 for o in operations], np.int64)
        self._rows, self._n_inputs, self._results = rows, n_inputs, results
        self._looks, self._single_looks = looks, single_looks
        self._constants = np.empty((max(1, len(constants)), STEP), np.float32)
        self._constants[:, 0] = constants or [0.0]
        for row in rows:
            if row.operands[0] < 0:  # loops take one number for a whole operand but the first
                self._constants[-1 - row.operands[0]] = constants[-1 - row.operands[0]]
        #: What layouts depend on: two programs that differ in constants alone have the same ones.
        self._kind = (n_inputs, *results, -1, *looks, *[
            (o.name, id(o.settings), *row.operands) for row in rows if (o := row.operation)
        ])
        self._layouts: dict[tuple[int, tuple[int, ...]], ProgramLayout] = {}

    @classmethod
    def of(
        cls, recording: Recording, inputs: Sequence[Carrier], outputs: Sequence[Carrier]
    ) -> RecordedProgram | None:
        """The program that computes the outputs from the inputs; None where not all is noted."""
        if not recording.is_whole or not recording.is_elementwise:
            return None
        values = {id(carrier): i for i, carrier in enumerate(inputs)}
        constants: list[float] = []
        rows: list[RecordedRow] = []
        for operation in recording.operations:
            if operation.is_single:
                continue
            operands = []
            for carrier in operation.operands:
                if carrier.shape != () and id(carrier) not in values:
                    return None
                if carrier.shape == ():
                    constants.append(float(carrier))
                operands.append(values.get(id(carrier), -len(constants)))
            result = len(inputs) + len(rows)
            rows.append(RecordedRow(operation, tuple(operands), result))
            values[id(operation.result)] = result
        if any(id(carrier) not in values for carrier in outputs):
            return None
        results = [values[id(carrier)] for carrier in outputs]
        if any(x.result.shape != () and id(x.result) not in values for x in recording.looked_at):
            return None
        looks = [values.get(id(x.result), -1) for x in recording.looked_at]
        single = {
            k: x.result for k, x in enumerate(recording.looked_at) if x.result.shape == ()
        }
        return cls(recording.operations, rows, constants, len(inputs), results, looks, single)

    def run(self, jobs: Sequence[RecordedJob], seed: int) -> list[int]:
        """Compute the outputs of all jobs; the flags of each operation, together.

        Each job is apart, and an output that replaces an input is none of another job's arrays.
        """
        flags = self._flags.copy()
        groups: dict[ProgramLayout, list[RecordedJob]] = {}
        for job in jobs:
            groups.setdefault(self._layout(job, FLAGS_STICKY), []).append(job)
        for layout, group in groups.items():
            flags |= layout.run(group, self._constants, np.uint64(seed), len(flags))
        raised: list[int] = flags.tolist()
        return raised

    def count(self, jobs: Sequence[RecordedJob], seed: int) -> JobTallies:
        """Compute the outputs of all jobs, none of which is an input; what each job counts."""
        layout = self._layout(jobs[0], FLAGS_EACH)
        tallies = layout.count(jobs, self._constants, np.uint64(seed), len(self.operations))
        single = [i for i, operation in enumerate(self.operations) if operation.is_single]
        if single:
            tallies.numbers[:, single] = [self.operations[i].numbers for i in single]
        for k, x in self._single_looks.items():
            zeros, largest, exponents = tally_of(x)
            tallies.zeros[:, k], tallies.largest[:, k] = zeros, largest
            tallies.exponents[:, k] = exponents
        return tallies

    def _layout(self, job: RecordedJob, level: int) -> ProgramLayout:
        where = {address: i for i, address in enumerate(job.inputs)}
        replaced = tuple([where.get(address, -1) for address in job.outputs])
        layout = self._layouts.get((level, replaced))
        if layout is None:
            key = self._kind, self.n_draws, len(self.operations), replaced, level
            layout = _LAYOUTS.get(key)
            if layout is None:
                layout = ProgramLayout(
                    self.operations, self._rows, self._n_inputs, self._results, replaced,
                    self._looks, level,
                )
                if len(_LAYOUTS) >= _KEPT:
                    _LAYOUTS.clear()
                _LAYOUTS[key] = layout
            self._layouts[level, replaced] = layout
        return layout


class JobTallies(NamedTuple):
    """What jobs count: numbers of their operations, and the tallies of results that are looked at.

    numbers     zeros, subnormals and elements of each flag, by job and operation.
    zeros, largest, exponents    as in a `ValueTally`, by job and result.
    """

    numbers: NDArray[np.int64]
    zeros: NDArray[np.int64]
    largest: NDArray[np.int64]
    exponents: NDArray[np.int64]

    def look(self, job: int, k: int) -> ValueTally:
        """The tally of a result of a job."""
        return ValueTally(
            int(self.zeros[job, k]), int(self.largest[job, k]), self.exponents[job, k]
        )


class _Counting(NamedTuple):
    """What `run_sequence` counts into."""

    strides: NDArray[np.int64]
    smallest: NDArray[np.float32]
    slots: NDArray[np.int64]
    room: NDArray[np.int64]
    tallies: NDArray[np.int64]
    fields: NDArray[np.int64]
    largest: NDArray[np.int64]


_NOT_COUNTED = _Counting(
    np.zeros(0, np.int64), np.zeros(0, np.float32), np.zeros(0, np.int64), np.zeros(0, np.int64),
    *(np.zeros((0, 0, 0), np.int64) for _ in range(3)),
)


class ProgramLayout:
    """Where the values of a program are: in arrays, or in rooms for a block.

    replaced   of each output, the input whose memory it has; else -1.
    looks      values that are looked at.
    level      how flags are told: FLAGS_EACH where operations are counted.

    Slots are the inputs, the outputs, the rooms, then the constants. A value that becomes an output
    goes there as soon as nothing reads the input that it replaces, else it is copied at the end.
    """

    def __init__(
        self, operations: Sequence[RecordedOperation], rows: list[RecordedRow], n_inputs: int,
        results: list[int], replaced: tuple[int, ...], looks: Sequence[int], level: int,
    ) -> None:
        reads = {value: o for o, row in enumerate(rows) for value in row.operands}
        slots = dict(enumerate(range(n_inputs)))
        n_arrays = n_inputs + len(results)
        copies: list[RecordedRow] = []
        homes: dict[int, int] = {}
        for k, (value, old) in enumerate(zip(results, replaced, strict=True)):
            producer = value - n_inputs
            if value == old:
                continue
            is_needed = old >= 0 and (reads.get(old, -1) > producer or old in results)
            if value < n_inputs or value in homes or is_needed:
                copies.append(RecordedRow(None, (value,), -1 - k))
                reads[value] = len(rows)
            else:
                homes[value] = n_inputs + k
        free: set[int] = set()
        n_rooms = 0
        self._table: list[tuple[RecordedRow, tuple[int, ...], int]] = []
        for o, row in enumerate(rows):
            operands = tuple([slots.get(value, value) for value in row.operands])
            free |= {
                slots[value] for value in row.operands
                if value >= n_inputs and value not in homes and reads[value] == o
            }
            slot = homes.get(row.result)
            if slot is None:
                slot = free.pop() if free else n_arrays + n_rooms
                n_rooms = max(n_rooms, slot - n_arrays + 1)
            slots[row.result] = slot
            if row.result not in reads and row.result not in homes:
                free.add(slot)
            self._table.append((row, operands, slot))
        for row in copies:
            self._table.append((row, (slots[row.operands[0]],), n_inputs - 1 - row.result))
        #: Kept alive, since layouts are found by the identity of their settings.
        self._settings = [operation.settings for operation in operations]
        self._n_rooms = max(n_rooms, 1)
        self._level, self._n_looks = level, len(looks)
        self._compile(operations, n_arrays)
        #: Of each row the place among the values that are looked at, and where it is another's.
        places = {value: k for k, value in reversed(list(enumerate(looks))) if value >= 0}
        self._slots = np.array(
            [places.get(row.result, -1) if row.operation else -1 for row, *_ in self._table],
            np.int64,
        )
        self._first_looks = [places.get(value, k) for k, value in enumerate(looks)]

    def _compile(self, operations: Sequence[RecordedOperation], n_arrays: int) -> None:
        """The loops of the operations, their constants, and the numbers that they draw by."""
        n = len(self._table)
        self._rows = np.zeros((n, 6), np.int64)
        self._narrow = np.zeros((n, len(FIELDS)), np.uint32)
        self._wide = np.zeros((n, len(FIELDS)), np.uint64)
        stochastic = [i for i, o in enumerate(operations) if o.settings.rounding.stochastic]
        draws = {operation: k for k, operation in enumerate(stochastic)}
        places = {id(operation): i for i, operation in enumerate(operations)}
        #: Of each row its operation, and the draw that it takes; -1 for none.
        self._operations = np.full(n, -1, np.int64)
        #: The smallest normal number of its format.
        self._smallest = np.zeros(n, np.float32)
        self._draws = np.full(n, -1, np.int64)
        self._calls = []  # keeps the loops alive
        for o, (row, operands, slot) in enumerate(self._table):
            operand_slots = [n_arrays + self._n_rooms - 1 - x if x < 0 else x for x in operands]
            x, y, z = (*operand_slots, operand_slots[0], operand_slots[0])[:3]
            address, is_wide = COPY, False
            if row.operation is not None:
                name, settings = row.operation.name, row.operation.settings
                call = KernelCall(name, settings, 4, self._level, supplied=False)
                self._smallest[o] = settings.format.smallest_normal
                self._calls.append(call)
                is_wide = call.constants.dtype == np.uint64
                (self._wide if is_wide else self._narrow)[o] = call.constants
                address = address_of(call.loop, is_wide=is_wide)
                self._operations[o] = places[id(row.operation)]
                self._draws[o] = draws.get(places[id(row.operation)], -1)
            self._rows[o] = address, is_wide, x, y, z, slot

    def run(
        self, jobs: Sequence[RecordedJob], constants: NDArray[np.float32], seed: np.uint64,
        n_operations: int,
    ) -> NDArray[np.int64]:
        """The flags of each operation."""
        flags = np.zeros(n_operations, np.int64)
        for raised, _ in self._run(jobs, constants, seed, lambda: _NOT_COUNTED):
            np.bitwise_or.at(flags, self._operations[self._operations >= 0],
                             raised[self._operations >= 0])
        return flags

    def count(
        self, jobs: Sequence[RecordedJob], constants: NDArray[np.float32], seed: np.uint64,
        n_operations: int,
    ) -> JobTallies:
        """What each job counts."""
        strides = np.array([stride_of(job.size) for job in jobs], np.int64)

        def counting() -> _Counting:
            return _Counting(
                strides, self._smallest, self._slots,
                np.empty(TALLIED - 2, np.int64),
                np.zeros((len(jobs), len(self._rows), TALLIED), np.int64),
                np.zeros((len(jobs), self._n_looks, BINS), np.int64),
                np.zeros((len(jobs), self._n_looks, 2), np.int64),
            )

        parts = [part for _, part in self._run(jobs, constants, seed, counting)]
        numbers = np.zeros((len(jobs), n_operations, TALLIED), np.int64)
        is_operation = self._operations >= 0
        tallies, fields, largest = parts[0].tallies, parts[0].fields, parts[0].largest
        for part in parts[1:]:
            tallies += part.tallies
            fields += part.fields
            np.maximum(largest, part.largest, out=largest)
        numbers[:, self._operations[is_operation]] = tallies[:, is_operation]
        places = self._first_looks
        return JobTallies(
            numbers, self._zeros_of_looks(numbers)[:, places], largest[:, places, 0],
            sampled_exponents_of_many(largest[..., 1], fields, strides)[:, places],
        )

    def _zeros_of_looks(self, numbers: NDArray[np.int64]) -> NDArray[np.int64]:
        """Zeros among the values that are looked at, by job."""
        zeros = np.zeros((len(numbers), self._n_looks), np.int64)
        for slot, operation in zip(self._slots, self._operations, strict=True):
            if slot >= 0:
                zeros[:, slot] = numbers[:, operation, 0]
        return zeros

    def _run(
        self, jobs: Sequence[RecordedJob], constants: NDArray[np.float32], seed: np.uint64,
        counting: Callable[[], _Counting],
    ) -> list[tuple[NDArray[np.int64], _Counting]]:
        """The flags of each row, and what it counts, of each thread."""
        table = np.array([job.inputs + job.outputs for job in jobs], np.int64)
        drawn = np.zeros((len(jobs), max(1, int(self._draws.max()) + 2)), np.uint64)
        for t, job in enumerate(jobs):
            drawn[t, : len(job.numbers)] = job.numbers
        numbers = drawn[:, np.maximum(self._draws, 0)]
        firsts = np.array([job.first for job in jobs], np.int64)
        parts = np.array(
            [
                (t, a, min(a + PART, job.size))
                for t, job in enumerate(jobs) for a in range(0, job.size, PART)
            ], np.int64,
        )
        results: list[tuple[NDArray[np.int64], _Counting]] = []

        def work(begin: int, end: int) -> int:
            raised, counted = np.zeros(len(self._rows), np.int64), counting()
            rooms = np.empty((self._n_rooms, STEP), np.float32)
            marks = np.empty(STEP if self._level == FLAGS_EACH else 1, np.uint8)
            run_sequence(
                self._rows, self._narrow, self._wide, constants, table, parts, firsts, numbers,
                seed, rooms, marks, NO_WORDS, raised, counted, begin, end,
            )
            results.append((raised, counted))
            return 0

        run_blocks(work, 0, len(parts), 2)
        return results


#: Layouts by what they depend on.
_LAYOUTS: dict[tuple[object, ...], ProgramLayout] = {}
