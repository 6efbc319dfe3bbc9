"""Adam as TensorFlow computes it, AdamW as PopART does.

Both divide by a root of the mean square plus epsilon; TensorFlow folds the corrections of the
moments into the learning rate, PopART corrects the moments, so their epsilons are not the same.

Source    tf.train.AdamOptimizer as TensorFlow compiles it (tf2xla, ResourceApplyAdam), its powers
          of beta in binary32; PopART, accumulatex.cpp (moments) and adamupdaterx.cpp (update).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

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
from ipu.machine.reference import wide

__all__ = ["Adam", "AdamW"]


@dataclass(frozen=True)
class Adam(TableOptimizer):
    """Adaptive moments: the mean of gradients over the root of their mean square.

    alpha = (rate · sqrt(1 - p2)) / (1 - p1), p = beta to the power of the step
    m = m + (g - m) · (1 - beta1)
    v = v + (g² - v) · (1 - beta2)
    w = w - (m · alpha) / (sqrt(v) + epsilon)

    The powers are kept in binary32 and cast to the rule's format.

    Rounding  each operation once, in the order written.

    >>> from fpsim import BINARY32
    >>> from ipu.learn.variables import Variable
    >>> device = Device()
    >>> w = Variable(device.from_host([1.0, 1.0], BINARY32), device, "layer/w")
    >>> g = device.from_host([2.0, -0.001], BINARY32)
    >>> slots = Adam(0.125).apply_gradients([(g, w)], {})
    >>> w.array.values.round(3).tolist()  # the first step is one rate long for any gradient
    [0.875, 1.125]
    """

    rate: float = 0.001
    beta1: float = 0.9
    beta2: float = 0.999
    epsilon: float = 1e-8
    format: Format | None = None

    powers: ClassVar[tuple[int, ...]] = (1, 2, 0, 0)

    def __post_init__(self) -> None:
        self._find_format()
        check_rate(self.rate)
        check_share("beta1", self.beta1)
        check_share("beta2", self.beta2)
        check_positive("epsilon", self.epsilon)

    def for_scaled(self, scale: float) -> Adam:
        return replace(self, epsilon=self.epsilon * scale)

    def constants(self, rate: float) -> dict[str, float]:
        return {"learning rate": rate, "epsilon": self.epsilon}

    def asked(self, device: Device, g: Array, slots: tuple[Array, ...], rate: float) -> Asked:
        m, v, *powers = slots or self._start(device, g)
        power1, power2 = (device.cast(p, g.format) for p in powers)
        numbers = {
            "power1": power1, "power2": power2, "rate": rate, "beta1": self.beta1,
            "beta2": self.beta2, "epsilon": self.epsilon,
        }
        return Asked("tensorflow adam", (m, v), numbers, lambda: self._next(device, powers))

    def _start(self, device: Device, g: Array) -> tuple[Array, ...]:
        """No moments yet; the powers of the first step."""
        none, wider = device.zeros(g.shape, g.format), device.context(wide(g.format))
        return none, none, wider.constant(self.beta1), wider.constant(self.beta2)

    def _next(self, device: Device, powers: list[Array]) -> list[Array]:
        betas = (self.beta1, self.beta2)
        return [device.multiply(p, beta) for p, beta in zip(powers, betas, strict=True)]


@dataclass(frozen=True)
class AdamW(Adam):
    """Adam whose weights also decay, by themselves and not through the gradient.

    m = m · beta1 + (1 - beta1) · g
    v = v · beta2 + ((1 - beta2) · g) · g
    u = (m / (1 - p1)) / (sqrt(v / (1 - p2)) + epsilon) + weight_decay · w
    w = w - rate · u

    The powers and the differences from one are taken in binary32 and cast to the rule's format;
    1 - beta is a constant.

    Rounding  each operation once, in the order written.

    >>> from fpsim import BINARY32
    >>> from ipu.learn.variables import Variable
    >>> device = Device()
    >>> w = Variable(device.from_host([1.0, -1.0], BINARY32), device, "layer/w")
    >>> g = device.zeros(2, BINARY32)
    >>> slots = AdamW(0.125, weight_decay=0.5).apply_gradients([(g, w)], {})
    >>> w.array.values.tolist()  # no gradient: the decay alone
    [0.9375, -0.9375]
    """

    weight_decay: float = 0.01

    def __post_init__(self) -> None:
        super().__post_init__()
        check_positive("weight_decay", self.weight_decay)

    def asked(self, device: Device, g: Array, slots: tuple[Array, ...], rate: float) -> Asked:
        m, v, *powers = slots or self._start(device, g)
        one = device.context(wide(g.format)).constant(1.0)
        left1, left2 = (device.cast(device.subtract(one, p), g.format) for p in powers)
        numbers = {
            "rate": rate, "beta1": self.beta1, "beta2": self.beta2, "epsilon": self.epsilon,
            "weight_decay": self.weight_decay, "left1": left1, "left2": left2,
        }
        return Asked("native adamw", (m, v), numbers, lambda: self._next(device, powers))
