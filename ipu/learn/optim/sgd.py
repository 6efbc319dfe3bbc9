"""Stochastic gradient descent, plain, with momentum, and with Nesterov's.

Source    tf.train.GradientDescentOptimizer, tf.train.MomentumOptimizer as TensorFlow compiles them
          (tf2xla, ResourceApplyGradientDescent and ResourceApplyMomentum); torch.optim.SGD
          (weight_decay, dampening, maximize and the order in which they act).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from fpsim.array import Array
from fpsim.records.formats import Format
from ipu.learn.address import updating
from ipu.learn.optim.base import (
    Asked,
    Observer,
    Pairs,
    Slots,
    TableOptimizer,
    check_positive,
    check_rate,
    check_share,
)
from ipu.machine.device import Device

__all__ = ["SGD", "CastGradientsSGD"]


@dataclass(frozen=True)
class SGD(TableOptimizer):
    """Stochastic gradient descent: v = momentum · v + g, w = w - rate · v.

    With `nesterov`: w = w - (g · rate + (v · momentum) · rate), v the new one.

    weight_decay    g = g + w · weight_decay first.
    dampening       v = momentum · v + g · (1 - dampening) from the second step on; 1 - dampening
                    is a constant.
    maximize        g = -g before everything else.
    format    in which the rule computes and keeps v, or its name; None: the variable's.

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
    weight_decay: float = 0.0
    dampening: float = 0.0
    maximize: bool = False

    linear: ClassVar[bool] = True
    powers: ClassVar[tuple[int, ...]] = (1,)

    def __post_init__(self) -> None:
        self._find_format()
        check_rate(self.rate)
        check_share("momentum", self.momentum)
        if self.nesterov and not self.momentum:
            raise ValueError("nesterov=True needs momentum; give one, for instance momentum=0.9")
        check_positive("weight_decay", self.weight_decay)
        check_share("dampening", self.dampening)
        if self.dampening and (self.nesterov or not self.momentum):
            raise ValueError(
                f"dampening={self.dampening} goes with momentum and without nesterov; change one"
            )

    def for_scaled(self, scale: float) -> SGD:
        return replace(self, rate=self.rate / scale, weight_decay=self.weight_decay * scale)

    def constants(self, rate: float) -> dict[str, float]:
        decay = {"weight decay": self.weight_decay} if self.weight_decay else {}
        return {"learning rate": rate, **decay}

    def asked(self, device: Device, g: Array, slots: tuple[Array, ...], rate: float) -> Asked:
        return Asked("native sgd", slots, {
            "rate": rate, "momentum": self.momentum, "nesterov": self.nesterov,
            "weight_decay": self.weight_decay, "dampening": self.dampening,
            "maximize": self.maximize,
        })


@dataclass(frozen=True)
class CastGradientsSGD(SGD):
    """SGD that casts each gradient to its variable's format first.

    For accumulators wider than the variables: apply_gradients is overridden, as users do.
    """

    def apply_gradients(
        self, pairs: Pairs, slots: Slots, *, rate: float | None = None,
        observe: Observer | None = None,
    ) -> dict[str, tuple[Array, ...]]:
        cast = []
        for gradient, variable in pairs:
            with updating(variable):
                cast.append((variable.device.cast(gradient, variable.dtype), variable))
        return super().apply_gradients(cast, slots, rate=rate, observe=observe)
