"""Products through units in the format of their partials, where tests look at every bit of them."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

from fpsim import linalg
from fpsim.array import Array
from fpsim.records.units import find_unit, with_partials

__all__ = ["conv2d", "conv2d_input_gradient", "conv2d_weight_gradient", "k_split", "matmul"]


def _in_partials(function: Callable[..., Array]) -> Callable[..., Array]:
    """The function, whose result has the format of the partials unless the call says another."""

    @wraps(function)
    def run(left: Any, right: Any, unit: Any, *arguments: Any, **choices: Any) -> Array:
        if choices.get("context") is None and "to" not in choices:
            choices["to"] = with_partials(find_unit(unit), choices.get("partials")).partials
        return function(left, right, unit, *arguments, **choices)

    return run


matmul, k_split = _in_partials(linalg.matmul), _in_partials(linalg.k_split)
conv2d = _in_partials(linalg.conv2d)
conv2d_input_gradient = _in_partials(linalg.conv2d_input_gradient)
conv2d_weight_gradient = _in_partials(linalg.conv2d_weight_gradient)
