"""Updates of many tensors by the equations of the table, computed in one call.

An equation is run on tensors of one element, by a twin of the device, which changes nothing and
shows the operations (`fpsim.elementwise.recorded_program`). Python's numbers, formats, control bits
and the single numbers among the slots tell one such program from another; numbers that are arrays
are inputs of it. It then runs on all tensors that it holds for: values, flags, cycles and the
numbers of operations are those of one update after the other. What is not of that kind is left to
its caller.

Where operations are counted or shown, results have memory of their own; counts and observers are
told behind the call (`ipu.ops.updates.observed`). Where one that counts would have to look closer,
at what is not finite or overflowed, the updates are left to the caller too.

Source    docs/semantics.md §2 (numbering), §6 (updates).
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary, ref

import numpy as np
from numpy.typing import NDArray

from fpsim.array import Array
from fpsim.elementwise.recorded_program import (
    JobTallies,
    RecordedJob,
    RecordedProgram,
    are_apart,
    numbers_of_jobs,
)
from fpsim.elementwise.recording import Recording
from fpsim.records.flags import raised_in
from fpsim.records.formats import Format
from fpsim.records.types import Carrier, Shape
from fpsim.state.counts import Counts
from fpsim.state.memory import memory_addresses
from ipu.machine.device import Device
from ipu.ops.in_one_call import may_join
from ipu.ops.updates.observed import (
    UNOBSERVED,
    Observed,
    ObservedUpdate,
    ShownUpdate,
    ToldEvents,
    tell_all,
)
from ipu.ops.updates.row import Around, Number, Updated, UpdateRow

__all__ = ["Changed", "Equation", "Together", "UpdateRequest", "at_once", "together_on"]

#: Programs that are kept: optimisers that count their steps have others in each.
_KEPT = 64
#: Elements of results that are kept for an observer at once: larger updates are shown one by one.
_SHOWN = 1 << 21
#: Numbers of a cache line, and of the memory that counted results share.
_LINE, _BLOCK = 16, 1 << 20
#: Of these at most so many are kept between steps.
_MOST_SHARED = 1 << 24
#: A row that was refused so often is not tried again under these control bits.
_TRIES = 8

#: A number in a format, and how it changed there; "" where it did not.
Constant = Callable[[float, Format], tuple[Any, str]]


#: Constants that did not fit: format, number and how it changed.
Changed = tuple[tuple[Format, float, str], ...]


#: The outputs that are the change of a variable and its direction, where there is none.
_NOT_SHOWN = -1, -1


class Equation(NamedTuple):
    """A program, and what it does with the variable and each slot.

    slots    of each: the number of the output that it becomes, None where it stays, or the single
             number that it is then.
    changed  constants that did not fit, where nobody is told of them in their place.
    told     of where operations are counted.
    outputs  of each the slot whose memory it may have, the variable's is 0; None for none.
    change   the output that is the change of the variable, and the direction of that; -1 for none.
    """

    program: RecordedProgram
    slots: tuple[int | Carrier | None, ...]
    changed: Changed
    told: ToldEvents = ToldEvents()
    outputs: tuple[int | None, ...] = ()
    change: tuple[int, int] = _NOT_SHOWN


class UpdateRequest(NamedTuple):
    """An update: a row, and what it is asked to do.

    fmt         of every operation, as in `Around`.
    constant    makes constants; None: to nearest.
    observed    by whom.
    """

    row: UpdateRow
    w: Array
    g: Array
    slots: Sequence[Array | None]
    numbers: Mapping[str, Number]
    fmt: Format | None = None
    constant: Constant | None = None
    observed: Observed = UNOBSERVED

    @property
    def arrays(self) -> tuple[Array | None, ...]:
        """The variable, the gradient and the slots."""
        return (self.w, self.g, *self.slots)

    def key_of_arrays(self) -> tuple[Any, ...]:
        """Formats of the arrays, the single numbers among them, and what is told of."""
        key: list[Any] = [id(self.fmt), self.observed.key]
        for x in self.arrays:
            if x is None:
                key.append(None)
                continue
            key.append(id(x.context.core.settings.format))
            carrier = x.carrier
            if carrier.shape == ():
                key.append(carrier.tobytes())
        return tuple(key)

    @property
    def singles(self) -> list[Carrier]:
        """The numbers that are arrays."""
        return [x.carrier for x in self.numbers.values() if isinstance(x, Array)]

    def key_of_numbers(self) -> tuple[Any, ...] | None:
        """The row and Python's numbers; None where an array among them is no single number."""
        key: list[Any] = [self.row.name]
        for name, number in self.numbers.items():
            if isinstance(number, Array):
                carrier = number.carrier
                if carrier.shape != ():
                    return None
                key += [name, id(number.context.core.settings.format)]
            else:  # the text tells -0.0 from 0.0, and True from 1
                key += [name, repr(number)]
        return tuple(key)


def _flags_of(tallies: JobTallies) -> list[int]:
    """The flags of each operation of a program's jobs."""
    return [raised_in(row) for row in tallies.numbers[:, :, 2:].sum(axis=0).tolist()]


class _SharedMemory:
    """Memory of results that are read before the next updates are computed.

    New memory costs as much as an operation on it, since the system gives pages of zeros.
    """

    def __init__(self) -> None:
        self.blocks: list[NDArray[np.float32]] = []
        self._block = self._begin = 0

    def take(self, shape: Shape) -> Carrier:
        """Memory for an array of this shape."""
        size = int(np.prod(shape, dtype=np.int64))
        while self._block < len(self.blocks):
            begin, block = self._begin, self.blocks[self._block]
            if begin + size <= block.size:
                self._begin = begin + -(-size // _LINE) * _LINE
                return block[begin : begin + size].reshape(shape)
            self._block, self._begin = self._block + 1, 0
        self.blocks.append(np.empty(max(size, _BLOCK), np.float32))
        return self.take(shape)

    def take_all(self, shape: Shape, n: int) -> list[Carrier]:
        """Memory for so many arrays of this shape."""
        return [self.take(shape) for _ in range(n)]

    def reuse(self) -> None:
        """What was taken is needed no more; of much memory a part is kept."""
        self._block = self._begin = 0
        while sum([block.size for block in self.blocks]) > _MOST_SHARED:
            self.blocks.pop()


def _memories(
    into: Sequence[Carrier | None], slots: Sequence[int | None], shape: Shape
) -> list[Carrier]:
    """Memory of slots, or new memory where there is none."""
    n = len(into)
    return [
        x if i is not None and i < n and (x := into[i]) is not None
        else np.empty(shape, np.float32) for i in slots
    ]


def _slots_after(
    equation: Equation, w: Array, slots: Sequence[Array | None], outputs: Sequence[Carrier],
    into: Sequence[Carrier | None],
) -> tuple[list[Array | None], list[tuple[Carrier, Carrier]]]:
    """The variable and its slots in the memory of outputs; single numbers, and where they go."""
    after: list[Array | None] = []
    singles: list[tuple[Carrier, Carrier]] = []
    for i, output in enumerate(equation.slots):
        before = w if i == 0 else slots[i - 1] if i <= len(slots) else None
        if isinstance(output, int):
            before = Array(outputs[output], w.context)
        elif output is not None and before is not None:
            (single,) = _memories(into, [i], ())
            singles.append((single, output))
            before = Array(single, before.context)
        after.append(before)
    return after, singles


class _Outputs:
    """Results of a program, and the slots whose memory they may have; None for none."""

    def __init__(self, fmt: Format) -> None:
        self._format, self.have_format = fmt, True
        self.carriers: list[Carrier] = []
        self.homes: list[int | None] = []

    def in_place(self, array: Array, home: int) -> int:
        """The number of a result that a slot, or the variable, becomes."""
        self.have_format &= array.format == self._format
        self.carriers.append(array.carrier)
        self.homes.append(home)
        return len(self.carriers) - 1

    def add(self, array: Array) -> int:
        """The number of a result that is only read."""
        for k, carrier in enumerate(self.carriers):
            if carrier is array.carrier:
                return k
        self.carriers.append(array.carrier)
        self.homes.append(None)
        return len(self.carriers) - 1

    def shown(self, array: Array | None) -> int:
        """The same of a result in the variable's format and shape; -1 where there is none."""
        if array is None:
            return -1
        self.have_format &= array.format == self._format and array.shape != ()
        return self.add(array)


class Together:
    """Updates on a device that wait to be computed in one call.

    >>> from fpsim import BINARY16
    >>> from ipu.ops.updates import UPDATES
    >>> device = Device()
    >>> together = together_on(device)
    >>> w, g = (device.from_host(np.full(3, x), BINARY16) for x in (1.0, 0.5))
    >>> row = UPDATES["tensorflow descent"]
    >>> updated, _ = together.add(UpdateRequest(row, w, g, (), {"rate": 0.5}))
    >>> together.run()
    True
    >>> updated.value.tolist()
    [0.75, 0.75, 0.75]
    """

    def __init__(self, device: Device) -> None:
        self._device = ref(device)
        self._twin = device.twin()
        self._control = self._twin.control
        self._equations: dict[tuple[Any, ...], Equation | None] = {}
        #: How often a row was refused, one time after the other.
        self._refused: Counter[str] = Counter()
        self._waiting: dict[int, tuple[RecordedProgram, list[RecordedJob]]] = {}
        #: What is told of each job, in the order of all, where it is counted or shown.
        self._observed: list[ObservedUpdate] = []
        #: Elements of results that are kept to be shown.
        self._n_shown = 0
        self._shared = _SharedMemory()
        #: What must stay in memory until it is computed.
        self._arrays: list[Carrier] = []
        #: First addresses of memory that is written then, and those behind it, in order.
        self._begins: list[int] = []
        self._ends: list[int] = []
        #: Single numbers, and the memory that they are written to.
        self._singles: list[tuple[Carrier, Carrier]] = []
        #: Numbers that wait, and their key: those of many tensors are one mapping.
        self._numbers: tuple[Mapping[str, Number] | None, tuple[Any, ...] | None] = None, None

    def names(self) -> bool:
        """Whether an update has to be named: operations take random bits there, or count."""
        device = self._device()
        return device is not None and (device.control.esr or device.counts is not None)

    def add(
        self, request: UpdateRequest, into: Sequence[Carrier | None] = ()
    ) -> tuple[Updated, Changed] | None:
        """The variable and its slots after an update, whose values are there after `run`.

        With them the constants that did not fit. None where the update is none of a program:
        nothing has happened then.

        into    memory of the variable and of each slot, which may be that of before; None: new.
                The numbers of a request stay what they are until `run`. Where operations are
                counted or shown all memory is another one; whoever gives memory for counted
                results copies them there before it adds the next update.
        """
        device = self._device()
        assert device is not None
        equation = self.equation(device, request)
        if equation is None:
            return None
        w, shape = request.w, request.w.carrier.shape
        is_shown = device.counts is None and request.observed.watch is not None
        n_shown = len(equation.outputs) * w.carrier.size if is_shown else 0
        if n_shown > _SHOWN:
            return None
        tensors = (w, request.g, *request.slots)  # `request.arrays`, without a call
        inputs = [x.carrier for x in tensors if x is not None and x.carrier.shape != ()]
        is_shared = bool(into) and device.counts is not None
        into = () if is_shown or device.counts is not None else into
        outputs = self._shared.take_all(shape, len(equation.outputs)) if is_shared else (
            _memories(into, equation.outputs, shape))
        after, singles = _slots_after(equation, w, request.slots, outputs, into)
        arrays = inputs + outputs
        for x in arrays:
            if x.shape != shape or not x.flags.c_contiguous:
                return None
        n, end, size = len(inputs), len(arrays), inputs[0].size
        program, changed = equation.program, equation.changed
        arrays += request.singles if program.takes_singles else ()
        starts = memory_addresses(arrays)
        waits = self._begins and self._waits_for(arrays, starts)
        if waits or after[0] is None or not are_apart(starts[:n], starts[n:end], size):
            return None
        numbers = device.clock.take(program.n_draws) if program.n_draws else ()
        job = RecordedJob(
            tuple(starts[:n]), tuple(starts[n:end]), size, device.clock.first, numbers,
            tuple(starts[end:]),
        )
        jobs = self._waiting.setdefault(id(program), (program, []))[1]
        if is_shown or device.counts is not None:
            self._observe(device.counts, request, equation, outputs, len(jobs))
        self._n_shown += n_shown
        jobs.append(job)
        self._arrays += arrays
        for begin, array in zip(starts[n:end], outputs, strict=True):
            insort(self._begins, begin)
            insort(self._ends, begin + array.nbytes)
        self._singles += singles
        change = () if equation.change == _NOT_SHOWN else [
            None if i < 0 else Array(outputs[i], w.context) for i in equation.change
        ]
        return Updated(after[0], tuple(after[1:]), *change), changed

    def _waits_for(self, arrays: Sequence[Carrier], starts: Sequence[int]) -> bool:
        """Whether an array lies in memory that an update before writes: variables may share it."""
        for begin, array in zip(starts, arrays, strict=True):
            i = bisect_right(self._ends, begin)
            if i < len(self._ends) and self._begins[i] < begin + array.nbytes:
                return True
        return False

    @property
    def is_full(self) -> bool:
        """Whether so much is kept for an observer that `run` should be called now."""
        return self._n_shown > _SHOWN

    def _observe(
        self, counts: Counts | None, request: UpdateRequest, equation: Equation,
        outputs: Sequence[Carrier], number: int,
    ) -> None:
        """An update that will be told of; counted ones have the flags that were raised before."""
        tensor, raised = ("", None) if counts is None else (counts.tensor, counts.raised)
        self._observed.append(ObservedUpdate(
            equation.program, equation.told, request.observed, request.arrays, outputs,
            request.w.shape, number, tensor, dict(raised or {}),
        ))
        if raised:
            raised.clear()

    def forget(self) -> None:
        """Nothing waits any more: the step was stopped."""
        self._waiting, self._arrays, self._singles, self._observed = {}, [], [], []
        self._begins, self._ends = [], []
        self._numbers, self._n_shown = (None, None), 0
        if self._shared.blocks:
            self._shared.reuse()

    def run(self) -> bool:
        """Compute what waits; raise its flags and count its cycles.

        False, and nothing has happened, where an observer has to see the operations as they run.
        """
        device = self._device()
        assert device is not None
        seed, waiting = device.source.seed or 0, list(self._waiting.values())
        if device.counts is not None:
            tallies = [program.count(jobs, seed) for program, jobs in waiting]
            raised = list(map(_flags_of, tallies))
            if not self._tell(device, device.counts, tallies):
                device.clock.give_back(sum([p.n_draws * len(jobs) for p, jobs in waiting]))
                self.forget()
                return False
        else:
            raised = [program.run(jobs, seed) for program, jobs in waiting]
        for (program, jobs), flags in zip(waiting, raised, strict=True):
            self._account(device, program, jobs, flags)
        for memory, number in self._singles:
            memory[...] = number
        shown = self._observed if device.counts is None else []
        self.forget()
        for update in shown:
            update.show(device)
        return True

    def compute(self, jobs: Sequence[tuple[Equation, RecordedJob]]) -> None:
        """Compute jobs that have their numbers, where nothing is counted by operation."""
        for equation, job in jobs:
            program = equation.program
            self._waiting.setdefault(id(program), (program, []))[1].append(job)
        self.run()

    def _tell(
        self, device: Device, counts: Counts, tallies: Sequence[JobTallies]
    ) -> bool:
        """Count what ran, and tell the observers; False where one has to see it as it runs."""
        of_programs = dict(zip(self._waiting, tallies, strict=True))
        if tell_all(device, counts, self._observed, of_programs):
            return True
        if counts.raised is not None:
            for update in self._observed:
                counts.raised.update(update.pending)
        return False

    @staticmethod
    def _account(
        device: Device, program: RecordedProgram, jobs: Sequence[RecordedJob],
        flags: Sequence[int],
    ) -> None:
        """Raise the flags of a program's operations, and count their cycles."""
        sizes = Counter([job.size for job in jobs])
        for operation, raised in zip(program.operations, flags, strict=True):
            core = device.context(operation.settings.format).core
            if raised:
                core.raise_flags(raised)
            assert core.loops is not None
            cycles, elements = core.loops[operation.name]
            if operation.is_single:
                device.vector_cycles += cycles * len(jobs)
                continue
            for size, times in sizes.items():
                device.vector_cycles += times * cycles * -(-size // elements)

    # Programs -------------------------------------------------------------------------------

    def equation(self, device: Device, request: UpdateRequest) -> Equation | None:
        """Of a request; recorded, if it is the first of its kind."""
        if device.control is not self._control:
            self._control = self._twin.control = device.control
            self._equations.clear()
            self._refused.clear()
        numbers, of_numbers = self._numbers
        if numbers is not request.numbers:
            of_numbers = request.key_of_numbers()
            self._numbers = request.numbers, of_numbers
        carrier = request.w.carrier
        if of_numbers is None or carrier.shape == () or carrier.size == 0:
            return None
        key = (*of_numbers, device.counts is not None, *request.key_of_arrays())
        if key not in self._equations:
            name = request.row.name
            if self._refused[name] >= _TRIES:
                return None
            if len(self._equations) >= _KEPT:
                self._equations.clear()
            equation = self._equations[key] = self._recorded(request)
            self._refused[name] = 0 if equation else self._refused[name] + 1
        return self._equations[key]

    def _recorded(self, request: UpdateRequest) -> Equation | None:
        """The equation on tensors of one element, as the operations that it has there."""
        twin, changed = self._twin, []
        w, g, *slots = (self._sample(x) for x in (request.w, request.g, *request.slots))
        assert w is not None
        assert g is not None
        # Copies: an array that is two numbers here may be two arrays in another request.
        numbers = {
            name: Array(x.carrier.copy(), twin.context(x.format)) if isinstance(x, Array) else x
            for name, x in request.numbers.items()
        }

        def constant(value: float, fmt: Format) -> Any:
            if request.constant is None:
                return twin.context(fmt).constant(value)
            rounded, change = request.constant(value, fmt)
            if change and request.observed.watch is None:
                changed.append((fmt, float(value), change))
            elif change:
                shown.constant(fmt, float(value), change, rounded)
            return rounded

        twin.recording = recording = Recording(twin.counts)
        shown = ShownUpdate(recording)
        observed = request.observed
        try:
            around = Around(
                constant, None if observed.watch is None else shown.watch,
                None if observed.moved is None else shown.move, request.fmt,
            )
            updated = request.row(twin, w, g, slots, around, **numbers)
        except (ArithmeticError, TypeError, ValueError):
            return None  # the caller meets it in the usual way
        finally:
            twin.recording = None
            recording.close()
        singles = [x.carrier for x in numbers.values() if isinstance(x, Array)]
        return self._program(
            request, recording, (w, g, *slots), singles, updated, shown, tuple(changed),
            is_counted=twin.counts is not None,
        )

    @staticmethod
    def _program(
        request: UpdateRequest, recording: Recording, samples: Sequence[Array | None],
        singles: Sequence[Carrier], updated: Updated, shown: ShownUpdate, changed: Changed, *,
        is_counted: bool,
    ) -> Equation | None:
        """The equation of a recording on samples and single inputs; None where it is no program."""
        w, _, *slots = samples
        assert w is not None
        of_jobs = numbers_of_jobs(recording.operations, singles)
        told = (*updated.slots, *shown.shown, *shown.moved)
        if any(x is not None and id(x.carrier) in of_jobs for x in told):
            return None  # single numbers that are told of, or kept, must be part of the program
        references = {
            **{id(x.carrier): i for i, x in enumerate(samples) if x is not None},
            **{id(o.result): -1 - k for k, o in enumerate(recording.operations)
               if not o.is_single},
        }
        outputs = _Outputs(w.format)
        places: list[int | Carrier | None] = []
        for i, array in enumerate((updated.value, *updated.slots)):
            before = w if i == 0 else slots[i - 1] if i <= len(slots) else None
            if array is before:
                places.append(None)
            elif array is None:
                return None
            else:
                is_single = array.shape == ()
                places.append(array.carrier if is_single else outputs.in_place(array, i))
        change = _NOT_SHOWN
        if request.observed.change:
            change = outputs.shown(updated.change), outputs.shown(updated.direction)
        read = shown.moved if is_counted else [*shown.shown, *shown.moved]
        for array in read:
            if references.get(id(array.carrier), 0) < 0:
                outputs.add(array)
        inputs = [x.carrier for x in samples if x is not None and x.shape != ()]
        program = RecordedProgram.of(recording, inputs, outputs.carriers, singles)
        if program is None or not outputs.have_format:
            return None
        return Equation(
            program, tuple(places), changed, shown.told(references, outputs.carriers),
            tuple(outputs.homes), change,
        )

    def _sample(self, x: Array | None) -> Array | None:
        """One element for a tensor; a single number as it is."""
        if x is None:
            return None
        context = self._twin.context(x.format)
        return Array(x.carrier, context) if x.shape == () else context.ones((1,))


def at_once(
    row: UpdateRow, device: Device, w: Array, g: Array, slots: Sequence[Array | None],
    numbers: Mapping[str, Number], observed: Observed = UNOBSERVED,
) -> Updated:
    """One update, in one call where it can be; its change and direction are told if asked for.

    >>> from fpsim import BINARY16
    >>> from ipu.ops.updates import UPDATES
    >>> device = Device()
    >>> w, g = (device.from_host(np.full(3, x), BINARY16) for x in (1.0, 0.5))
    >>> at_once(UPDATES["tensorflow descent"], device, w, g, (), {"rate": 0.5}).value.tolist()
    [0.75, 0.75, 0.75]
    """
    together = together_on(device)
    request = UpdateRequest(row, w, g, slots, numbers, observed=observed)
    joined = None if together is None else together.add(request)
    if together is None or joined is None or not together.run():
        return row(device, w, g, slots, **numbers)
    return joined[0]


_OF_DEVICES: WeakKeyDictionary[Device, Together] = WeakKeyDictionary()


def together_on(device: Device) -> Together | None:
    """Where updates on a device wait; None where each has to be looked at while it runs.

    See `may_join`.
    """
    if not may_join(device):
        return None
    together = _OF_DEVICES.get(device)
    if together is None:
        together = _OF_DEVICES[device] = Together(device)
    return together
