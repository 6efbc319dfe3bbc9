"""Loss scaling: immutable values that scale the loss, undo it, and return their successor.

Three ways back (routes): the gradients are divided before they are applied; or, where the update is
linear in the gradient (SGD with or without momentum), the learning rate is divided instead; or,
where it hardly depends on the gradient's size (RMSProp, Adam), only epsilon is scaled. In the
last two the optimiser's slots are kept scaled, and rescaled when the scale changes.

Source    Micikevicius et al. 2018; Graphcore's TensorFlow 1 tutorial on half precision; Graphcore's
          Keras, parameter_unscaling_optimizer.py.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import ClassVar

from fpsim.array import Array
from fpsim.elementwise.sizes import checked_number
from fpsim.records.formats import BINARY32, Format
from fpsim.state.processor import usual_arithmetic_in
from ipu import ops
from ipu.learn.address import updating
from ipu.learn.optim.base import Fate, Optimizer, Pairs, fate_of
from ipu.learn.tensor import TapeNode, Tensor
from ipu.machine.device import Device
from ipu.ops.listing import unlisted

__all__ = [
    "EPSILON", "GRADIENTS", "LEARNING_RATE", "LossScale", "NoLossScale", "Scaling",
    "StaticLossScale", "Statistic", "as_loss_scale", "check_share",
]


GRADIENTS, LEARNING_RATE, EPSILON = "gradients", "learning_rate", "epsilon"


_LEAST, _MOST = float(BINARY32.smallest_normal), float(BINARY32.max)


_ROUTES = (GRADIENTS, LEARNING_RATE, EPSILON)


class Statistic:
    """What a loss scale counts during one step; by default nothing."""

    def watch(self, node: TapeNode, gradient: Array) -> None:
        """Called with every gradient of the backward passes."""

    def collect(self, pairs: Pairs) -> None:
        """Called with the scaled gradients of each mini-batch."""


@dataclass(frozen=True)
class LossScale:
    """The interface: by default no scaling at all."""

    #: Fields that successors change; a state keeps these, and compares the others.
    moving: ClassVar[tuple[str, ...]] = ()

    @property
    def value(self) -> float:
        """The factor in use now."""
        return 1.0

    def check(
        self, optimizer: Optimizer, *, saturates: bool, formats: Collection[Format] = ()
    ) -> None:
        """Refuse an optimiser, or a machine whose overflows saturate, that it cannot work with.

        formats   of the optimiser's rules.
        """

    def limited(
        self, before: LossScale, optimizer: Optimizer, formats: Collection[Format]
    ) -> tuple[LossScale, str]:
        """This scale and ""; if its growth loses a constant, the value of before, and why."""
        return self, ""

    def scale(self, loss: Tensor) -> Tensor:
        """The loss, multiplied; binary32."""
        return loss

    def unscale(self, device: Device, pairs: Pairs) -> Pairs:
        """The gradients for the optimiser."""
        return pairs

    def optimizer(self, optimizer: Optimizer) -> Optimizer:
        """The optimiser for these gradients."""
        return optimizer

    @property
    def scales_slots(self) -> bool:
        """Whether the optimiser's slots are those of scaled gradients."""
        return False

    def statistic(self, scope: str = "") -> Statistic:
        """An observer for the next step; names of layers are those inside the scope."""
        return Statistic()

    def applies(self, pairs: Pairs) -> bool:
        """Whether these scaled gradients are good enough to be applied."""
        return True

    def successor(self, pairs: Pairs, statistic: Statistic) -> LossScale:
        """The loss scale of the next step, after seeing these scaled gradients."""
        return self


@dataclass(frozen=True)
class NoLossScale(LossScale):
    """No scaling."""

    def __str__(self) -> str:
        return "none"


@dataclass(frozen=True)
@usual_arithmetic_in()
class Scaling(LossScale):
    """A factor in use and a route back: the common fields of loss scales.

    factor    finite and positive; a power of two scales without rounding.
    route     "gradients": each gradient is divided by the factor, a binary32 number, and rounded
              once into its own format, so a binary16 gradient may underflow again;
              "learning_rate": the learning rate is divided, for optimisers whose update is linear
              in the gradient; "epsilon": epsilon is scaled, for RMSProp and Adam. In these two a
              scale is refused whose constant is zero or infinite in the format of the update.
    """

    factor: float
    route: str = GRADIENTS

    def __post_init__(self) -> None:
        if isinstance(self.factor, bool) or not isinstance(self.factor, (int, float)):
            raise TypeError(f"factor={self.factor!r} is not a number; give one, for instance 256")
        if not _LEAST <= self.factor <= _MOST:
            raise ValueError(
                f"factor={self.factor} is not a loss scale; use a finite positive number, "
                "normal in binary32"
            )
        if not isinstance(self.route, str) or self.route not in _ROUTES:
            raise ValueError(f"route={self.route!r} is not known; use {', '.join(_ROUTES)}")

    @property
    def value(self) -> float:
        return float(self.factor)

    def check(
        self, optimizer: Optimizer, *, saturates: bool, formats: Collection[Format] = ()
    ) -> None:
        wanted = {LEARNING_RATE: True, EPSILON: False}.get(self.route, optimizer.linear)
        if optimizer.linear != wanted:
            other = EPSILON if wanted else LEARNING_RATE
            raise ValueError(
                f"route={self.route!r} does not undo a loss scale for {optimizer}; "
                f"use route={other!r} or {GRADIENTS!r}"
            )
        lost = self._lost(optimizer, formats)
        if lost:
            raise ValueError(
                f"route={self.route!r} with a loss scale of {self.value:g} makes {lost}; "
                f"use a smaller scale, route={GRADIENTS!r}, or parameters in binary32"
            )

    def _lost(self, optimizer: Optimizer, formats: Collection[Format]) -> str:
        """The first constant that this scale makes zero or infinite; "" if there is none."""
        if not self.scales_slots:
            return ""
        scaled = self.optimizer(optimizer)
        for fmt in sorted(formats, key=lambda f: f.name):
            for name, value in scaled.constants(scaled.rate).items():
                fate = fate_of(value, fmt)
                if fate in (Fate.ZERO, Fate.INFINITE):
                    return f"the {name} {value:g}, which {fate.value} in {fmt.name}"
        return ""

    def limited(
        self, before: LossScale, optimizer: Optimizer, formats: Collection[Format]
    ) -> tuple[LossScale, str]:
        lost = self._lost(optimizer, formats) if self.value > before.value else ""
        if not lost:
            return self, ""
        reason = f"loss scale stays at {before.value:g}: {self.value:g} would make {lost}"
        return replace(self, factor=before.value), reason

    def scale(self, loss: Tensor) -> Tensor:
        with unlisted():  # the factor is the step's, not the program's
            return ops.scale(loss, factor=self.value)

    def unscale(self, device: Device, pairs: Pairs) -> Pairs:
        if self.scales_slots:
            return pairs
        unscaled = []
        for gradient, variable in pairs:
            with updating(variable, "unscale"):
                unscaled.append((device.unscale(gradient, self.value), variable))
        return unscaled

    def optimizer(self, optimizer: Optimizer) -> Optimizer:
        return optimizer.for_scaled(self.value) if self.scales_slots else optimizer

    @property
    def scales_slots(self) -> bool:
        return self.route != GRADIENTS

    def moved(self, by: float) -> float:
        """The factor times that; it stays where it would overflow.

        Raises    RuntimeError where it would fall below the normal numbers of binary32.
        """
        moved = self.value * by
        if moved < _LEAST:
            raise RuntimeError(
                f"loss scale {self.value:g} cannot fall any further, and gradients are still "
                "infinite, NaN or too large, so the loss scale is not the cause: look at the "
                "counters by layer (count=True)"
            )
        return moved if moved <= _MOST else self.value

    def __str__(self) -> str:
        undone = "epsilon scaled" if self.route == EPSILON else f"{self.route} divided"
        return f"{self.value:g} ({undone.replace('_', ' ')})"


@dataclass(frozen=True)
class StaticLossScale(Scaling):
    """A constant factor.

    >>> print(StaticLossScale(256.0, route="learning_rate"))
    256 (learning rate divided)
    >>> from ipu.learn.optim import SGD
    >>> StaticLossScale(256.0, "learning_rate").optimizer(SGD(0.01)).rate
    3.90625e-05
    """


def check_share(name: str, value: float) -> None:
    """Refuse what is not a share between 0 and 1."""
    if not 0 < checked_number(name, value) < 1:
        raise ValueError(f"{name}={value} is out of range; use a share between 0 and 1")


def as_loss_scale(loss_scale: LossScale | float | None) -> LossScale:
    """A loss scale as it is; a number is a static one, None none.

    >>> print(as_loss_scale(256), as_loss_scale(None))
    256 (gradients divided) none
    """
    if loss_scale is None:
        return NoLossScale()
    if isinstance(loss_scale, LossScale):
        return loss_scale
    if isinstance(loss_scale, (int, float)) and not isinstance(loss_scale, bool):
        return StaticLossScale(float(loss_scale))
    raise TypeError(
        f"loss_scale={loss_scale!r} is not a loss scale; use a number, None, or one of "
        "ipu.learn.loss_scale, for instance DynamicLossScale()"
    )
