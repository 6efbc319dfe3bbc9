"""Elements that have left their range, and operands whose elements a result has."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fpsim.records.formats import Format
from ipu.run.births.kinds import INFINITY, NAN, SATURATED

__all__ = ["NOWHERE", "TESTS", "fits"]

#: The mask of what no element is.
NOWHERE = np.zeros((), np.bool_)
#: Which elements of an array are of a kind.
TESTS: dict[str, Callable[[NDArray[Any], Format], NDArray[np.bool_]]] = {
    NAN: lambda values, fmt: np.isnan(values),
    INFINITY: lambda values, fmt: np.isinf(values),
    SATURATED: lambda values, fmt: np.abs(values) == float(fmt.max),
}


def fits(shape: tuple[int, ...], result: tuple[int, ...]) -> bool:
    """Whether operands of a shape broadcast to the result."""
    try:
        return np.broadcast_shapes(shape, result) == result
    except ValueError:
        return False
