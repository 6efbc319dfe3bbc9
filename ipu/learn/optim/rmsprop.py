"""RMSProp, with epsilon inside the root as TensorFlow has it, or after it as torch has it.

Source    tf.keras.optimizers.RMSprop as TensorFlow compiles it (tf2xla, ResourceApplyRMSProp); the
          reciprocal root there is a root and a division here. tf.train.RMSPropOptimizer starts the
          mean square at one; that is `initial=1`; torch.optim.RMSprop
          (epsilon's place).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from fpsim.array import Array
from fpsim.records.formats import Format
from ipu.learn.optim.base import (
    Asked,
    TableOptimizer,
    check_positive,
    check_rate,
    check_share,
)
from ipu.machine.device import Device

__all__ = ["RMSProp"]


@dataclass(frozen=True)
class RMSProp(TableOptimizer):
    """Gradients divided by the root of their mean square.

    ms = g² · (1 - decay) + ms · decay
    v = v · momentum + (g · rate) / sqrt(ms + epsilon)
    w = w - v

    initial   mean square before the first step.
    epsilon_in_root    False: the divisor is sqrt(ms) + epsilon.

    Rounding  each operation once, in the order written; 1 - decay too.

    >>> from fpsim import BINARY32
    >>> from ipu.learn.variables import Variable
    >>> device = Device()
    >>> w = Variable(device.from_host([1.0, 1.0], BINARY32), device, "layer/w")
    >>> g = device.from_host([2.0, -0.5], BINARY32)
    >>> slots = RMSProp(0.125, decay=0.75).apply_gradients([(g, w)], {})
    >>> w.array.values.round(3).tolist(), slots["layer/w"][0].values.tolist()
    ([0.75, 1.25], [1.0, 0.0625])
    """

    rate: float
    decay: float = 0.9
    momentum: float = 0.0
    epsilon: float = 1e-7
    format: Format | None = None
    initial: float = 0.0
    epsilon_in_root: bool = True

    powers: ClassVar[tuple[int, ...]] = (2, 0)

    def __post_init__(self) -> None:
        self._find_format()
        check_rate(self.rate)
        check_share("decay", self.decay)
        check_share("momentum", self.momentum)
        check_positive("epsilon", self.epsilon)
        check_positive("initial", self.initial)

    def for_scaled(self, scale: float) -> RMSProp:
        squared = scale * scale
        epsilon = self.epsilon * (squared if self.epsilon_in_root else scale)
        return replace(self, epsilon=epsilon, initial=self.initial * squared)

    def constants(self, rate: float) -> dict[str, float]:
        return {"learning rate": rate, "epsilon": self.epsilon, "initial": self.initial}

    def asked(self, device: Device, g: Array, slots: tuple[Array, ...], rate: float) -> Asked:
        return Asked("tensorflow rms prop", slots or self._start(device, g), {
            "rate": rate, "rho": self.decay, "momentum": self.momentum, "epsilon": self.epsilon,
            "in_root": self.epsilon_in_root,
        })

    def _start(self, device: Device, g: Array) -> tuple[Array, Array]:
        ms = device.from_host(np.full(g.shape, self.initial), g.format)
        return ms, device.zeros(g.shape, g.format)
