"""Optimisers: pure update rules, and the applying of gradients around them.

A rule computes in one format, by default the variable's own; every operation in it is a device
operation with one rounding, so stochastic rounding of parameters happens here.

Source    tf.train.MomentumOptimizer; Graphcore's TensorFlow 1 tutorial on half precision.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from fpsim.array import Array
from fpsim.formats import Format
from ipu.learn.tensor import Tensor, gradients
from ipu.learn.variables import Variable
from ipu.machine.device import Device

__all__ = ["SGD", "Slots", "Step", "Update", "compute_gradients"]

#: The optimiser's memory of each variable, by the variable's name.
Slots = Mapping[str, tuple[Array, ...]]


class Step(NamedTuple):
    """What a rule makes of one variable: direction times rate is the change subtracted from it."""

    direction: Array
    change: Array
    values: Array
    slots: tuple[Array, ...]


class Update(NamedTuple):
    """A variable's step: what was meant to happen, and what the format made of it."""

    variable: Variable
    direction: Array
    change: Array
    before: Array
    after: Array


Observer = Callable[[Update], None]


def compute_gradients(loss: Tensor, variables: Sequence[Variable]) -> list[tuple[Array, Variable]]:
    """(gradient, variable) for each variable, in the variable's format.

    Raises    ValueError for a variable that the loss does not depend on.
    """
    one = loss.device.context(loss.dtype).constant(1.0)
    pairs = []
    for gradient, variable in zip(gradients(loss, variables, one), variables, strict=True):
        if gradient is None:
            raise ValueError(f"the loss does not depend on {variable.name}; leave it out")
        pairs.append((gradient, variable))
    return pairs


@dataclass(frozen=True)
class SGD:
    """Stochastic gradient descent: v = momentum · v + g, w = w - rate · v.

    format    in which the rule computes and keeps v; None: the variable's.

    Rounding  each product, sum and difference once; w once more into its own format if narrower.
    """

    rate: float
    momentum: float = 0.0
    format: Format | None = None

    def __post_init__(self) -> None:
        if not (math.isfinite(self.rate) and self.rate > 0):
            raise ValueError(f"rate={self.rate} is no learning rate; use a finite positive number")
        if not 0 <= self.momentum < 1:
            raise ValueError(f"momentum={self.momentum} is out of range; use 0 up to below 1")

    def rule(
        self, device: Device, w: Array, g: Array, slots: tuple[Array, ...], rate: float
    ) -> Step:
        """One step from w, with gradient g."""
        v = g
        if self.momentum:
            if slots:
                v = device.add(device.multiply(slots[0], self.momentum), g)
            slots = (v,)
        change = device.multiply(v, rate)
        return Step(v, change, device.subtract(w, change), slots)

    def apply_gradients(
        self,
        pairs: Sequence[tuple[Array, Variable]],
        slots: Slots,
        *,
        rate: float | None = None,
        observe: Observer | None = None,
    ) -> dict[str, tuple[Array, ...]]:
        """Change each variable by its gradient; the new slots.

        Nothing changes if a trap fires: variables take their values after all rules have run.
        """
        rate = self.rate if rate is None else rate
        after: dict[str, tuple[Array, ...]] = dict(slots)
        updates = []
        for gradient, variable in pairs:
            fmt = self.format or variable.dtype
            if variable.name not in slots:
                _warn_of_underflow(rate, fmt)
            device = variable.device
            with device.naming(f"{variable.layer}/update"):
                step = self.rule(
                    device, device.cast(variable.array, fmt), device.cast(gradient, fmt),
                    slots.get(variable.name, ()), rate,
                )  # fmt: skip
                new = device.cast(step.values, variable.dtype)
            after[variable.name] = step.slots
            updates.append(Update(variable, step.direction, step.change, variable.array, new))
        for update in updates:
            update.variable.assign(update.after)
            if observe is not None:
                observe(update)
        return after

    def minimize(
        self, loss: Tensor, variables: Sequence[Variable], slots: Slots
    ) -> dict[str, tuple[Array, ...]]:
        """compute_gradients, then apply_gradients."""
        return self.apply_gradients(compute_gradients(loss, variables), slots)

    def __str__(self) -> str:
        return f"SGD(rate={self.rate:g}, momentum={self.momentum:g})"


def _warn_of_underflow(rate: float, fmt: Format) -> None:
    """A learning rate that is subnormal has lost digits; one that is zero trains nothing."""
    if rate < fmt.smallest_normal:
        lost = "rounds to 0" if rate <= fmt.smallest_subnormal / 2 else "is subnormal"
        warnings.warn(
            f"learning rate {rate:g} {lost} in {fmt.name}; divide the gradients instead, or keep "
            "the parameters in binary32",
            RuntimeWarning,
            stacklevel=3,
        )
