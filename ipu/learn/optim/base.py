"""The common code of optimisers: gradients of a loss, and their application by a pure rule.

A rule computes in one format, by default the variable's own; every operation in it is a device
operation with one rounding, so stochastic rounding of parameters happens here. Constants (rates,
decays) are rounded to nearest into that format.

Source    tf.train.Optimizer: compute_gradients, apply_gradients, minimize.
"""

from __future__ import annotations

import math
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import MISSING, fields
from enum import Enum
from typing import Any, ClassVar, NamedTuple, Protocol, TypeVar

from fpsim.array import Array
from fpsim.elementwise.sizes import checked_number
from fpsim.records.formats import Format, find_number_format
from fpsim.state.processor import usual_arithmetic
from ipu.learn.address import rescaling, updating
from ipu.learn.tensor import Tensor, Watch, contributions, gradients
from ipu.learn.variables import Variable
from ipu.machine.device import Device
from ipu.ops.saved import Packed
from ipu.ops.updates import UPDATES, Updated
from ipu.ops.updates.observed import UNOBSERVED, Observed
from ipu.ops.updates.together import Together, UpdateRequest, together_on

__all__ = [
    "Asked", "Fate", "Observer", "Optimizer", "Pairs", "Slots", "Step", "TableOptimizer", "Update",
    "check_positive",
    "check_rate", "check_share", "compute_contributions", "compute_gradients", "fate_of",
]

T = TypeVar("T")

#: Gradients with the variables that they are of.
Pairs = Sequence[tuple[Array, Variable]]
#: The optimiser's memory of each variable, by the variable's name.
Slots = Mapping[str, tuple[Array, ...]]


class Step(NamedTuple):
    """The step of a rule for one variable.

    direction    before the learning rate.
    change       subtracted from the variable.
    """

    direction: Array
    change: Array
    values: Array
    slots: tuple[Array, ...]

    @classmethod
    def of(cls, updated: Updated, more: Sequence[Array] = ()) -> Step:
        """What a row of the table of updates gave, and slots that it does not know."""
        assert updated.direction is not None
        assert updated.change is not None
        return cls(
            updated.direction, updated.change, updated.value, (*updated.slots, *more)
        )


class Update(NamedTuple):
    """A variable's step: the exact intention of the rule and the values before and after.

    gradient, slots    that the rule was given.
    """

    variable: Variable
    direction: Array
    change: Array
    before: Array
    after: Array
    gradient: Array
    slots: tuple[Array, ...]


class Observer(Protocol):
    """Called with the update of every variable, after all rules and before any change."""

    def __call__(self, update: Update, /) -> Any: ...


def compute_gradients(
    loss: Tensor, variables: Sequence[Variable], watch: Watch | None = None
) -> list[tuple[Array, Variable]]:
    """(gradient, variable) for each variable, in the variable's format.

    watch     called with every gradient that a backward rule computes.
    Raises    ValueError for a variable that the loss does not depend on.
    """
    return [(_required(g, v), v) for g, v in _backward(gradients, loss, variables, watch)]


def compute_contributions(
    loss: Tensor, variables: Sequence[Variable], watch: Watch | None = None
) -> list[tuple[list[Array], Variable]]:
    """As `compute_gradients`, with the summands of each gradient instead of their sum."""
    return [(_required(g, v), v) for g, v in _backward(contributions, loss, variables, watch)]


def _backward(
    rule: Callable[..., list[T]], loss: Tensor, variables: Sequence[Variable], watch: Watch | None
) -> Iterator[tuple[T, Variable]]:
    one = loss.device.context(loss.dtype).constant(1.0)
    return zip(rule(loss, variables, one, watch), variables, strict=True)


def _required(gradient: T | None, variable: Variable) -> T:
    if gradient is None or (isinstance(gradient, list) and not gradient):
        raise ValueError(f"the loss does not depend on {variable.name}; leave it out")
    return gradient


class Optimizer(ABC):
    """A pure rule, and its application to variables.

    rate      the learning rate.
    format    in which the rule computes and keeps its slots, or its name; None: the variable's.
    """

    rate: float
    format: Format | None
    #: Whether the change is linear in the gradients: the learning rate can undo a loss scale.
    linear: ClassVar[bool] = False
    #: Whether each element's step depends on that element alone, so that the rule can be sharded.
    elementwise: ClassVar[bool] = True
    #: By which power of the gradients' scale each slot grows.
    powers: ClassVar[tuple[int, ...]] = ()

    @abstractmethod
    def rule(
        self, device: Device, w: Array, g: Array, slots: tuple[Array, ...], rate: float
    ) -> Step:
        """One step from w with gradient g, both in the rule's format; no slots at first."""

    def _find_format(self) -> None:
        """Called once a rule is created: from then on `format` is no text."""
        if self.format is not None:
            object.__setattr__(self, "format", find_number_format(self.format))

    @abstractmethod
    def for_scaled(self, scale: float) -> Optimizer:
        """The optimiser whose change for gradients · scale is that of this one for gradients."""

    @usual_arithmetic
    def rescaled(self, device: Device, slots: Slots, ratio: float) -> dict[str, tuple[Array, ...]]:
        """Slots of scaled gradients, after their scale has changed by that ratio."""
        after = {}
        for name, arrays in slots.items():
            with rescaling(name):
                after[name] = tuple(
                    device.multiply(slot, ratio**power) if power else slot
                    for slot, power in zip(arrays, self.powers, strict=False)
                )
        return after

    def constants(self, rate: float) -> dict[str, float]:
        """Numbers that the rule works with; they should be normal in its format."""
        return {"learning rate": rate}

    def compute_gradients(
        self, loss: Tensor, variables: Sequence[Variable]
    ) -> list[tuple[Array, Variable]]:
        """(gradient, variable) for each variable, in the variable's format."""
        return compute_gradients(loss, variables)

    def apply_gradients(
        self, pairs: Pairs, slots: Slots, *, rate: float | None = None,
        observe: Observer | None = None,
    ) -> dict[str, tuple[Array, ...]]:
        """Change each variable by its gradient; the new slots.

        Nothing changes if a trap fires or the observer raises: variables take their values after
        all rules have run and the observer has returned from every update.

        Raises    TypeError for a gradient that is neither in its variable's format nor in the
                  rule's.
        """
        rate = self.rate if rate is None else rate
        self._warn(rate, {self.format or v.dtype for _, v in pairs if v.name not in slots})
        try:
            return self._applied(pairs, slots, rate, observe)
        except BaseException:
            if pairs and (together := together_on(pairs[0][1].device)) is not None:
                together.forget()
            raise

    @usual_arithmetic
    def _applied(
        self, pairs: Pairs, slots: Slots, rate: float, observe: Observer | None
    ) -> dict[str, tuple[Array, ...]]:
        after = dict(slots)
        new, updates = [], []
        together = self._together(pairs)
        is_named = together is not None and together.names()
        observed = UNOBSERVED if observe is None else Observed(change=True)
        for gradient, variable in pairs:
            before = slots.get(variable.name, ())
            if together is None:
                step, values = self._step(gradient, variable, before, rate)
            else:
                with updating(variable) if is_named else nullcontext():
                    step = self._joined(together, gradient, variable, before, rate, observed)
                values = step.values
                if variable.device.counts is not None:
                    together.run()  # counts stay in the order of all operations
            after[variable.name] = step.slots
            new.append((variable, values))
            if observe is not None:
                updates.append(
                    Update(variable, step.direction, step.change, variable.array, values,
                           gradient, before)
                )
            del step  # what only observers read is as large as the variables
        if together is not None:
            together.run()
        if observe is not None:
            for update in updates:
                observe(update)
        for variable, values in new:
            variable.assign(values)
        return after

    def _together(self, pairs: Pairs) -> Together | None:
        """Where the updates of these variables wait to be computed in one call, if they can."""
        return None

    def _joined(
        self, together: Together, gradient: Array, variable: Variable, slots: tuple[Array, ...],
        rate: float, observed: Observed,
    ) -> Step:
        """A step whose values are there after `together.run`."""
        raise NotImplementedError

    def _step(
        self, gradient: Array, variable: Variable, slots: tuple[Array, ...], rate: float
    ) -> tuple[Step, Array]:
        """A step in the rule's format, and the new values in the variable's."""
        fmt = self.format or variable.dtype
        if gradient.format not in (variable.dtype, fmt):
            raise TypeError(
                f"the gradient of {variable.name} is {gradient.format}, the variable "
                f"{variable.dtype}; cast it in apply_gradients (as CastGradientsSGD does), or let "
                f"the rule compute in its format: format={gradient.format.name.upper()}"
            )
        device = variable.device
        with updating(variable):
            w, g = device.cast(variable.array, fmt), device.cast(gradient, fmt)
            step = self.rule(device, w, g, slots, rate)
            return step, device.cast(step.values, variable.dtype)

    def _warn(self, rate: float, formats: set[Format]) -> None:
        """A subnormal constant has lost digits; zero and infinity have lost their meaning."""
        for fmt in sorted(formats, key=lambda f: f.name):
            for name, value in self.constants(rate).items():
                fate = fate_of(value, fmt)
                if fate:
                    advice = "scale the loss less" if value > 1 else _ADVICE[name]
                    warnings.warn(
                        f"{name} {value:g} {fate.value} in {fmt.name}; {advice}, or keep the "
                        "parameters in binary32",
                        RuntimeWarning,
                        stacklevel=3,
                    )

    def __str__(self) -> str:
        """Its name and every choice that differs from the default."""
        shown = []
        for field in fields(self):  # type: ignore[arg-type]
            value = getattr(self, field.name)
            if field.default is MISSING or value != field.default:
                shown.append(f"{field.name}={value}")
        return f"{type(self).__name__}({', '.join(shown)})"

    def minimize(
        self, loss: Tensor, variables: Sequence[Variable], slots: Slots
    ) -> dict[str, tuple[Array, ...]]:
        """compute_gradients, then apply_gradients."""
        return self.apply_gradients(self.compute_gradients(loss, variables), slots)


class Asked(NamedTuple):
    """What a rule asks of a row of the table of updates.

    more    makes the slots that the row does not know, after it.
    """

    row: str
    slots: tuple[Array, ...]
    numbers: dict[str, Any]
    more: Callable[[], Sequence[Array]] = tuple


class TableOptimizer(Optimizer):
    """An optimiser whose rule is a row of the table of updates."""

    @abstractmethod
    def asked(self, device: Device, g: Array, slots: tuple[Array, ...], rate: float) -> Asked:
        """The row, and what it is given; no slots at first."""

    def rule(
        self, device: Device, w: Array, g: Array, slots: tuple[Array, ...], rate: float
    ) -> Step:
        asked = self.asked(device, g, slots, rate)
        updated = UPDATES[asked.row](device, w, g, asked.slots, **asked.numbers)
        return Step.of(updated, asked.more())

    def _together(self, pairs: Pairs) -> Together | None:
        if not pairs or type(self).rule is not TableOptimizer.rule:
            return None
        device = pairs[0][1].device
        for gradient, variable in pairs:
            fmt = variable.dtype
            held = gradient.context.core.settings.format
            if (
                variable.device is not device or (held is not fmt and held != fmt)
                or (self.format is not None and self.format != fmt)
            ):
                return None
        return together_on(device)

    def _joined(
        self, together: Together, gradient: Array, variable: Variable, slots: tuple[Array, ...],
        rate: float, observed: Observed,
    ) -> Step:
        device, w = variable.device, variable.array
        if isinstance(gradient, Packed):
            gradient = gradient.array()
        asked = self.asked(device, gradient, slots, rate)
        row = UPDATES[asked.row]
        joined = together.add(UpdateRequest(
            row, w, gradient, asked.slots, asked.numbers, observed=observed
        ))
        if joined is None:
            return Step.of(
                row(device, w, gradient, asked.slots, **asked.numbers), asked.more()
            )
        value, after, *_ = joined[0]
        if observed.change:
            return Step.of(joined[0], asked.more())
        # Nobody observes the change: it stays where it was computed.
        return Step(value, value, value, (*after, *asked.more()))


_ADVICE = {
    "learning rate": "divide the gradients instead",
    "epsilon": "choose a larger one (the half-precision tutorial takes 1e-4)",
    "initial": "start from 0",
    "weight decay": "choose a larger one",
}


class Fate(Enum):
    """What a format makes of a constant that it does not hold as a normal number."""

    ZERO = "rounds to 0"
    SUBNORMAL = "is subnormal"
    INFINITE = "overflows"


def fate_of(value: float, fmt: Format) -> Fate | None:
    """The fate of a constant in the format; None where it is zero or a normal number.

    >>> from fpsim import BINARY16
    >>> fate_of(1e-8, BINARY16), fate_of(0.1, BINARY16)
    (<Fate.ZERO: 'rounds to 0'>, None)
    """
    if value > fmt.max:
        return Fate.INFINITE
    if not 0 < value < fmt.smallest_normal:
        return None
    return Fate.ZERO if value <= fmt.smallest_subnormal / 2 else Fate.SUBNORMAL


def check_rate(rate: float) -> None:
    """Refuse a learning rate that is not finite and positive."""
    if not (math.isfinite(checked_number("rate", rate)) and rate > 0):
        raise ValueError(f"rate={rate} is not a learning rate; use a finite positive number")


def check_share(name: str, value: float) -> None:
    """Refuse a decay of a moving average that is not from 0 to below 1."""
    if not 0 <= checked_number(name, value) < 1:
        raise ValueError(f"{name}={value} is out of range; use 0 up to below 1")


def check_positive(name: str, value: float) -> None:
    """Refuse a number that is negative or not finite."""
    if not (math.isfinite(checked_number(name, value)) and value >= 0):
        raise ValueError(f"{name}={value} is out of range; use a finite number from 0 on")
