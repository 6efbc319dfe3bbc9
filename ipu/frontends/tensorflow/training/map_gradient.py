"""An optimiser that changes gradients by a function before they are applied.

Source    graphcore/tensorflow, tensorflow/python/ipu/optimizers/map_gradient_optimizer.py.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ipu.frontends.tensorflow.training.wrapper import IpuOptimizer

__all__ = ["MapGradientOptimizer"]


class MapGradientOptimizer(IpuOptimizer):
    """Computes gradients by the inner optimiser and maps each of them.

    gradient_mapping_function    takes a gradient and its variable; returns the new gradient.
    """

    def __init__(
        self, wrapped_optimizer: Any, gradient_mapping_function: Callable[[Any, Any], Any],
        name: str = "MapGradientOptimizer",
    ) -> None:  # fmt: skip
        super().__init__(wrapped_optimizer, name)
        if not callable(gradient_mapping_function):
            raise TypeError(
                f"gradient_mapping_function={gradient_mapping_function!r} is not a function; use "
                "one of a gradient and its variable that returns a gradient"
            )
        self._map = gradient_mapping_function

    def compute_gradients(self, *args: Any, **kwargs: Any) -> Any:
        """The inner optimiser's gradients, mapped; variables without one keep None."""
        pairs = self._opt.compute_gradients(*args, **kwargs)
        return [(g if g is None else self._map(g, v), v) for g, v in pairs]
