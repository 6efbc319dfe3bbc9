"""What stands behind a Context: operands become carriers, one kernel runs, an Array comes back.

Nothing is promoted: an Array of another format is refused, a Python number becomes a constant of
the context's format.

Source    docs/semantics.md §3.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from fpsim.array import Array
from fpsim.asarray import AsArray
from fpsim.elementwise import codes, elementary
from fpsim.elementwise import compare as comparisons
from fpsim.elementwise.apply import apply, common_shape, native
from fpsim.elementwise.inputs import Scalar, scalar
from fpsim.elementwise.notes import Again, CallNotes, rounded_again
from fpsim.elementwise.recording import FUNCTION, OPERATION, Recording
from fpsim.records.flags import Flags
from fpsim.records.formats import Format
from fpsim.records.rounding import RNE
from fpsim.records.settings import Settings
from fpsim.records.types import Carrier, ElementFlags, OperandsAt, Shape
from fpsim.state.bits import BitSource
from fpsim.state.draws import NO_DRAW, draw
from fpsim.state.publish import broadcast_operands, check_out, fold, no_operands, publish
from fpsim.state.state import State

__all__ = ["Core", "Evaluate", "HasCore", "Operand", "Out", "core_of"]

Operand = Array | Scalar
Out = Array | Carrier | None
#: Values and flags of an elementwise operation; the arguments are those of `apply`.
Evaluate = Callable[..., tuple[Carrier, int]]

#: Constants that a context keeps.
_CONSTANTS = 256


class _Constants:
    """Python numbers as carriers under one object of settings, which it keeps alive."""

    __slots__ = ("carriers", "nearest", "settings")

    def __init__(self, settings: Settings) -> None:
        self.settings, self.nearest = settings, settings.replace(rounding=RNE)
        self.carriers: dict[tuple[type, Scalar | str], Carrier] = {}


class CycleMeter(Protocol):
    """What adds up the cycles of operations, and may record them, or note their calls."""

    vector_cycles: int
    recording: Recording | None
    notes: CallNotes | None


class HasCore(Protocol):
    """A Context, as the modules below it know it."""

    core: Core

    def in_format(self, fmt: Format | str) -> HasCore:
        """The same in another format."""


class Core(State):
    """State of a context, and the way of an operation through it.

    context   whose Arrays the results are.
    """

    def __init__(
        self, context: HasCore, settings: Settings, source: BitSource, traps: Flags, *, count: bool
    ) -> None:
        super().__init__(settings, source, traps, count=count)
        self.context = context
        #: Whether Arrays may become ndarrays; contexts that share flags share it.
        self.asarray = AsArray("warn")
        #: Of the settings in force; settings may change (a device's do), and come back.
        self._constants = _Constants(settings)
        self._other_constants = {id(settings): self._constants}
        #: Cycles of a loop of each operation, and the elements that it takes, and who adds them up;
        #: of a machine's format.
        self.loops: Mapping[str, tuple[int, int]] | None = None
        self.meter: CycleMeter | None = None

    def constant(self, value: Scalar) -> Carrier:
        """A Python number in this format, to nearest even; its memory must not be written."""
        settings, constants = self.settings, self._constants
        if constants.settings is not settings:
            constants = self._other_constants.setdefault(id(settings), _Constants(settings))
            self._constants = constants
        # 0.0 and -0.0 are equal, their texts are not; a NaN is not even equal to itself.
        key = (type(value), value if value and value == value else repr(value))
        constant = constants.carriers.get(key)
        if constant is None:
            nearest = constants.nearest
            constant, _ = apply("convert", (scalar(value, nearest.native),), nearest, track=False)
            if len(constants.carriers) < _CONSTANTS:
                constants.carriers[key] = constant
        if self.meter is not None and self.meter.notes is not None:
            self.meter.notes.constants.append(constant)
        return constant

    def carriers(self, operands: Sequence[Operand], *, comparing: bool = False) -> list[Carrier]:
        """Carriers of operands, after the checks that nothing is promoted.

        comparing   a number beyond the largest finite value is no error.
        """
        carriers = []
        fmt = self.settings.format
        for value in operands:
            if isinstance(value, Array):
                if value.context is not self.context:
                    other = value.context.core.settings.format
                    if other is not fmt and other != fmt:
                        raise TypeError(_mixed(operands, fmt))
                carriers.append(value.carrier)
            elif isinstance(value, (bool, int, float)):
                # Infinities and NaN pass; Python compares an int with a float exactly.
                if not (comparing or -fmt.max <= value <= fmt.max or value - value != 0):
                    raise ValueError(_beyond(value, fmt))
                carriers.append(self.constant(value))
            elif isinstance(value, (np.ndarray, np.generic)):
                carriers.append(_held(value, fmt))
            else:
                raise TypeError(
                    f"{type(value).__name__} is not an Array of {fmt.name}; "
                    "convert with ctx.array(y)"
                )
        return carriers

    def rounded(
        self, name: str, carriers: list[Carrier], out: Out = None, evaluate: Evaluate = apply
    ) -> Array:
        """An elementwise operation with one rounding per element, published.

        evaluate   computes values and flags, as `fpsim.elementwise.apply.apply` does.

        Shapes    carriers broadcast.
        """
        settings = self.settings
        if settings.native and out is None and evaluate is apply and self.loops is None:
            return Array(native(name, carriers), self.context)  # it raises and counts nothing
        stochastic, target = settings.rounding.stochastic, None if out is None else self.target(out)
        bits = draw(self, common_shape(carriers)) if stochastic else NO_DRAW
        element_flags, memory = None, target
        operands: OperandsAt = no_operands
        if self._traps or self.counts is not None:  # nothing is written before the flags are known
            shape = common_shape(carriers)
            if target is not None:
                check_out(target, shape, settings.format.carrier, carriers)
            element_flags, memory = np.zeros(shape, np.uint8), None
            operands = broadcast_operands(carriers, shape)
        values, flags = evaluate(
            name, carriers, settings, out=memory, element_flags=element_flags, bits=bits
        )
        values = publish(
            self, name, values, flags, element_flags, operands, target, advances=stochastic
        )
        if self.loops is not None and self.meter is not None:
            cycles, elements = self.loops[name]
            self.meter.vector_cycles += cycles * -(-values.size // elements)
            if self.meter.recording is not None:
                kind = OPERATION if evaluate is apply else FUNCTION
                self.meter.recording.note(name, settings, carriers, values, flags, kind)
                if evaluate not in (apply, elementary.evaluate):
                    self.meter.recording.refuse()
            if self.meter.notes is not None:
                self.meter.notes.note(
                    carriers, (values,), rounded_again(self, name, carriers, values, evaluate),
                    (int(bits.number),) if stochastic else (),
                )
        return out if isinstance(out, Array) else Array(values, self.context)

    def exact(
        self, name: str, carriers: list[Carrier], values: Carrier, element_flags: ElementFlags,
        out: Out = None, again: Again | None = None, kind: str = "",
    ) -> Array:
        """An elementwise operation that rounds nothing, computed in new memory; published.

        again    runs it again, if it raises nothing.
        kind     what a recording takes it for; by default for nothing that it knows.
        """
        target = self.target(out)
        if target is not None:
            check_out(target, values.shape, self.format.carrier, carriers)
        values = publish(
            self, name, values, fold(element_flags), element_flags if self.watched else None,
            broadcast_operands(carriers, values.shape), target,
        )
        if self.loops is not None and self.meter is not None:
            cycles, elements = self.loops[name]
            self.meter.vector_cycles += cycles * -(-values.size // elements)
            if self.meter.recording is not None and kind:
                self.meter.recording.note(name, self.settings, carriers, values, 0, kind)
            elif self.meter.recording is not None:
                self.meter.recording.refuse()
            if self.meter.notes is not None:
                if again is None or self.watched:
                    self.meter.notes.refuse()
                else:
                    self.meter.notes.note(carriers, (values,), again)
        return self.wrapped(values, out)

    def signed(self, name: str, carrier: Carrier, out: Out = None) -> Array:
        """negative or absolute: the sign bit alone changes, nothing is raised."""
        settings = self.settings
        values = comparisons.with_sign(name, carrier, settings)

        def again(*_: object) -> bool:
            values[...] = comparisons.with_sign(name, carrier, settings)
            return True

        return self.exact(name, [carrier], values, np.zeros(carrier.shape, np.uint8), out, again)

    def compare(
        self, name: str, x: Operand, y: Operand, signalling: bool | None = None
    ) -> NDArray[np.bool_]:
        """Truth values of a relation; by default as an operator raises INVALID (§5.11)."""
        a, b = self.carriers((x, y), comparing=True)
        if signalling is None:
            signalling = comparisons.SIGNALLING[name]
        truth, flags = comparisons.compare(name, a, b, self.settings, signalling)
        publish(
            self, name, truth, fold(flags), flags if self.watched else None,
            broadcast_operands([a, b], truth.shape), in_format=False,
        )
        if self.meter is not None and self.meter.notes is not None:
            self.meter.notes.refuse()
        return truth

    def target(self, out: Out) -> Carrier | None:
        """The memory of `out`, which must have this context's format."""
        if isinstance(out, (Format, str)):
            raise TypeError(
                f"out={out} is a format; out= is memory for the result, its format is to={out}"
            )
        if not isinstance(out, Array):
            return out
        fmt, settings = self.settings.format, out.context.core.settings
        if settings.format is not fmt and settings.format != fmt:
            raise TypeError(f"out is {settings.format}, this context computes {fmt}")
        return out.carrier

    def checked_target(self, out: Out, shape: Shape) -> Carrier | None:
        """The same, refused unless it takes a result of this shape."""
        target = self.target(out)
        if target is not None:
            check_out(target, shape, self.format.carrier)
        return target

    def wrapped(self, values: Carrier, out: Out = None) -> Array:
        """A published result as an Array: `out` itself, if that is one."""
        return out if isinstance(out, Array) else Array(values, self.context)


def core_of(x: Any, context: HasCore | None = None, name: str = "x") -> Core:
    """Of the context that computes: the one that is named, else that of an Array.

    Raises    TypeError for what is no Array, and for what is no context.
    """
    if not isinstance(x, Array):
        kind = type(x).__name__
        raise TypeError(f"{name} is {kind}, not an Array; convert it with ctx.array({name})")
    core = getattr(x.context if context is None else context, "core", None)
    if not isinstance(core, Core):
        raise TypeError(f"context={context!r} is not a Context; use fp.Context(format), or None")
    return core


#: Beyond it not every integer is a binary64 number, and comparing the two would round.
_WHOLE = 2**53


def _held(value: NDArray[Any] | np.generic, fmt: Format) -> Carrier:
    """numpy's numbers as a carrier, where the format holds each of them: nothing is rounded."""
    array = codes.unmasked(value)
    kind = array.dtype
    held = kind.kind in "biuf" and kind.itemsize <= 8 and kind.isnative
    if held and kind.kind in "iu":
        held = bool(((array <= _WHOLE) & (array >= -_WHOLE)).all())
    if held:
        with np.errstate(all="ignore"):
            carrier: Carrier = array.astype(fmt.carrier)
            same = (carrier == array) | ((carrier != carrier) & (array != array))
        held = bool((same & codes.is_held(carrier, fmt)).all())
    if not held:
        shown = f"an array of {kind}" if array.ndim else f"np.{kind} {value!s}"
        raise TypeError(
            f"{shown} is not an Array of {fmt.name} and has values that it does not hold; "
            "nothing is rounded in silence: convert with ctx.array(y)"
        )
    return carrier


def _beyond(value: Scalar, fmt: Format) -> str:
    text = f"{value:g}" if isinstance(value, float) or abs(value) < 10**300 else "an integer"
    if text != "an integer" and float(text) != value:
        text = repr(value)
    largest = f"{fmt.max:g}"
    if float(largest) != fmt.max and fmt.max < 1e16:
        largest = repr(fmt.max)
    return f"{text} is beyond {fmt.name} (largest {largest}); round it yourself: ctx.array({text})"


def _mixed(operands: Sequence[Any], fmt: Format) -> str:
    names = ["x", "y", "z", *(f"operand {i}" for i in range(4, len(operands) + 1))]
    arrays = [(n, o.format) for n, o in zip(names, operands, strict=False) if isinstance(o, Array)]
    other = next((n, f) for n, f in arrays if f != fmt)
    first = next(((n, f) for n, f in arrays if f == fmt), ("the context", fmt))
    pair = sorted((first, other)) if first[0] in names else [first, other]
    text = " and ".join(f"{n} is {f.name}" for n, f in pair)
    return f"{text}; fpsim never promotes. Convert one: {other[0]}.to({fmt.name.upper()})."
