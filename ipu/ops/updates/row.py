"""A row of the table of updates: the equation of one optimiser as one source computes it.

Source    docs/semantics.md §6 (orders and roundings of updates).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from inspect import Parameter, signature
from typing import Any, NamedTuple, Protocol

from fpsim.array import Array
from fpsim.records.evidence import Evidence
from fpsim.records.formats import BINARY32, Format
from ipu.machine.device import Device

__all__ = ["ALONE", "Around", "Moved", "Number", "Slots", "UpdateRow", "Updated", "Verbs", "widest"]

#: A value of the update's format, or a number that becomes a constant of it.
Number = Any
#: The memory of a variable, in the order of the row; None for a slot that the options do not need.
Slots = Sequence[Any]


class Updated(NamedTuple):
    """What an equation gives.

    value        the variable after the update, in its format.
    slots        the slots after it, in theirs.
    change       the last term of the variable, where the equation has one term.
    direction    the change before the learning rate.
    """

    value: Array
    slots: tuple[Any, ...]
    change: Array | None = None
    direction: Array | None = None


class Moved(Protocol):
    """Told of each sum that moves the variable."""

    def __call__(
        self, verb: str, before: Array, operands: Sequence[Array], factor: float, after: Array
    ) -> None:
        """`verb` is "add", "addcmul" or "addcdiv"; the term is factor times it of the operands."""


class Around(NamedTuple):
    """What a front end adds to an equation; nothing of it changes a value.

    constant    makes a number in a format, and tells of one that does not fit.
    watch       told of each result of an operation, and of its operands.
    moved       told of each sum that moves the variable.
    format      of every operation; None: the widest of its operands.
    """

    constant: Callable[[float, Format], Any] | None = None
    watch: Callable[[Array, Sequence[Array]], None] | None = None
    moved: Moved | None = None
    format: Format | None = None


#: Nothing is added.
ALONE = Around()


class Verbs:
    """A device's verbs in the words of one source."""

    def __init__(self, device: Device, around: Around) -> None:
        self.device, self.around = device, around
        self.constant: Callable[[float, Format], Any] = (
            around.constant or (lambda value, fmt: device.context(fmt).constant(value))
        )


def _of_device(device: Device, around: Around) -> Device:
    return device


@dataclass(frozen=True)
class UpdateRow:
    """One equation: a pure function of a variable w, its gradient g, its slots and numbers.

    A tensor is one call; an optimiser of several is a loop.

    equation    (verbs, w, g, slots, **numbers) -> Updated. A number that is an array is an operand:
                its value chooses nothing.
    slots       names of the slots, in order.
    rounding    the operations, in order.
    verbs       what the equation is written in: the device itself, where all formats are one.
    evidence    that an IPU computes it by these steps, and the `source` that says so.
    by_element  it looks at each element alone: it takes no norm of a tensor.

    >>> from fpsim import BINARY16
    >>> from ipu.ops.updates import find_update
    >>> device = Device()
    >>> w, g = (device.from_host([x], BINARY16) for x in (1.0, 0.5))
    >>> find_update("tensorflow descent")(device, w, g, (), rate=0.5).value.tolist()
    [0.75]
    """

    name: str
    equation: Callable[..., Updated]
    slots: tuple[str, ...]
    rounding: str
    source: str
    verbs: Callable[[Device, Around], Any] = _of_device
    evidence: Evidence = Evidence.INFERRED
    by_element: bool = True

    def __call__(
        self, device: Device, w: Array, g: Array, slots: Slots, around: Around = ALONE, /,
        **numbers: Number,
    ) -> Updated:
        """The variable and the slots after one update; nothing that is given changes."""
        return self.equation(self.verbs(device, around), w, g, slots, **numbers)

    @cached_property
    def numbers(self) -> tuple[str, ...]:
        """Names of the numbers and options of the equation."""
        parameters = signature(self.equation).parameters.values()
        return tuple(p.name for p in parameters if p.kind is Parameter.KEYWORD_ONLY)


def widest(*formats: Format) -> Format:
    """The narrowest format of the machine that holds the values of all of these.

    >>> from fpsim import BFLOAT16, BINARY16
    >>> print(widest(BINARY16, BFLOAT16), widest(BINARY16, BINARY16))
    binary32 binary16
    """
    first = formats[0]
    return first if all(fmt is first or fmt == first for fmt in formats) else BINARY32
