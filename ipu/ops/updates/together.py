"""Updates of many tensors by the equations of the table, computed in one call.

An equation is run on tensors of one element, by a twin of the device, which changes nothing and
shows the operations (`fpsim.elementwise.recording`). Numbers, formats, control bits and the single
numbers among the slots tell one such program from another. It then runs on all tensors that it
holds for: values, flags, cycles and the numbers of operations are those of one update after the
other. What is not of that kind is left to its caller.

Source    docs/semantics.md §2 (numbering), §6 (updates).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary, ref

import numpy as np

from fpsim.array import Array
from fpsim.elementwise.recording import RecordedJob, RecordedProgram, Recording, are_apart
from fpsim.records.formats import Format
from fpsim.records.types import Carrier
from fpsim.state.memory import memory_address
from ipu.machine.device import Device
from ipu.ops.in_one_call import may_join
from ipu.ops.updates.row import Around, Number, Updated, UpdateRow

__all__ = ["Changed", "Together", "UpdateRequest", "at_once", "together_on"]

#: Programs that are kept: optimisers that count their steps have others in each.
_KEPT = 64
#: A row that was refused so often is not tried again under these control bits.
_TRIES = 8

#: A number in a format, and how it changed there; "" where it did not.
Constant = Callable[[float, Format], tuple[Any, str]]


#: Constants that did not fit: format, number and how it changed.
Changed = tuple[tuple[Format, float, str], ...]


class _Equation(NamedTuple):
    """A program, and what it does with the variable and each slot.

    slots    of each: the number of the output that it becomes, None where it stays, or the single
             number that it is then.
    changed  constants that did not fit.
    """

    program: RecordedProgram
    slots: tuple[int | Carrier | None, ...]
    changed: Changed


class UpdateRequest(NamedTuple):
    """An update: a row, and what it is asked to do.

    fmt         of every operation, as in `Around`.
    constant    makes constants; None: to nearest.
    """

    row: UpdateRow
    w: Array
    g: Array
    slots: Sequence[Array | None]
    numbers: Mapping[str, Number]
    fmt: Format | None = None
    constant: Constant | None = None

    def key_of_arrays(self) -> tuple[Any, ...]:
        """Formats of the arrays, and the single numbers among them."""
        key: list[Any] = [id(self.fmt)]
        for x in (self.w, self.g, *self.slots):
            if x is None:
                key.append(None)
                continue
            key.append(id(x.context.core.settings.format))
            carrier = x.carrier
            if carrier.shape == ():
                key.append(carrier.tobytes())
        return tuple(key)

    def key_of_numbers(self) -> tuple[Any, ...] | None:
        """The row and its numbers; None where one of them is no single number."""
        key: list[Any] = [self.row.name]
        for name, number in self.numbers.items():
            if isinstance(number, Array):
                carrier = number.carrier
                if carrier.shape != ():
                    return None
                key += [name, id(number.context.core.settings.format), carrier.tobytes()]
            else:  # the text tells -0.0 from 0.0, and True from 1
                key += [name, repr(number)]
        return tuple(key)


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
    >>> updated.value.tolist()
    [0.75, 0.75, 0.75]
    """

    def __init__(self, device: Device) -> None:
        self._device = ref(device)
        self._twin = device.twin()
        self._control = self._twin.control
        self._equations: dict[tuple[Any, ...], _Equation | None] = {}
        #: How often a row was refused, one time after the other.
        self._refused: Counter[str] = Counter()
        self._waiting: dict[int, tuple[RecordedProgram, list[RecordedJob]]] = {}
        #: What must stay in memory until it is computed.
        self._arrays: list[Carrier] = []
        #: Single numbers, and the memory that they are written to.
        self._singles: list[tuple[Carrier, Carrier]] = []
        #: Numbers that wait, and their key: those of many tensors are one mapping.
        self._numbers: tuple[Mapping[str, Number] | None, tuple[Any, ...] | None] = None, None

    def draws(self) -> bool:
        """Whether operations may take random bits, so that their numbers count."""
        device = self._device()
        return device is not None and device.control.esr

    def add(
        self, request: UpdateRequest, into: Sequence[Carrier | None] = ()
    ) -> tuple[Updated, Changed] | None:
        """The variable and its slots after an update, whose values are there after `run`.

        With them the constants that did not fit. None where the update is none of a program:
        nothing has happened then.

        into    memory of the variable and of each slot, which may be that of before; None: new.
                The numbers of a request stay what they are until `run`.
        """
        device = self._device()
        assert device is not None
        equation = self._equation(device, request)
        if equation is None:
            return None
        w, g, slots = request.w, request.g, request.slots
        shape, inputs = w.carrier.shape, [w.carrier, g.carrier]
        for x in slots:
            if x is not None and x.carrier.shape != ():
                inputs += (x.carrier,)
        arrays, after, singles = list(inputs), [], []
        for i, output in enumerate(equation.slots):
            before = w if i == 0 else slots[i - 1] if i <= len(slots) else None
            if isinstance(output, int):
                memory = into[i] if i < len(into) else None
                arrays.append(np.empty(shape, np.float32) if memory is None else memory)
                before = Array(arrays[-1], w.context)
            elif output is not None and before is not None:
                memory = into[i] if i < len(into) else None
                single = np.empty((), np.float32) if memory is None else memory
                singles.append((single, output))
                before = Array(single, before.context)
            after.append(before)
        starts: list[int] = []
        for carrier in arrays:
            if carrier.shape != shape or not carrier.flags.c_contiguous:
                return None
            starts.append(memory_address(carrier))
        n, size = len(inputs), arrays[0].size
        program, changed = equation.program, equation.changed
        if not are_apart(starts[:n], starts[n:], size) or after[0] is None:
            return None
        numbers = device.clock.take(program.n_draws) if program.n_draws else ()
        job = RecordedJob(tuple(starts[:n]), tuple(starts[n:]), size, device.clock.first, numbers)
        self._waiting.setdefault(id(program), (program, []))[1].append(job)
        self._arrays += arrays
        self._singles += singles
        return Updated(after[0], tuple(after[1:])), changed

    def forget(self) -> None:
        """Nothing waits any more: the step was stopped."""
        self._waiting, self._arrays, self._singles = {}, [], []
        self._numbers = None, None

    def run(self) -> None:
        """Compute what waits; raise its flags and count its cycles."""
        waiting, self._waiting = self._waiting, {}
        device = self._device()
        assert device is not None
        for program, jobs in waiting.values():
            flags = program.run(jobs, device.source.seed or 0)
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
        for memory, number in self._singles:
            memory[...] = number
        self.forget()

    # Programs -------------------------------------------------------------------------------

    def _equation(self, device: Device, request: UpdateRequest) -> _Equation | None:
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
        key = (*of_numbers, *request.key_of_arrays())
        if key not in self._equations:
            name = request.row.name
            if self._refused[name] >= _TRIES:
                return None
            if len(self._equations) >= _KEPT:
                self._equations.clear()
            equation = self._equations[key] = self._recorded(request)
            self._refused[name] = 0 if equation else self._refused[name] + 1
        return self._equations[key]

    def _recorded(self, request: UpdateRequest) -> _Equation | None:
        """The equation on tensors of one element, as the operations that it has there."""
        twin, changed = self._twin, []
        w, g, *slots = (self._sample(x) for x in (request.w, request.g, *request.slots))
        assert w is not None
        assert g is not None

        def constant(value: float, fmt: Format) -> Any:
            if request.constant is None:
                return twin.context(fmt).constant(value)
            rounded, change = request.constant(value, fmt)
            if change:
                changed.append((fmt, float(value), change))
            return rounded

        twin.recording = recording = Recording()
        try:
            around = Around(constant, format=request.fmt)
            updated = request.row(twin, w, g, slots, around, **request.numbers)
        except (ArithmeticError, TypeError, ValueError):
            return None  # the caller meets it in the usual way
        finally:
            twin.recording = None
        inputs = [x.carrier for x in (w, g, *slots) if x is not None and x.shape != ()]
        outputs: list[Carrier] = []
        places: list[int | Carrier | None] = []
        for i, array in enumerate((updated.value, *updated.slots)):
            before = w if i == 0 else slots[i - 1] if i <= len(slots) else None
            if array is before:
                places.append(None)
            elif array is None:
                return None
            elif array.shape == ():
                places.append(array.carrier)
            else:
                if array.format != w.format:
                    return None
                places.append(len(outputs))
                outputs.append(array.carrier)
        program = RecordedProgram.of(recording, inputs, outputs)
        return None if program is None else _Equation(program, tuple(places), tuple(changed))

    def _sample(self, x: Array | None) -> Array | None:
        """One element for a tensor; a single number as it is."""
        if x is None:
            return None
        context = self._twin.context(x.format)
        return Array(x.carrier, context) if x.shape == () else context.ones((1,))


def at_once(
    row: UpdateRow, device: Device, w: Array, g: Array, slots: Sequence[Array | None],
    numbers: Mapping[str, Number],
) -> Updated:
    """One update, in one call where it can be: its change and direction are not told then.

    >>> from fpsim import BINARY16
    >>> from ipu.ops.updates import UPDATES
    >>> device = Device()
    >>> w, g = (device.from_host(np.full(3, x), BINARY16) for x in (1.0, 0.5))
    >>> at_once(UPDATES["tensorflow descent"], device, w, g, (), {"rate": 0.5}).value.tolist()
    [0.75, 0.75, 0.75]
    """
    together = together_on(device)
    request = UpdateRequest(row, w, g, slots, numbers)
    joined = None if together is None else together.add(request)
    if together is None or joined is None:
        return row(device, w, g, slots, **numbers)
    together.run()
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
