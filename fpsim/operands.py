"""Operands of a Context: which Arrays and numbers its operations take, and what comes back.

Nothing is promoted: an Array of another format is refused, a Python number becomes a constant of
the context's format.

Source    docs/semantics.md §3.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, cast

import numpy as np

from fpsim.array import Array, Computes
from fpsim.elementwise.apply import apply, common_shape
from fpsim.elementwise.inputs import Scalar, scalar
from fpsim.elementwise.sizes import checked_number
from fpsim.records.flags import Flags
from fpsim.records.formats import Format
from fpsim.records.rounding import RNE
from fpsim.records.settings import Settings
from fpsim.records.types import Carrier, ElementFlags, OperandsAt, Shape
from fpsim.state.bits import BitSource
from fpsim.state.draws import NO_DRAW, draw
from fpsim.state.publish import broadcast_operands, check_out, fold, no_operands, publish
from fpsim.state.state import State

__all__ = ["ContextOperands", "Operand", "Out", "context_of"]

Operand = Array | Scalar
Out = Array | Carrier | None
#: Values and flags of an elementwise operation; the arguments are those of `apply`.
Evaluate = Callable[..., tuple[Carrier, int]]

#: Constants that a context keeps.
_CONSTANTS = 256


class _Constants:
    """Python numbers as carriers under one object of settings, which it keeps alive."""

    __slots__ = ("carriers", "settings")

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.carriers: dict[tuple[type, Scalar | str], Carrier] = {}


class ContextOperands(State):
    """The half of a Context that turns operands into carriers, and carriers into Arrays."""

    def __init__(self, settings: Settings, source: BitSource, traps: Flags, *, count: bool) -> None:
        super().__init__(settings, source, traps, count=count)
        #: Of the settings in force; settings may change (a device's do), and come back.
        self._constants = _Constants(settings)
        self._other_constants = {id(settings): self._constants}

    def constant(self, value: Scalar) -> Array:
        """A Python number in this format, to nearest even: no flags, no random bits.

        Beyond the largest finite value it becomes what the overflow policy says.
        """
        return self.wrapped(self._constant(checked_number("value", value)).copy())

    def _constant(self, value: Scalar) -> Carrier:
        """The same without an Array; its memory is kept and must not be written."""
        settings, kept = self.settings, self._constants
        if kept.settings is not settings:
            kept = self._other_constants.setdefault(id(settings), _Constants(settings))
            self._constants = kept
        # 0.0 and -0.0 are equal, their texts are not; a NaN is not even equal to itself.
        key = (type(value), value if value and value == value else repr(value))
        constant = kept.carriers.get(key)
        if constant is None:
            nearest = settings.replace(rounding=RNE)
            constant, _ = apply("convert", (scalar(value, nearest.native),), nearest, track=False)
            if len(kept.carriers) < _CONSTANTS:
                kept.carriers[key] = constant
        return constant

    def carriers(self, operands: Sequence[Operand], *, comparing: bool = False) -> list[Carrier]:
        """Carriers of operands, after the checks that nothing is promoted.

        comparing   a number beyond the largest finite value is no error.
        """
        carriers = []
        fmt = self.settings.format
        for value in operands:
            if isinstance(value, Array):
                other = value.context.settings.format
                if other is not fmt and other != fmt:
                    raise TypeError(_mixed(operands, fmt))
                carriers.append(value.carrier)
            elif isinstance(value, (bool, int, float)):
                # Infinities and NaN pass; Python compares an int with a float exactly.
                if not (comparing or -fmt.max <= value <= fmt.max or value - value != 0):
                    raise ValueError(_beyond(value, fmt))
                carriers.append(self._constant(value))
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
        shape, stochastic = common_shape(carriers), self.settings.rounding.stochastic
        target = None if out is None else self._target(out)
        bits = draw(self, shape) if stochastic else NO_DRAW
        element_flags, memory = None, target
        operands: OperandsAt = no_operands
        if self.watched:  # nothing may be written before the flags are known
            if target is not None:
                check_out(target, shape, self.format.carrier, carriers)
            element_flags, memory = np.zeros(shape, np.uint8), None
            operands = broadcast_operands(carriers, shape)
        values, flags = evaluate(
            name, carriers, self.settings, out=memory, element_flags=element_flags, bits=bits
        )
        values = publish(
            self, name, values, flags, element_flags, operands, target, advances=stochastic
        )
        return self.wrapped(values, out)

    def exact(
        self, name: str, carriers: list[Carrier], values: Carrier, element_flags: ElementFlags,
        out: Out = None,
    ) -> Array:  # fmt: skip
        """An elementwise operation that rounds nothing, computed in new memory; published."""
        target = self._target(out)
        if target is not None:
            check_out(target, values.shape, self.format.carrier, carriers)
        values = publish(
            self, name, values, fold(element_flags), element_flags if self.watched else None,
            broadcast_operands(carriers, values.shape), target,
        )  # fmt: skip
        return self.wrapped(values, out)

    def _target(self, out: Out) -> Carrier | None:
        """The memory of `out`, which must have this context's format."""
        if not isinstance(out, Array):
            return out
        if out.format != self.format:
            raise TypeError(f"out is {out.format}, this context computes {self.format}")
        return out.carrier

    def checked_target(self, out: Out, shape: Shape) -> Carrier | None:
        """The same, refused unless it takes a result of this shape."""
        target = self._target(out)
        if target is not None:
            check_out(target, shape, self.format.carrier)
        return target

    def wrapped(self, values: Carrier, out: Out = None) -> Array:
        """A published result as an Array: `out` itself, if that is one."""
        # Every context has the operations too; this half of it is written without them.
        return out if isinstance(out, Array) else Array(values, cast(Computes, self))


def context_of(x: Any, context: ContextOperands | None = None, name: str = "x") -> ContextOperands:
    """The context that computes: the one that is named, else that of an Array.

    Raises    TypeError for what is no Array, and for what is no context.
    """
    if not isinstance(x, Array):
        kind = type(x).__name__
        raise TypeError(f"{name} is {kind}, not an Array; convert it with ctx.array({name})")
    if context is not None and not isinstance(context, ContextOperands):
        raise TypeError(f"context={context!r} is not a Context; use fp.Context(format), or None")
    assert isinstance(x.context, ContextOperands)
    return context or x.context


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
