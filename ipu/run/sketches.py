"""Sketches: few sums of many values, from which the distance of two results is estimated.

Every element goes with a random sign into one of 32 sums, the same for all arrays of a size. The
sum of the squared differences of two sketches has the squared distance as its expectation, and a
relative deviation of about a quarter.

Source    Charikar, Chen, Farach-Colton (2002), Finding frequent items in data streams.
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from fpsim.state.processor import usual_arithmetic

__all__ = ["Sketch"]

_SUMS = 32


class Sketch:
    """The norm of an array and its sums; not finite where a value is not.

    >>> x = np.arange(1000.0)
    >>> one, other = Sketch.of(x), Sketch.of(x + 0.5)
    >>> bool(0.5 < one.distance(other) / np.linalg.norm(np.full(1000, 0.5)) < 1.5)
    True
    >>> Sketch.read(str(one)).distance(one)
    0.0
    """

    def __init__(self, norm: float, sums: NDArray[np.float64]) -> None:
        self.norm, self.sums = norm, sums

    @classmethod
    @usual_arithmetic
    def of(cls, values: NDArray[np.floating]) -> Sketch:
        """Of all values, in the order of the elements."""
        flat = np.asarray(values, np.float64).reshape(-1)
        if not np.isfinite(flat).all():
            return cls(math.inf, np.full(_SUMS, math.inf))
        places, signs = _places(flat.size)
        sums = np.asarray(np.bincount(places, flat * signs, _SUMS), np.float64)
        return cls(float(np.sqrt(np.sum(flat * flat))), sums)

    @classmethod
    def read(cls, text: str) -> Sketch:
        """From a line of a file."""
        norm, *sums = map(float.fromhex, text.split(","))
        return cls(norm, np.array(sums))

    def __str__(self) -> str:
        return ",".join(float(x).hex() for x in (self.norm, *self.sums))

    @usual_arithmetic
    def distance(self, other: Sketch) -> float:
        """The estimated norm of the difference; infinite where one is not finite."""
        if not (math.isfinite(self.norm) and math.isfinite(other.norm)):
            return math.inf
        return float(np.sqrt(np.sum(np.square(self.sums - other.sums))))


@lru_cache(maxsize=64)
def _places(size: int) -> tuple[NDArray[np.int64], NDArray[np.int8]]:
    """The sum of each element, and its sign."""
    random = np.random.Generator(np.random.Philox(key=size))
    return (random.integers(0, _SUMS, size),
            (1 - 2 * random.integers(0, 2, size)).astype(np.int8))
