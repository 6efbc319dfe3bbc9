"""The dynamic loss scale: up after many clean steps, down after an overflow.

Source    PyTorch, torch.amp.GradScaler.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from fpsim.elementwise.sizes import checked_number
from fpsim.records.formats import Format
from fpsim.state.processor import usual_arithmetic_in
from ipu.learn.loss_scale.scaling import GRADIENTS, Scaling, Statistic
from ipu.learn.optim.base import Optimizer, Pairs

__all__ = ["DynamicLossScale"]


@dataclass(frozen=True)
@usual_arithmetic_in()
class DynamicLossScale(Scaling):
    """Up after many clean steps, down at once: a step with a non-finite gradient is not applied.

    growth     factor after `interval` clean steps in a row; not applied where it would overflow.
    backoff    factor after a step with an infinite or NaN gradient.
    clean      clean steps since the last change.

    Overflows must show as infinity or NaN, so a device whose binary16 saturates is refused.

    >>> scale = DynamicLossScale(interval=1)
    >>> scale.successor([], Statistic()).value
    131072.0
    """

    factor: float = 65536.0
    route: str = GRADIENTS
    growth: float = 2.0
    backoff: float = 0.5
    interval: int = 2000
    clean: int = 0

    moving: ClassVar[tuple[str, ...]] = ("factor", "clean")

    def __post_init__(self) -> None:
        super().__post_init__()
        checked_number("growth", self.growth)
        checked_number("backoff", self.backoff)
        checked_number("interval", self.interval)
        if not 1 < self.growth < math.inf:
            raise ValueError(f"growth={self.growth} is not a growth; use a finite number above 1")
        if not 0 < self.backoff < 1:
            raise ValueError(
                f"backoff={self.backoff} is out of range; use a number between 0 and 1"
            )
        if self.interval < 1:
            raise ValueError(f"interval={self.interval} is out of range; use 1 or more steps")

    def check(
        self, optimizer: Optimizer, *, saturates: bool, formats: Collection[Format] = ()
    ) -> None:
        super().check(optimizer, saturates=saturates, formats=formats)
        if saturates:
            raise ValueError(
                "dynamic loss scaling looks for infinite and NaN gradients, and with nanoo=False "
                "an overflow saturates; use FpCtl(nanoo=True), or an automatic loss scale"
            )

    def applies(self, pairs: Pairs) -> bool:
        return all(np.isfinite(gradient.values).all() for gradient, _ in pairs)

    def successor(self, pairs: Pairs, statistic: Statistic) -> DynamicLossScale:
        if not self.applies(pairs):
            return replace(self, factor=self.moved(self.backoff), clean=0)
        if self.clean + 1 < self.interval:
            return replace(self, clean=self.clean + 1)
        return replace(self, factor=self.moved(self.growth), clean=0)
