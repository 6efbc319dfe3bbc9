"""Stochastic gradient descent, plain, with momentum, and with Nesterov's.

Source    tf.train.GradientDescentOptimizer, tf.train.MomentumOptimizer as TensorFlow compiles them
          (tf2xla, ResourceApplyGradientDescent and ResourceApplyMomentum).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from fpsim.array import Array
from fpsim.records.formats import Format
from ipu.learn.optim.base import Observer, Optimizer, Pairs, Slots, Step, check_rate, check_share
from ipu.machine.device import Device

__all__ = ["SGD", "CastGradientsSGD"]


@dataclass(frozen=True)
class SGD(Optimizer):
    """Stochastic gradient descent: v = momentum · v + g, w = w - rate · v.

    With `nesterov`: w = w - (g · rate + (v · momentum) · rate), v the new one.

    format    in which the rule computes and keeps v; None: the variable's.

    Rounding  each product, sum and difference once; w once more into its own format if narrower.

    >>> from fpsim import BINARY32
    >>> from ipu.learn.variables import Variable
    >>> device = Device()
    >>> w = Variable(device.from_host([1.0], BINARY32), device, "layer/w")
    >>> slots = SGD(0.25, 0.5).apply_gradients([(device.from_host([2.0], BINARY32), w)], {})
    >>> w.array.values.tolist(), slots["layer/w"][0].values.tolist()
    ([0.5], [2.0])
    """

    rate: float
    momentum: float = 0.0
    format: Format | None = None
    nesterov: bool = False

    linear: ClassVar[bool] = True
    powers: ClassVar[tuple[int, ...]] = (1,)

    def __post_init__(self) -> None:
        check_rate(self.rate)
        check_share("momentum", self.momentum)
        if self.nesterov and not self.momentum:
            raise ValueError("nesterov=True needs momentum; give one, for instance momentum=0.9")

    def for_scaled(self, scale: float) -> SGD:
        return replace(self, rate=self.rate / scale)

    def rule(
        self, device: Device, w: Array, g: Array, slots: tuple[Array, ...], rate: float
    ) -> Step:
        v = g
        if self.momentum:
            if slots:
                v = device.add(device.multiply(slots[0], self.momentum), g)
            slots = (v,)
        change = device.multiply(v, rate)
        if self.nesterov:
            ahead = device.multiply(device.multiply(v, self.momentum), rate)
            change = device.add(device.multiply(g, rate), ahead)
        return Step(v, change, device.subtract(w, change), slots)


@dataclass(frozen=True)
class CastGradientsSGD(SGD):
    """SGD that casts each gradient to its variable's format first.

    For accumulators wider than the variables: apply_gradients is overridden, as users do.
    """

    def apply_gradients(
        self, pairs: Pairs, slots: Slots, *, rate: float | None = None,
        observe: Observer | None = None,
    ) -> dict[str, tuple[Array, ...]]:  # fmt: skip
        cast = [(v.device.cast(g, v.dtype), v) for g, v in pairs]
        return super().apply_gradients(cast, slots, rate=rate, observe=observe)
