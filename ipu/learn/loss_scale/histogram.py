"""Histograms of two bins of the magnitudes of binary16 gradients: below an edge, and from it on.

NaN is counted as large (ASSUMED).

Source    PopART, automaticlossscaling.cpp; Graphcore's Keras, optimizers/als_optimizer.py.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fpsim.array import Array
from fpsim.records.formats import BINARY16
from fpsim.state.processor import usual_arithmetic_in
from ipu.learn.loss_scale.scaling import Statistic
from ipu.learn.optim.base import Pairs
from ipu.learn.patterns import check_patterns, matches
from ipu.learn.tensor import TapeNode

__all__ = ["ALL_GRADIENTS", "PRODUCTS", "BackwardHistogram", "EdgeHistogram", "VariableHistogram"]


ALL_GRADIENTS, PRODUCTS = "all", "products"


@usual_arithmetic_in()
class EdgeHistogram(Statistic):
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


class BackwardHistogram(EdgeHistogram):
    """Of the gradients that operations compute; reshapes are views and are passed over."""

    def __init__(self, edge: float, tracked: str | Sequence[str], scope: str = "") -> None:
        super().__init__(edge)
        self.tracked = tracked
        self.scope = scope
        self.layers: set[str] = set()

    def watch(self, node: TapeNode, gradient: Array) -> None:
        if node.primitive.unit != "none" and self._is_tracked(node):
            self.add(gradient)

    def _is_tracked(self, node: TapeNode) -> bool:
        if isinstance(self.tracked, str):
            return self.tracked == ALL_GRADIENTS or node.cost.macs > 0
        layer = node.layer.removeprefix(f"{self.scope}/")
        self.layers.add(layer)
        return any(matches(layer, pattern) for pattern in self.tracked)

    def check(self) -> None:
        """Refuse a pattern that matches no layer of the backward pass."""
        if not isinstance(self.tracked, str):
            check_patterns("tracked", self.tracked, self.layers - {self.scope})


class VariableHistogram(EdgeHistogram):
    """Of the scaled gradients of the variables."""

    def collect(self, pairs: Pairs) -> None:
        for gradient, _ in pairs:
            self.add(gradient)
