"""Automatic loss scales: rules that count large gradients instead of waiting for infinities.

Both look at a histogram of two bins of the magnitudes of binary16 gradients, change the scale by a
factor, and apply every step, also one that overflowed; so they work with NANOO on or off. NaN is
counted as large (ASSUMED).

PopART's header says that the scale goes up when too many gradients are large; its code and tests
do the opposite, and are followed.

Source    PopART, automaticlossscaling.cpp and lossscaleupdatex.cpp; Graphcore's Keras,
          optimizers/als_optimizer.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import ClassVar

import numpy as np

from fpsim.array import Array
from fpsim.records.formats import BINARY16
from ipu.learn.loss_scale import Scaling, Statistic
from ipu.learn.optim.base import Pairs
from ipu.learn.tensor import Node

__all__ = ["ALL_GRADIENTS", "AutomaticLossScale", "Histogram", "KerasLossScale", "PRODUCTS"]

ALL_GRADIENTS, PRODUCTS = "all", "products"


class Histogram(Statistic):
    """How many magnitudes of binary16 gradients reach an edge, and how many do not."""

    def __init__(self, edge: float) -> None:
        self.edge = edge
        self.upper = self.lower = 0

    def add(self, gradient: Array) -> None:
        """Count a tensor; other formats than binary16 are passed over."""
        if gradient.format == BINARY16:
            lower = int(np.count_nonzero(np.abs(gradient.values) < self.edge))
            self.lower += lower
            self.upper += gradient.size - lower


class _OfTheBackwardPass(Histogram):
    """Of the gradients that operations compute; reshapes are views and are passed over."""

    def __init__(self, edge: float, tracked: str | Sequence[str]) -> None:
        super().__init__(edge)
        self.tracked = tracked

    def watch(self, node: Node, gradient: Array) -> None:
        if node.primitive.unit != "none" and self._is_tracked(node):
            self.add(gradient)

    def _is_tracked(self, node: Node) -> bool:
        if isinstance(self.tracked, str):
            return self.tracked == ALL_GRADIENTS or node.cost.macs > 0
        return any(fnmatchcase(node.layer, pattern) for pattern in self.tracked)


class _OfTheVariables(Histogram):
    """Of the scaled gradients of the variables."""

    def collect(self, pairs: Pairs) -> None:
        for gradient, _ in pairs:
            self.add(gradient)


@dataclass(frozen=True)
class AutomaticLossScale(Scaling):
    """PopART's rule: halved if more than a share of the gradients is large, else doubled.

    bin_edge    share of the largest binary16 value from which a gradient counts as large.
    threshold   share of large gradients above which the scale is halved.
    period      optimiser steps from one look (and change) to the next.
    tracked     "all" gradients that operations compute, "products" for those of matrix products
                and convolutions, or patterns of layer names.
    step        optimiser steps so far.

    A step's statistic, summed over its mini-batches, changes the scale of the step after it. A
    scale that would leave binary32 upwards stays (ASSUMED: PopART's rule shows no limit).

    Raises    ValueError at a step in which no binary16 gradient was seen; RuntimeError where the
              scale cannot fall any further.
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
        if not 0 < self.bin_edge <= 1:
            raise ValueError(f"bin_edge={self.bin_edge} is out of range; use a share up to 1")
        _check_share("threshold", self.threshold)
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

    def statistic(self) -> Statistic:
        if not self._is_due:
            return Statistic()
        return _OfTheBackwardPass(BINARY16.max * self.bin_edge, self.tracked)

    def successor(self, pairs: Pairs, statistic: Statistic) -> AutomaticLossScale:
        later = replace(self, step=self.step + 1)
        if not self._is_due:
            return later
        assert isinstance(statistic, Histogram)
        if not statistic.upper + statistic.lower:
            raise ValueError(
                f"tracked={self.tracked!r} found no binary16 gradients; train in binary16, or "
                "use no automatic loss scale"
            )
        allowed = np.float32(self.threshold / (1 - self.threshold)) * np.float32(statistic.lower)
        factor = 0.5 if np.float32(statistic.upper) > allowed else 2.0
        return replace(later, factor=self.moved(factor))


@dataclass(frozen=True)
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
    (with a frequency of 1 at every step). A change that would leave the range is not made. Without
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
        for name in ("initial", "increase", "largest"):
            value = getattr(self, name)
            if value < 1 or np.frexp(value)[0] != 0.5:
                raise ValueError(f"{name}={value} is no power of two; use one")
        if self.increase == 1 or self.initial * self.increase >= self.largest:
            raise ValueError(
                f"initial={self.initial:g} × increase={self.increase:g} leaves no room below "
                f"largest={self.largest:g}; increase must be above 1 and the product below largest"
            )
        if self.frequency < 1:
            raise ValueError(f"frequency={self.frequency} is out of range; use 1 or more steps")
        _check_share("threshold", self.threshold)
        if not 0 <= self.filter <= 1:
            raise ValueError(f"filter={self.filter} is out of range; use 0 to 1")

    @property
    def _is_due(self) -> bool:
        return self.frequency == 1 or (self.count > 0 and self.count % self.frequency == 0)

    def statistic(self) -> Statistic:
        return _OfTheVariables(self.edge) if self.accumulate or self._is_due else Statistic()

    def successor(self, pairs: Pairs, statistic: Statistic) -> KerasLossScale:
        histogram = self._counted(statistic)
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

    def _counted(self, statistic: Statistic) -> tuple[float, float]:
        if not isinstance(statistic, Histogram):
            return self.histogram
        lower, upper = self.histogram
        rest = 1 - self.filter
        return (
            self.filter * lower + rest * (lower + statistic.lower),
            self.filter * upper + rest * (upper + statistic.upper),
        )


def _check_share(name: str, value: float) -> None:
    if not 0 < value < 1:
        raise ValueError(f"{name}={value} is out of range; use a share between 0 and 1")
