"""Elementwise operations that were recorded, run on many other arrays in one call.

A recording is made on arrays of one element. A program are operations of one kernel each, on what
was given, on results before, and on single numbers.

Single numbers that were computed are part of the program: it holds for arrays beside which the same
numbers stand. Those that follow from single inputs, or that chance has rounded, are computed anew
beside each job.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import sub
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fpsim.elementwise.apply import KernelCall
from fpsim.elementwise.recording import RecordedOperation, Recording
from fpsim.kernels.elementwise.sequence import (
    COPY,
    PART,
    STEP,
    SequenceCounts,
    address_of,
    run_sequence,
)
from fpsim.kernels.elementwise.step import FLAGS_EACH, FLAGS_STICKY
from fpsim.kernels.elementwise.tally import TALLIED
from fpsim.kernels.random.words import NO_WORDS
from fpsim.kernels.rounding.rule import FIELDS
from fpsim.records.types import Carrier
from fpsim.state.memory import memory_address
from fpsim.state.tallies import (
    BINS,
    ValueTally,
    sampled_exponents_of_many,
    stride_of,
    tally_of,
)
from fpsim.state.threads import run_blocks

__all__ = ["JobTallies", "RecordedJob", "RecordedProgram", "are_apart", "numbers_of_jobs"]

#: Layouts that are kept.
_KEPT = 256


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
    singles           addresses of the single inputs.
    """

    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    size: int
    first: int
    numbers: Sequence[int]
    singles: tuple[int, ...] = ()


def are_apart(inputs: Sequence[int], outputs: Sequence[int], size: int) -> bool:
    """Whether arrays have memory of their own, but for an output that replaces an input.

    >>> are_apart([0, 4096], [0], 1024), are_apart([0, 4096], [8], 1024)
    (True, False)
    """
    starts = sorted({*inputs, *outputs})
    if len(set(inputs)) < len(inputs) or len(set(outputs)) < len(outputs):
        return False
    return min(map(sub, starts[1:], starts), default=0) >= 4 * size or len(starts) < 2


def numbers_of_jobs(
    operations: Sequence[RecordedOperation], singles: Sequence[Carrier]
) -> dict[int, int]:
    """Single numbers that each job has of its own, numbered, by the identity of their carriers.

    They are the single inputs, then the results that follow from them or that chance has rounded.
    """
    numbers = {id(carrier): i for i, carrier in enumerate(singles)}
    for operation in operations:
        if operation.is_single and (
            operation.is_drawn or any(id(x) in numbers for x in operation.operands)
        ):
            numbers[id(operation.result)] = len(numbers)
    return numbers


class _ProgramRows:
    """Operations on values by their numbers: inputs, single numbers of jobs, then results.

    rows        the operations in order; what takes one number as its first operand takes it
                written out.
    constants   a row of STEP numbers for each, of which all are set where it is a first operand.
    """

    def __init__(self, n_inputs: int, n_singles: int) -> None:
        self.n_inputs, self.n_singles = n_inputs, n_singles
        self.rows: list[RecordedRow] = []
        self.constants = np.zeros((1, STEP), np.float32)
        self._spread: dict[int, int] = {}

    def add_all(self, operations: Sequence[RecordedOperation], values: dict[int, int]) -> bool:
        """Add operations, and their results to the values; False where an operand is unknown."""
        constants: list[float] = []
        for operation in operations:
            operands = []
            for carrier in operation.operands:
                if id(carrier) not in values:
                    if carrier.shape != ():
                        return False
                    constants.append(float(carrier))
                operands.append(values.get(id(carrier), -len(constants)))
            if 0 <= operands[0] - self.n_inputs < self.n_singles:
                operands[0] = self._spread_out(operands[0])
            values[id(operation.result)] = self._append(operation, tuple(operands))
        self.constants = np.empty((max(1, len(constants)), STEP), np.float32)
        self.constants[:, 0] = constants or [0.0]
        for row in self.rows:
            if row.operands[0] < 0:  # loops take one number for a whole operand but the first
                self.constants[-1 - row.operands[0]] = constants[-1 - row.operands[0]]
        return True

    def _append(self, operation: RecordedOperation | None, operands: tuple[int, ...]) -> int:
        result = self.n_inputs + self.n_singles + len(self.rows)
        self.rows.append(RecordedRow(operation, operands, result))
        return result

    def _spread_out(self, number: int) -> int:
        """A single number, written out once."""
        if number not in self._spread:
            self._spread[number] = self._append(None, (number,))
        return self._spread[number]


class RecordedProgram:
    """Operations on the elements of arrays that lie side by side, and on single numbers.

    operations      those that are recorded, in order.
    n_draws         how many of them round stochastically.
    takes_singles   whether there are single inputs.
    """

    def __init__(
        self, operations: Sequence[RecordedOperation], numbers: dict[int, int],
        singles: _ProgramRows, rows: _ProgramRows, results: list[int], looks: list[int],
        single_looks: dict[int, Carrier],
    ) -> None:
        self.operations = operations
        self.n_draws = sum([o.settings.rounding.stochastic for o in operations])
        #: Operations on single numbers that are part of the program.
        self._fixed = [
            i for i, o in enumerate(operations) if o.is_single and id(o.result) not in numbers
        ]
        self._flags = np.zeros(len(operations), np.int64)
        self._flags[self._fixed] = [operations[i].flags for i in self._fixed]
        self.takes_singles = singles.n_inputs > 0
        self._singles, self._rows, self._results = singles, rows, results
        self._looks, self._single_looks = looks, single_looks
        self._layouts: dict[tuple[int, tuple[int, ...]], ProgramLayout] = {}
        self._single_layouts: dict[int, ProgramLayout] = {}

    @classmethod
    def of(
        cls, recording: Recording, inputs: Sequence[Carrier], outputs: Sequence[Carrier],
        singles: Sequence[Carrier] = (),
    ) -> RecordedProgram | None:
        """The program that computes the outputs from the inputs; None where not all is noted.

        singles    single inputs: numbers that each job has of its own.
        """
        if not recording.is_whole or not recording.is_elementwise:
            return None
        numbers = numbers_of_jobs(recording.operations, singles)
        of_jobs, rows = _ProgramRows(len(singles), 0), _ProgramRows(len(inputs), len(numbers))
        values = {id(carrier): i for i, carrier in enumerate(inputs)}
        values |= {carrier: len(inputs) + i for carrier, i in numbers.items()}
        if not (
            of_jobs.add_all(
                [o for o in recording.operations if o.is_single and id(o.result) in numbers],
                {id(x): i for i, x in enumerate(singles)},
            )
            and rows.add_all([o for o in recording.operations if not o.is_single], values)
        ):
            return None
        looked_at = [x.result for x in recording.looked_at]
        is_fixed = [x.shape == () and id(x) not in values for x in looked_at]
        shown = [x for x, fixed in zip(looked_at, is_fixed, strict=True) if not fixed]
        if any(id(x) not in values or id(x) in numbers for x in (*shown, *outputs)):
            return None
        looks = [values.get(id(x), -1) for x in looked_at]
        single_looks = {k: x for k, x in enumerate(looked_at) if is_fixed[k]}
        return cls(
            recording.operations, numbers, of_jobs, rows, [values[id(x)] for x in outputs], looks,
            single_looks,
        )

    def run(self, jobs: Sequence[RecordedJob], seed: int) -> list[int]:
        """Compute the outputs of all jobs; the flags of each operation, together.

        Each job is apart, and an output that replaces an input is none of another job's arrays.
        """
        flags, word = self._flags.copy(), np.uint64(seed)
        memory = np.empty((len(jobs), len(self._singles.rows)), np.float32)
        before, jobs = self._beside(jobs, memory)
        if before:
            flags |= self._single_layout(FLAGS_STICKY).run(
                before, self._singles.constants, word, len(flags)
            )
        groups: dict[ProgramLayout, list[RecordedJob]] = {}
        for job in jobs:
            groups.setdefault(self._layout(job, FLAGS_STICKY), []).append(job)
        for layout, group in groups.items():
            flags |= layout.run(group, self._rows.constants, word, len(flags))
        raised: list[int] = flags.tolist()
        return raised

    def count(self, jobs: Sequence[RecordedJob], seed: int) -> JobTallies:
        """Compute the outputs of all jobs, none of which is an input; what each job counts."""
        n, word = len(self.operations), np.uint64(seed)
        memory = np.empty((len(jobs), len(self._singles.rows)), np.float32)
        before, jobs = self._beside(jobs, memory)
        layout, numbers = self._layout(jobs[0], FLAGS_EACH), np.zeros(1, np.int64)
        if before:
            singles = self._single_layout(FLAGS_EACH)
            numbers = singles.count(before, self._singles.constants, word, n).numbers
        tallies = layout.count(jobs, self._rows.constants, word, n)
        tallies.numbers[...] += numbers
        if self._fixed:
            tallies.numbers[:, self._fixed] = [self.operations[i].numbers for i in self._fixed]
        for k, x in self._single_looks.items():
            zeros, largest, exponents = tally_of(x)
            tallies.zeros[:, k], tallies.largest[:, k] = zeros, largest
            tallies.exponents[:, k] = exponents
        return tallies

    def _beside(
        self, jobs: Sequence[RecordedJob], memory: NDArray[np.float32]
    ) -> tuple[list[RecordedJob], Sequence[RecordedJob]]:
        """Jobs that compute single numbers, if there are any, and the jobs with these numbers."""
        n = memory.shape[1]
        if not n:
            return [], jobs
        begin, before, after = memory_address(memory), [], []
        for t, job in enumerate(jobs):
            results = tuple(range(begin + 4 * n * t, begin + 4 * n * (t + 1), 4))
            # A number is no part of a tensor: it is the first of its operation.
            before.append(RecordedJob(job.singles, results, 1, 0, job.numbers))
            after.append(job._replace(singles=job.singles + results))
        return before, after

    def _single_layout(self, level: int) -> ProgramLayout:
        if level not in self._single_layouts:
            results = [row.result for row in self._singles.rows]
            self._single_layouts[level] = _layout(
                self.operations, self._singles, results, (-1,) * len(results), [], level
            )
        return self._single_layouts[level]

    def _layout(self, job: RecordedJob, level: int) -> ProgramLayout:
        where = {address: i for i, address in enumerate(job.inputs)}
        replaced = tuple([where.get(address, -1) for address in job.outputs])
        layout = self._layouts.get((level, replaced))
        if layout is None:
            layout = self._layouts[level, replaced] = _layout(
                self.operations, self._rows, self._results, replaced, self._looks, level
            )
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


_NOT_COUNTED = SequenceCounts(
    np.zeros(0, np.int64), np.zeros(0, np.float32), np.zeros(0, np.int64), np.zeros(0, np.int64),
    *(np.zeros((0, 0, 0), np.int64) for _ in range(3)),
)


class ProgramLayout:
    """Where the values of a program are: in arrays, or in rooms for a block.

    replaced   of each output, the input whose memory it has; else -1.
    looks      values that are looked at.
    level      how flags are told: FLAGS_EACH where operations are counted.

    Slots are the inputs, the outputs, single numbers, the rooms, then the constants. A value that
    becomes an output goes there as soon as nothing reads the input that it replaces, else it is
    copied at the end.
    """

    def __init__(
        self, operations: Sequence[RecordedOperation], program: _ProgramRows,
        results: list[int], replaced: tuple[int, ...], looks: Sequence[int], level: int,
    ) -> None:
        rows, n_inputs, n_singles = program.rows, program.n_inputs, program.n_singles
        reads = {value: o for o, row in enumerate(rows) for value in row.operands}
        first_result = n_inputs + n_singles
        slots = {i: i if i < n_inputs else i + len(results) for i in range(first_result)}
        n_arrays = first_result + len(results)
        copies: list[RecordedRow] = []
        homes: dict[int, int] = {}
        for k, (value, old) in enumerate(zip(results, replaced, strict=True)):
            producer = value - first_result
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
                if value >= first_result and value not in homes and reads[value] == o
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
        self._n_rooms, self._n_singles = max(n_rooms, 1), n_singles
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

        def counting() -> SequenceCounts:
            return SequenceCounts(
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
        if not places:
            none = np.zeros((len(jobs), 0, BINS), np.int64)
            return JobTallies(numbers, none[..., 0], none[..., 0], none)
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
        counting: Callable[[], SequenceCounts],
    ) -> list[tuple[NDArray[np.int64], SequenceCounts]]:
        """The flags of each row, and what it counts, of each thread."""
        table = np.array([job.inputs + job.outputs + job.singles for job in jobs], np.int64)
        drawn = np.zeros((len(jobs), 1 + max([len(job.numbers) for job in jobs])), np.uint64)
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
        results: list[tuple[NDArray[np.int64], SequenceCounts]] = []

        def work(begin: int, end: int) -> int:
            raised, counted = np.zeros(len(self._rows), np.int64), counting()
            rooms = np.empty((self._n_rooms, STEP), np.float32)
            marks = np.empty(STEP if self._level == FLAGS_EACH else 1, np.uint8)
            run_sequence(
                self._rows, self._narrow, self._wide, constants, table, self._n_singles, parts,
                firsts, numbers, seed, rooms, marks, NO_WORDS, raised, counted, begin, end,
            )
            results.append((raised, counted))
            return 0

        run_blocks(work, 0, len(parts), 2)
        return results


#: Layouts by what they depend on.
_LAYOUTS: dict[tuple[object, ...], ProgramLayout] = {}


def _layout(
    operations: Sequence[RecordedOperation], program: _ProgramRows, results: list[int],
    replaced: tuple[int, ...], looks: Sequence[int], level: int,
) -> ProgramLayout:
    """A layout that is kept: of programs that differ in constants alone."""
    places = {id(operation): i for i, operation in enumerate(operations)}
    key = (
        program.n_inputs, program.n_singles, *results, -1, *looks, -1, *replaced, level,
        *[o.settings.rounding.stochastic for o in operations],
        *[
            (o and (places[id(o)], o.name, id(o.settings)), *row.operands)
            for row in program.rows for o in [row.operation]
        ],
    )
    layout = _LAYOUTS.get(key)
    if layout is None:
        layout = ProgramLayout(operations, program, results, replaced, looks, level)
        if len(_LAYOUTS) >= _KEPT:
            _LAYOUTS.clear()
        _LAYOUTS[key] = layout
    return layout
