"""An optimiser that changes gradients by a function before they are applied.

Source    graphcore/tensorflow, tensorflow/python/ipu/optimizers/map_gradient_optimizer.py.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ipu.frontends.tensorflow.training.wrapper import IpuOptimizer

__all__ = ["Mapping", "MapGradientOptimizer", "Pairs", "checked_mapping", "mapped"]

#: A gradient of a gradient and its variable.
Mapping = Callable[[Any, Any], Any]
#: Gradients, or None, and their variables.
Pairs = list[tuple[Any, Any]]


class MapGradientOptimizer(IpuOptimizer):
    """Computes gradients by the inner optimiser and maps each of them.

    gradient_mapping_function    takes a gradient and its variable; returns the new gradient.
    """

    def __init__(
        self, wrapped_optimizer: Any, gradient_mapping_function: Mapping,
        name: str = "MapGradientOptimizer",
    ) -> None:
        super().__init__(wrapped_optimizer, name)
        self._map = checked_mapping(gradient_mapping_function)

    def compute_gradients(self, *args: Any, **kwargs: Any) -> list[tuple[Any, Any]]:
        """The inner optimiser's gradients, mapped; variables without one keep None."""
        return mapped(self._map, self._opt.compute_gradients(*args, **kwargs))


def checked_mapping(function: Mapping) -> Mapping:
    """The function.

    Raises    TypeError for anything else.
    """
    if not callable(function):
        raise TypeError(
            f"gradient_mapping_function={function!r} is not a function; use one of a gradient and "
            "its variable that returns a gradient"
        )
    return function


def mapped(function: Mapping, pairs: Pairs) -> Pairs:
    """Gradients and variables, each gradient mapped; None stays."""
    return [(g if g is None else function(g, v), v) for g, v in pairs]
