"""Rules of the table whose operations run in one call from their second call on.

A rule that is marked runs as it is written when it first meets shapes, formats and options; what it
asks of the device is noted (`fpsim.elementwise.recording`). Calls alike then run what was noted
(`fpsim.products.row_program`): values, flags, counts, cycles and random bits are those of the rule.
Where operations may trap the rule runs, and wherever data need more than the kernels have.

Source    docs/semantics.md §2 (numbering), §6 (roundings of primitives).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any, NamedTuple, TypeVar
from weakref import WeakKeyDictionary, ref

import numpy as np
from numpy.typing import NDArray

from fpsim.array import Array
from fpsim.elementwise.recording import Recording
from fpsim.products.row_program import RowProgram, RowResults
from fpsim.records.formats import Format
from fpsim.records.types import Carrier, Shape
from fpsim.state.memory import memory_address
from fpsim.state.processor import usual_arithmetic
from ipu.machine.control import FpCtl
from ipu.machine.device import Device
from ipu.ops.saved import Reading

__all__ = ["in_one_call", "may_join", "programs_on"]

Rule = TypeVar("Rule", bound=Callable[..., Any])

#: Programs that are kept under one state of the control register.
_KEPT = 512

#: Calls after which a signature is given up: that were no program, or had no result as one.
_TRIES = 8

#: What stands for an array in the key and in the results of a rule.
_PLAIN = (int, float, str, bool, type(None))


class _ResultTemplate(NamedTuple):
    """An array among the results: which one, its shape and its format."""

    place: int
    shape: Shape
    format: Format


class _InputTemplate(NamedTuple):
    """An array that is given back as it came."""

    place: int


class _RuleProgram(NamedTuple):
    """A program of a rule under one signature, and what its results look like.

    shapes    of the arrays among them.
    """

    program: RowProgram
    results: Any
    shapes: tuple[Shape, ...]
    cycles: int


class _RuleSignature:
    """What is known of calls alike: their program, and how often there was no result."""

    def __init__(self) -> None:
        self.program: _RuleProgram | None = None
        self.n_refused = 0


def may_join(device: Device) -> bool:
    """Whether operations on a device may run in one call: nothing looks at each of them.

    That is so where nothing may trap, with random bits of Philox, on devices of this kind, and
    while operations are not noted. What counts is told behind the call.
    """
    control = device.control
    return (
        device.in_one_call and device.recording is None
        and not (control.inv or control.div0 or control.oflo)
        and device.source.seed is not None and type(device) is Device
    )


class RowPrograms:
    """The programs of a device."""

    def __init__(self, device: Device) -> None:
        self._device = ref(device)
        self._control: FpCtl | None = None
        self._signatures: dict[tuple[Any, ...], _RuleSignature] = {}
        self._by_control: dict[FpCtl, dict[tuple[Any, ...], _RuleSignature]] = {}

    def run(self, rule: Callable[..., Any], arguments: Any, options: dict[str, Any]) -> Any:
        """What the rule gives for these arguments."""
        device = self._device()
        assert device is not None
        arrays: list[Array] = []
        key: list[Any] = [rule, device.counts is not None]
        if device.clock.first or not _flatten((arguments, options), arrays, [], key):
            return rule(device, *arguments, **options)
        if device.control is not self._control:
            self._control = device.control
            self._signatures = self._by_control.setdefault(self._control, {})
        signature = self._signatures.get(tuple(key))
        if signature is None:
            if len(self._signatures) >= _KEPT:
                self._signatures.clear()
            signature = self._signatures[tuple(key)] = _RuleSignature()
        if signature.n_refused >= _TRIES:
            return rule(device, *arguments, **options)
        if signature.program is None:
            result, signature.program = _recorded(device, rule, arguments, options, arrays)
            signature.n_refused += signature.program is None
            return result
        outcome = _run(device, signature.program, arrays)
        if outcome is not None:
            return outcome[0]
        signature.n_refused += 1
        return rule(device, *arguments, **options)


#: Where the memory of an array begins, and its strides: equal for arrays of one shape in the same
#: memory.
_Place = tuple[int, Shape]


def _flatten(value: Any, arrays: list[Array], places: list[_Place], key: list[Any]) -> bool:
    """Add the arrays in a structure, their places and all that a program depends on to three lists.

    False where something is neither array, format nor plain number.
    """
    if isinstance(value, Array):
        carrier = value.carrier
        if carrier.dtype != np.float32 or carrier.size == 0:
            return False
        place = memory_address(carrier), carrier.strides
        key += [carrier.shape, id(value.context.core.settings.format)]
        key.append(places.index(place) if place in places else -1)
        if carrier.shape == ():
            key.append(carrier.tobytes())
        arrays.append(value)
        places.append(place)
        return True
    if isinstance(value, (tuple, list, Reading)):
        key.append(len(value))
    elif isinstance(value, dict):
        key += value
        value = value.values()
    elif isinstance(value, Format):
        key.append(id(value))
        return True
    else:
        # The text tells -0.0 from 0.0, and True from 1.
        key.append(repr(value))
        return isinstance(value, _PLAIN)
    is_plain = True
    for item in value:  # no generator, which is a call for each item: every call of a rule asks
        is_plain = _flatten(item, arrays, places, key) and is_plain
    return is_plain


def _recorded(
    device: Device, rule: Callable[..., Any], arguments: Any, options: dict[str, Any],
    arrays: Sequence[Array],
) -> tuple[Any, _RuleProgram | None]:
    """What the rule gives, and its program; None where it has none."""
    whole = [
        x if x.carrier.flags.c_contiguous else x.like(np.ascontiguousarray(x.carrier))
        for x in arrays
    ]
    others = dict(zip(map(id, arrays), whole, strict=True))
    cycles, k = device.vector_cycles, device.clock.k
    device.recording = recording = Recording(device.counts)
    try:
        result = rule(device, *_exchanged(arguments, others), **_exchanged(options, others))
    finally:
        device.recording = None
        recording.close()
    outputs: dict[int, Carrier] = {}
    results = _template(result, whole, outputs)
    program = None
    if results is not None and _is_of_now(recording, device):
        program = RowProgram.of(recording, [x.carrier for x in whole], list(outputs.values()))
    result = _exchanged(result, dict(zip(map(id, whole), arrays, strict=True)))
    if program is None or program.n_draws != device.clock.k - k:
        return result, None
    shapes = tuple([x.shape for x in outputs.values()])
    return result, _RuleProgram(program, results, shapes, device.vector_cycles - cycles)


def _exchanged(value: Any, others: dict[int, Array]) -> Any:
    """A structure with other arrays in the places of some, by their identity."""
    if isinstance(value, Array):
        return others.get(id(value), value)
    if isinstance(value, (tuple, list, Reading)):
        return tuple([_exchanged(item, others) for item in value])
    if isinstance(value, dict):
        return {name: _exchanged(item, others) for name, item in value.items()}
    return value


def _is_of_now(recording: Recording, device: Device) -> bool:
    """Whether no operation ran under other control bits in between."""
    settings = [operation.settings for operation in recording.operations]
    return all(s is device.context(s.format).core.settings for s in settings)


def _template(value: Any, arrays: Sequence[Array], outputs: dict[int, Carrier]) -> Any:
    """Results with places for arrays, which are added to the outputs; None for what has none."""
    if isinstance(value, Array):
        for place, array in enumerate(arrays):
            if array is value:
                return _InputTemplate(place)
        address = memory_address(value.carrier)
        outputs.setdefault(address, value.carrier)
        place = list(outputs).index(address)
        return _ResultTemplate(place, value.shape, value.format)
    if isinstance(value, tuple):
        items = [_template(item, arrays, outputs) for item in value]
        return None if any(item is None for item in items) else tuple(items)
    return value if isinstance(value, Format) else None


def _run(device: Device, program: _RuleProgram, arrays: Sequence[Array]) -> tuple[Any] | None:
    """The results of a call alike; None, and nothing has happened, where the rule has to run."""
    inner = program.program
    numbers = device.clock.take(inner.n_draws)
    results = [np.empty(shape, np.float32) for shape in program.shapes]
    outcome = inner.run([x.carrier for x in arrays], device.source.seed or 0, numbers, results)
    if outcome is None:
        device.clock.give_back(inner.n_draws)
        return None
    device.vector_cycles += program.cycles
    _raise(device, outcome)
    if device.notes is not None:
        _note(device, inner, [x.carrier for x in arrays], outcome.results, numbers)
    if device.counts is not None:
        for name, size, (zeros, subnormals, *raised) in outcome.counted:
            device.counts.add_numbers(name, size, (zeros, subnormals), raised)
    return (_filled(device, program.results, outcome.results, arrays),)


def _raise(device: Device, outcome: RowResults) -> None:
    for settings, flags in outcome.flags.values():
        device.context(settings.format).core.raise_flags(flags)


def _note(
    device: Device, program: RowProgram, inputs: Sequence[Carrier], results: Sequence[Carrier],
    numbers: Sequence[int],
) -> None:
    """The call of a program, to be run again; single numbers are part of the program."""
    n, seed = len(numbers), device.source.seed or 0

    def again(drawn: NDArray[np.uint64], first: int) -> bool:
        outcome = program.run(inputs, seed, drawn[first : first + n], results)
        if outcome is None:
            return False
        _raise(device, outcome)
        return True

    assert device.notes is not None
    fixed = [x for x in inputs if x.shape == ()]
    device.notes.note(inputs, results, again, numbers, fixed)


def _filled(device: Device, template: Any, results: list[Carrier], arrays: Sequence[Array]) -> Any:
    if isinstance(template, _ResultTemplate):
        carrier = results[template.place]
        if carrier.shape != template.shape:
            carrier = carrier.reshape(template.shape)
        return Array(carrier, device.context(template.format))
    if isinstance(template, _InputTemplate):
        return arrays[template.place]
    if isinstance(template, tuple):
        return tuple([_filled(device, item, results, arrays) for item in template])
    return template


_OF_DEVICES: WeakKeyDictionary[Device, RowPrograms] = WeakKeyDictionary()


def programs_on(device: Device) -> RowPrograms | None:
    """The programs of a device; None where each operation has to run alone."""
    if not may_join(device):
        return None
    programs = _OF_DEVICES.get(device)
    if programs is None:
        programs = _OF_DEVICES[device] = RowPrograms(device)
    return programs


def in_one_call(rule: Rule) -> Rule:
    """Mark a rule: a function of a device, arrays and options that keeps nothing between calls.

    >>> from fpsim import BINARY16
    >>> @in_one_call
    ... def square_plus_one(device: Device, x: Array) -> Array:
    ...     return device.add(device.multiply(x, x), 1.0)
    >>> device = Device()
    >>> x = device.from_host([1.0, 2.0], BINARY16)
    >>> [square_plus_one(device, x).values.tolist() for _ in range(2)]
    [[2.0, 5.0], [2.0, 5.0]]
    """

    @wraps(rule)
    @usual_arithmetic
    def run(device: Device, *arguments: Any, **options: Any) -> Any:
        programs = programs_on(device)
        if programs is None:
            return rule(device, *arguments, **options)
        return programs.run(rule, arguments, options)

    return run  # type: ignore[return-value]
