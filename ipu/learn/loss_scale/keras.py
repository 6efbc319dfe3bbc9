"""The automatic loss scale of Graphcore's Keras optimisers.

It looks at a histogram of the gradients of the variables, and applies every step, also one that
overflowed; so it works with NANOO on or off.

Source    Graphcore's Keras, optimizers/als_optimizer.py.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from fpsim.elementwise.sizes import checked_number
from fpsim.state.processor import usual_arithmetic_in
from ipu.learn.loss_scale.histogram import EdgeHistogram, VariableHistogram
from ipu.learn.loss_scale.scaling import Scaling, Statistic, check_share
from ipu.learn.optim.base import Pairs

__all__ = ["KerasLossScale"]


@dataclass(frozen=True)
@usual_arithmetic_in()
class KerasLossScale(Scaling):
    """The Keras optimiser's rule: looks every `frequency` steps, moves inside [1, largest).

    increase     factor of a change upwards; its reciprocal leads downwards. A power of two, as the
                 initial scale and `largest` are.
    accumulate   count at every step, else only at those that change the scale.
    threshold    share of large gradients above which the scale falls.
    filter       share of new counts that is left out: counts = old + (1 - filter) · new.
    edge         from which a gradient counts as large.
    count, histogram   steps since the last look; (lower, upper) counts.

    The counter is tested before it is raised: the first change comes with step `frequency` + 1
    (with a frequency of 1 at every step). A change that would leave the range is left out. Without
    binary16 gradients the scale only rises.

    The specialised optimisers of Keras, which keep the moments of scaled gradients, are the routes
    "learning_rate" (SGD) and "epsilon" (Adam, RMSProp) with rules that compute in binary32.
    """

    factor: float = 1.0
    route: str = "gradients"
    frequency: int = 8
    increase: float = 2.0
    largest: float = 32768.0
    accumulate: bool = True
    threshold: float = 1e-5
    filter: float = 0.0
    edge: float = 8192.0
    initial: float | None = None
    count: int = 0
    histogram: tuple[float, float] = (0.0, 0.0)

    moving: ClassVar[tuple[str, ...]] = ("factor", "count", "histogram")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.initial is None:
            object.__setattr__(self, "initial", float(self.factor))
        assert self.initial is not None
        checked_number("frequency", self.frequency)
        checked_number("filter", self.filter)
        for name in ("initial", "increase", "largest"):
            value = checked_number(name, getattr(self, name))
            if value < 1 or np.frexp(value)[0] != 0.5:
                raise ValueError(f"{name}={value} is not a power of two; use one")
        if self.increase == 1 or self.initial * self.increase >= self.largest:
            raise ValueError(
                f"initial={self.initial:g} × increase={self.increase:g} leaves no room below "
                f"largest={self.largest:g}; increase must be above 1 and the product below largest"
            )
        if self.frequency < 1:
            raise ValueError(f"frequency={self.frequency} is out of range; use 1 or more steps")
        check_share("threshold", self.threshold)
        if not 0 <= self.filter <= 1:
            raise ValueError(f"filter={self.filter} is out of range; use 0 to 1")

    @property
    def _is_due(self) -> bool:
        return self.frequency == 1 or (self.count > 0 and self.count % self.frequency == 0)

    def statistic(self, scope: str = "") -> Statistic:
        return VariableHistogram(self.edge) if self.accumulate or self._is_due else Statistic()

    def successor(self, pairs: Pairs, statistic: Statistic) -> KerasLossScale:
        histogram = self.counted(statistic)
        if not self._is_due:
            return replace(self, histogram=histogram, count=self.count + 1)
        lower, upper = histogram
        share = upper / (lower + upper) if lower + upper else 0.0
        factor = (
            self.value / self.increase if share > self.threshold else self.value * self.increase
        )
        if not 1 <= factor < self.largest:
            factor = self.value
        return replace(self, factor=factor, histogram=(0.0, 0.0), count=0)

    def counted(self, statistic: Statistic) -> tuple[float, float]:
        """The counts (lower, upper) with those of a statistic."""
        if not isinstance(statistic, EdgeHistogram):
            return self.histogram
        lower, upper = self.histogram
        rest = 1 - self.filter
        return (
            self.filter * lower + rest * (lower + statistic.lower),
            self.filter * upper + rest * (upper + statistic.upper),
        )
