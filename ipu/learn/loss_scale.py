"""Loss scaling: immutable values that scale the loss, undo it, and return their successor.

Two ways back (routes): the gradients are divided before they are applied, or, where the update is
linear in the gradient (SGD with or without momentum), the learning rate is divided instead.

Source    Micikevicius et al. 2018; Graphcore's TensorFlow 1 tutorial on half precision.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from fpsim.array import Array
from fpsim.flags import Flags, FloatingPointTrap
from ipu.learn import ops
from ipu.learn.tensor import Tensor
from ipu.learn.variables import Variable
from ipu.machine.device import Device

__all__ = ["GRADIENTS", "LEARNING_RATE", "LossScale", "NoLossScale", "StaticLossScale",
           "find_loss_scale"]  # fmt: skip

GRADIENTS, LEARNING_RATE = "gradients", "learning_rate"

Pairs = Sequence[tuple[Array, Variable]]


@dataclass(frozen=True)
class LossScale:
    """The interface: by default no scaling at all."""

    @property
    def value(self) -> float:
        """The factor in use now."""
        return 1.0

    def scale(self, loss: Tensor) -> Tensor:
        """The loss, multiplied; binary32."""
        return loss

    def unscale(self, device: Device, pairs: Pairs) -> Pairs:
        """The gradients that the optimiser shall see."""
        return pairs

    def learning_rate(self, rate: float) -> float:
        """The learning rate that the optimiser shall use."""
        return rate

    def successor(self, pairs: Pairs) -> LossScale:
        """The loss scale of the next step, after seeing these gradients."""
        return self


@dataclass(frozen=True)
class NoLossScale(LossScale):
    """The loss as it is."""

    def __str__(self) -> str:
        return "none"


@dataclass(frozen=True)
class StaticLossScale(LossScale):
    """A constant factor.

    factor    finite and positive; a power of two scales without rounding.
    route     "gradients": each gradient is divided, in its own format, so a binary16 gradient may
              underflow again; "learning_rate": the learning rate is divided, for optimisers whose
              update is linear in the gradient; momentum is then kept scaled.

    >>> StaticLossScale(256.0, route="learning_rate").learning_rate(0.01)
    3.90625e-05
    """

    factor: float
    route: str = GRADIENTS

    def __post_init__(self) -> None:
        if isinstance(self.factor, bool) or not isinstance(self.factor, (int, float)):
            raise TypeError(f"factor={self.factor!r} is not a number; give one, for instance 256")
        if not (math.isfinite(self.factor) and self.factor > 0):
            raise ValueError(f"factor={self.factor} is no loss scale; use a finite positive number")
        if self.route not in (GRADIENTS, LEARNING_RATE):
            raise ValueError(
                f"route={self.route!r} is not known; use {GRADIENTS} or {LEARNING_RATE}"
            )

    @property
    def value(self) -> float:
        return float(self.factor)

    def scale(self, loss: Tensor) -> Tensor:
        return ops.scale(loss, factor=self.value)

    def unscale(self, device: Device, pairs: Pairs) -> Pairs:
        if self.route != GRADIENTS:
            return pairs
        unscaled = []
        for gradient, variable in pairs:
            with device.naming(f"{variable.layer}/unscale"):
                unscaled.append((device.divide(gradient, self.value), variable))
        return unscaled

    def learning_rate(self, rate: float) -> float:
        return rate / self.value if self.route == LEARNING_RATE else rate

    def __str__(self) -> str:
        return f"{self.value:g} ({self.route.replace('_', ' ')} divided)"


def find_loss_scale(
    step: Callable[[float], object], exponents: Sequence[int] = range(25)
) -> float | None:
    """The highest power of two that a step survives with the overflow trap armed.

    `step(scale)` runs on a device whose traps are armed; the scale is raised until it stops with
    an overflow. None if the first scale does already.

    Raises    FloatingPointTrap as it is, for any other exception.
    """
    best = None
    for exponent in exponents:
        try:
            step(2.0**exponent)
        except FloatingPointTrap as trap:
            if trap.flags & Flags.OVERFLOW:
                return best
            raise
        best = 2.0**exponent
    return best
