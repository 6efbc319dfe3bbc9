"""The automatic loss scale of PopART: it counts large gradients and does not wait for infinities.

It looks at a histogram of binary16 gradients, changes the scale by a factor, and applies every
step, also one that overflowed; so it works with NANOO on or off.

PopART's header says that the scale goes up when too many gradients are large; its code and tests
do the opposite, and are followed.

Source    PopART, automaticlossscaling.cpp and lossscaleupdatex.cpp.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from fpsim.elementwise.sizes import checked_number
from fpsim.records.formats import BINARY16
from fpsim.state.processor import usual_arithmetic_in
from ipu.learn.loss_scale.histogram import ALL_GRADIENTS, PRODUCTS, BackwardHistogram, EdgeHistogram
from ipu.learn.loss_scale.scaling import Scaling, Statistic, check_share
from ipu.learn.optim.base import Pairs

__all__ = ["AutomaticLossScale"]


@dataclass(frozen=True)
@usual_arithmetic_in()
class AutomaticLossScale(Scaling):
    """PopART's rule: halved if more than a share of the gradients is large, else doubled.

    bin_edge    share of the largest binary16 value from which a gradient counts as large.
    threshold   share of large gradients above which the scale is halved.
    period      optimiser steps from one look (and change) to the next.
    tracked     "all" gradients that operations compute, "products" for those of matrix products
                and convolutions, or patterns of layer names, as policies have them.
    step        optimiser steps so far.

    A step's statistic, summed over its mini-batches, changes the scale of the step after it. A
    scale that would leave binary32 upwards stays (ASSUMED: PopART's rule shows no limit).

    Raises    ValueError at a step in which no binary16 gradient was seen, or a pattern matched no
              layer; RuntimeError where the
              scale cannot fall any further.

    >>> from ipu.learn.nn import dense
    >>> from ipu.learn.optim import SGD
    >>> from ipu.learn.train import Trainer
    >>> scale = AutomaticLossScale(2.0**12)
    >>> trainer = Trainer(lambda x: dense(x, 2, "only"), SGD(0.5), policy="fp16", loss_scale=scale)
    >>> losses = [trainer.step([[1.0, 0.0]], [0]) for _ in range(3)]
    >>> trainer.loss_scale.value
    32768.0
    """

    factor: float = 1.0
    route: str = "gradients"
    bin_edge: float = 0.125
    threshold: float = 1e-7
    period: int = 1
    tracked: str | tuple[str, ...] = ALL_GRADIENTS
    step: int = 0

    moving: ClassVar[tuple[str, ...]] = ("factor", "step")

    def __post_init__(self) -> None:
        super().__post_init__()
        checked_number("bin_edge", self.bin_edge)
        checked_number("period", self.period)
        if not 0 < self.bin_edge <= 1:
            raise ValueError(f"bin_edge={self.bin_edge} is out of range; use a share up to 1")
        check_share("threshold", self.threshold)
        if self.period < 1:
            raise ValueError(f"period={self.period} is out of range; use 1 or more steps")
        if isinstance(self.tracked, str) and self.tracked not in (ALL_GRADIENTS, PRODUCTS):
            raise ValueError(
                f"tracked={self.tracked!r} is not known; use {ALL_GRADIENTS}, {PRODUCTS}, or a "
                "tuple of patterns of layer names"
            )

    @property
    def _is_due(self) -> bool:
        return self.step % self.period == 0

    def statistic(self, scope: str = "") -> Statistic:
        if not self._is_due:
            return Statistic()
        return BackwardHistogram(BINARY16.max * self.bin_edge, self.tracked, scope)

    def successor(self, pairs: Pairs, statistic: Statistic) -> AutomaticLossScale:
        later = replace(self, step=self.step + 1)
        if not self._is_due:
            return later
        assert isinstance(statistic, EdgeHistogram)
        if isinstance(statistic, BackwardHistogram):
            statistic.check()
        if not statistic.upper + statistic.lower:
            raise ValueError(
                f"tracked={self.tracked!r} saw no binary16 gradients; train in binary16, or "
                "use no automatic loss scale"
            )
        allowed = np.float32(self.threshold / (1 - self.threshold)) * np.float32(statistic.lower)
        factor = 0.5 if np.float32(statistic.upper) > allowed else 2.0
        return replace(later, factor=self.moved(factor))
