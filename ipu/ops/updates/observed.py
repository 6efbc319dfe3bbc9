"""Updates that are observed: who is told of them, and what of it is told behind their one call.

What an observer would be told while operations run is noted when an equation is recorded, in
references to the arrays that it has. Behind the call it is told in that order, tensor by tensor.
Where nothing is counted all results are kept, and shown. Where operations are counted, results that
nothing keeps are arrays without numbers, and their tallies come from the kernel. Of results without
a past, in which nothing underflows to zero, exponents alone are told then: those of all tensors
together.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from operator import itemgetter
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fpsim.array import Array
from fpsim.elementwise.recorded_program import JobTallies, RecordedProgram
from fpsim.elementwise.recording import Recording
from fpsim.kernels.elementwise.tally import TALLIED
from fpsim.records.flags import Flags
from fpsim.records.formats import Format
from fpsim.records.types import Carrier, Shape
from fpsim.state.counts import Counts
from fpsim.state.tallies import BINS, ValueTally, bits_of_largest
from ipu.machine.device import Device
from ipu.ops.updates.row import Moved

__all__ = ["UNOBSERVED", "ObservedUpdate", "Observed", "ShownUpdate", "ToldEvents", "tell_all"]

#: A variable, gradient or slot by its number; the result of operation k: -1 - k; a single number.
Reference = int | Array

#: Where a tally counts underflows, and flags with which numbers are none or beyond the largest.
_UNDERFLOW = 3
_EXCEPTIONS = [2 + sorted(Flags).index(f) for f in Flags.OVERFLOW | Flags.DIVBYZERO | Flags.INVALID]
#: What stands for results that nothing keeps.
_ZERO = np.zeros((), np.float32)


def _nothing(fmt: Format, exponents: NDArray[np.int64]) -> None:
    """Nobody is told."""


def _always(array: Array) -> bool:
    """All results are told."""
    return True


class Observed(NamedTuple):
    """Who is told of an update.

    watch     of each result, its operands and, where operations are counted, its tally; as of
              `Around`, None for nobody. Of counted results before and in which nothing underflows
              to zero `exponents` alone are told, unless an operand `inherits` something.
    exponents of results in a format: how many have each biased exponent.
    inherits  whether an array has a past that its results would have.
    constant  of each constant that did not fit, if there is `watch`: format, number, how it changed
              and what it became.
    moved     of each sum that moves the variable.
    change    the change of the variable and its direction are results too.
    """

    watch: Callable[[Array, Sequence[Array], ValueTally | None], None] | None = None
    exponents: Callable[[Format, NDArray[np.int64]], None] = _nothing
    inherits: Callable[[Array], bool] = _always
    constant: Callable[[Format, float, str, Any], None] | None = None
    moved: Moved | None = None
    change: bool = False

    @property
    def key(self) -> tuple[bool, bool, bool]:
        """What a program depends on."""
        return self.watch is not None, self.moved is not None, self.change


#: Nobody is told.
UNOBSERVED = Observed()


# What is noted ----------------------------------------------------------------------------------


class ShownResult(NamedTuple):
    """A result that an observer is shown, with its operands."""

    result: Reference
    operands: tuple[Reference, ...]


class UnfitConstant(NamedTuple):
    """A constant that did not fit: its format, the number, how it changed and what it became."""

    format: Format
    value: float
    change: str
    rounded: Any


#: What an observer is told while operations run.
Event = ShownResult | UnfitConstant


class VariableMove(NamedTuple):
    """A sum that moves the variable, as `Moved` is told."""

    verb: str
    before: Reference
    operands: tuple[Reference, ...]
    factor: float
    after: Reference


class ToldEvents(NamedTuple):
    """What is told of an equation.

    events   results and constants, behind so many operations.
    moves    sums that move the variable.
    values   of the program's outputs.
    """

    events: Sequence[tuple[int, Event]] = ()
    moves: Sequence[VariableMove] = ()
    values: Sequence[int] = ()

    @property
    def results(self) -> list[ShownResult]:
        """The results, in order."""
        return [event for _, event in self.events if isinstance(event, ShownResult)]


class ShownUpdate:
    """What an observer of an update would be told, noted while it is recorded."""

    def __init__(self, recording: Recording) -> None:
        self._recording = recording
        self._results: list[tuple[int, Array, Sequence[Array]]] = []
        self._constants: list[tuple[int, Event]] = []
        self._moves: list[tuple[str, Array, Sequence[Array], float, Array]] = []

    def watch(self, result: Array, operands: Sequence[Array]) -> None:
        """A result is shown."""
        self._recording.look(result.carrier)
        self._results.append((len(self._recording.operations), result, operands))

    def constant(self, fmt: Format, value: float, change: str, rounded: Any) -> None:
        """A constant did not fit."""
        unfit = UnfitConstant(fmt, value, change, rounded)
        self._constants.append((len(self._recording.operations), unfit))

    def move(
        self, verb: str, before: Array, operands: Sequence[Array], factor: float, after: Array
    ) -> None:
        """A sum moves the variable."""
        self._moves.append((verb, before, operands, factor, after))

    @property
    def shown(self) -> list[Array]:
        """Results that are shown, and their operands."""
        return [x for _, result, operands in self._results for x in (result, *operands)]

    @property
    def moved(self) -> list[Array]:
        """Arrays that who is told of moves reads."""
        return [x for _, before, operands, _, after in self._moves
                for x in (before, *operands, after)]

    def told(self, references: Mapping[int, int], outputs: Sequence[Carrier]) -> ToldEvents:
        """The same in references, which are given by the identity of carriers."""

        def of(x: Array) -> Reference:
            return references.get(id(x.carrier), x)

        results: list[tuple[int, Event]] = [
            (n, ShownResult(of(result), tuple(map(of, operands))))
            for n, result, operands in self._results
        ]
        moves = [
            VariableMove(verb, of(before), tuple(map(of, operands)), factor, of(after))
            for verb, before, operands, factor, after in self._moves
        ]
        # Of one place a result comes first.
        events = sorted([*results, *self._constants], key=itemgetter(0))
        return ToldEvents(events, moves, [references[id(carrier)] for carrier in outputs])


# What is told -----------------------------------------------------------------------------------


class ObservedUpdate(NamedTuple):
    """An update that waits and is observed.

    arrays    the variable, its gradient and its slots.
    outputs   memory of the program's outputs.
    number    among the updates of the program.
    tensor    that it counts as.
    pending   flags that were raised before it, since the update before.
    """

    program: RecordedProgram
    told: ToldEvents
    observed: Observed
    arrays: Sequence[Array | None]
    outputs: Sequence[Carrier]
    shape: Shape
    number: int
    tensor: str
    pending: dict[tuple[str, str, str], int]

    @property
    def size(self) -> int:
        """Elements of the variable."""
        return int(np.prod(self.shape, dtype=np.int64))

    def show(self, device: Device) -> None:
        """Show the observer all results, which have memory where nothing is counted."""
        observed, array = self.observed, _UpdateArrays(self, device)
        assert observed.watch is not None
        for _, event in self.told.events:
            if isinstance(event, UnfitConstant):
                self._tell_constant(event)
            else:
                operands = [array(x) for x in event.operands]
                observed.watch(array(event.result), operands, None)

    def tell(self, tallies: JobTallies, device: Device, counts: Counts, skipped: _Skipped) -> None:
        """Count the operations, and tell the observer, in their order."""
        counts.tensor = self.tensor
        if counts.raised is not None:
            counts.raised.update(self.pending)
        numbers = tallies.numbers[self.number]
        if self.observed.watch is None:
            self._count(numbers, counts, 0, len(numbers))
        else:
            self._show(tallies, device, counts, skipped)

    def tell_moves(self, device: Device) -> None:
        """Tell of the sums that move the variable."""
        array = _UpdateArrays(self, device)
        for verb, before, terms, factor, after in self.told.moves:
            assert self.observed.moved is not None
            self.observed.moved(verb, array(before), list(map(array, terms)), factor, array(after))

    @property
    def inherits(self) -> bool:
        """Whether results may have a past from the first on."""
        return bool(self.pending) or any(
            self.observed.inherits(x) for x in self.arrays if x is not None
        )

    def _show(
        self, tallies: JobTallies, device: Device, counts: Counts, skipped: _Skipped
    ) -> None:
        """Results that may have a past, and all behind the first of them; others are skipped."""
        observed, numbers = self.observed, tallies.numbers[self.number]
        array, is_shown = _UpdateArrays(self, device), self.inherits
        done = k = 0
        for n, event in self.told.events:
            if isinstance(event, UnfitConstant):
                self._tell_constant(event)
            if not is_shown and self._begins(event, tallies, numbers[done:n], k):
                is_shown = True
                skipped.add(tallies, self, done, k)
            if isinstance(event, UnfitConstant):
                continue
            if is_shown:
                self._count(numbers, counts, done, n)
                assert observed.watch is not None
                operands = [array(x) for x in event.operands]
                observed.watch(array(event.result), operands, tallies.look(self.number, k))
            done, k = n, k + 1
        if not is_shown:
            skipped.add(tallies, self, done, k)
        self._count(numbers, counts, done, len(numbers))

    def _tell_constant(self, constant: UnfitConstant) -> None:
        assert self.observed.constant is not None
        self.observed.constant(*constant)

    def _begins(
        self, event: Event, tallies: JobTallies, numbers: NDArray[np.int64], k: int
    ) -> bool:
        """Whether results have a past from an event on: a number underflows to zero in rows."""
        if isinstance(event, UnfitConstant):
            return self.observed.inherits(event.rounded)
        return bool(tallies.zeros[self.number, k] and numbers[:, _UNDERFLOW].any())

    def _count(
        self, numbers: NDArray[np.int64], counts: Counts, begin: int, end: int
    ) -> None:
        """Operations begin … end - 1 count."""
        size = self.size
        for operation, (zeros, subnormals, *flags) in zip(
            self.program.operations[begin:end], numbers[begin:end].tolist(), strict=True
        ):
            results = 1 if operation.is_single else size
            counts.add_numbers(operation.counted, results, (zeros, subnormals), flags)


class _UpdateArrays:
    """Arrays of an update by their references; what nothing keeps has no numbers."""

    def __init__(self, update: ObservedUpdate, device: Device) -> None:
        self._update, self._device = update, device
        self._results: dict[int, Array] = {}

    def __call__(self, reference: Reference) -> Array:
        if isinstance(reference, Array):
            return reference
        x = self._update.arrays[reference] if reference >= 0 else self._results.get(reference)
        if x is None:
            x = self._results[reference] = self._result(reference, self._carrier(reference))
        return x

    def _carrier(self, reference: int) -> Carrier:
        update = self._update
        for carrier, value in zip(update.outputs, update.told.values, strict=True):
            if value == reference:
                return carrier
        return np.broadcast_to(_ZERO, update.shape)

    def _result(self, reference: int, carrier: Carrier) -> Array:
        fmt = self._update.program.operations[-1 - reference].settings.format
        return Array(carrier, self._device.context(fmt))


class _Skipped:
    """What operations of many tensors count that nobody is shown, and exponents of their results.

    Counters stand in the order in which the operations of the first tensor ran.
    """

    def __init__(self, update: ObservedUpdate, counts: Counts) -> None:
        self._observed, self._tensor = update.observed, update.tensor
        self._operations, self._shown = update.program.operations, update.told.results
        self._numbers = np.zeros((len(self._operations), TALLIED), np.int64)
        self._sizes = np.zeros(len(self._operations), np.int64)
        self._exponents = np.zeros((len(self._shown), BINS), np.int64)
        self._is_single = np.array([o.is_single for o in self._operations])
        if self._observed.watch is not None:
            self._tell(counts)

    def add(
        self, tallies: JobTallies, update: ObservedUpdate, n_operations: int, n_results: int
    ) -> None:
        """The first operations of an update, and its first results."""
        t, is_single = update.number, self._is_single[:n_operations]
        self._numbers[:n_operations] += tallies.numbers[t, :n_operations]
        self._sizes[:n_operations] += np.where(is_single, 1, update.size)
        self._exponents[:n_results] += tallies.exponents[t, :n_results]

    def add_whole(self, tallies: JobTallies, updates: Sequence[ObservedUpdate]) -> None:
        """Everything of updates."""
        jobs, size = [x.number for x in updates], sum([x.size for x in updates])
        self._numbers += tallies.numbers[jobs].sum(axis=0)
        self._sizes += np.where(self._is_single, len(jobs), size)
        self._exponents += tallies.exponents[jobs].sum(axis=0)

    def tell(self, counts: Counts) -> None:
        """Count them, and tell the observer of exponents."""
        if self._sizes.any():
            self._tell(counts)

    def _tell(self, counts: Counts) -> None:
        counts.tensor = self._tensor
        raised, counts.raised = counts.raised, None  # the observer has no need of them
        for operation, size, (zeros, subnormals, *flags) in zip(
            self._operations, self._sizes.tolist(), self._numbers.tolist(), strict=True
        ):
            counts.add_numbers(operation.counted, size, (zeros, subnormals), flags)
        counts.raised = raised
        for shown, exponents in zip(self._shown, self._exponents, strict=True):
            self._observed.exponents(self._format_of(shown.result), exponents)

    def _format_of(self, result: Reference) -> Format:
        if isinstance(result, Array):
            return result.format
        return self._operations[-1 - result].settings.format


class _ProgramTallies:
    """What the updates of one program count, and which of them have nothing but that to tell."""

    def __init__(self, told: ToldEvents, program: RecordedProgram, tallies: JobTallies) -> None:
        self.tallies = tallies
        self._operations, self._told = program.operations, told

    @property
    def is_plain(self) -> bool:
        """Whether an observer of results learns all of them from their tallies."""
        if self.tallies.numbers[:, :, _EXCEPTIONS].any():
            return False
        most = self.tallies.largest.max(axis=0).tolist()
        return all(
            isinstance(shown.result, Array)
            or bits < bits_of_largest(self._operations[-1 - shown.result].settings.format)
            for shown, bits in zip(self._told.results, most, strict=True)
        )

    def quiet(self) -> list[bool]:
        """By update, whether no result has a past where no operand has one."""
        events, tallies = self._told.events, self.tallies
        ends = [n for n, _ in events]
        is_whole = ends and ends[0] > 0 and ends[-1] == len(self._operations)
        if not is_whole or any(isinstance(event, UnfitConstant) for _, event in events):
            return [False] * len(tallies.numbers)
        underflows = tallies.numbers[:, :, _UNDERFLOW].cumsum(axis=1)[:, [n - 1 for n in ends]]
        rises = np.diff(underflows, axis=1, prepend=0) > 0
        begins = np.any(rises & (tallies.zeros > 0), axis=1)
        return [not x for x in begins.tolist()]


def tell_all(
    device: Device, counts: Counts, updates: Sequence[ObservedUpdate],
    of_programs: Mapping[int, JobTallies],
) -> bool:
    """Operations count, and observers are told, tensor by tensor.

    False, and nothing has happened, where an observer has to see the operations as they run.

    of_programs   what the updates of each program count, by its identity.
    """
    programs: dict[int, _ProgramTallies] = {}
    for update in updates:
        key = id(update.program)
        if update.observed.watch is not None and key not in programs:
            programs[key] = _ProgramTallies(update.told, update.program, of_programs[key])
    if not all(program.is_plain for program in programs.values()):
        return False
    quiet = {key: program.quiet() for key, program in programs.items()}
    tensor, skipped = counts.tensor, dict[tuple[int, str], _Skipped]()
    whole: dict[tuple[int, str], list[ObservedUpdate]] = {}
    for update in updates:
        key, of_tensor = id(update.program), (id(update.program), update.tensor)
        if of_tensor not in skipped:
            skipped[of_tensor] = _Skipped(update, counts)
        if update.observed.watch is not None and quiet[key][update.number] and not update.inherits:
            whole.setdefault(of_tensor, []).append(update)
        else:
            update.tell(of_programs[key], device, counts, skipped[of_tensor])
        update.tell_moves(device)
    for of_tensor, rest in skipped.items():
        if of_tensor in whole:
            rest.add_whole(of_programs[of_tensor[0]], whole[of_tensor])
        rest.tell(counts)
    counts.tensor = tensor
    return True
