"""Sketches: few sums of many values, from which the distance of two results is estimated.

Every element goes with a random sign into one of 32 sums, the same for all arrays of a size. The
sum of the squared differences of two sketches has the squared distance as its expectation, and a
relative deviation of about a quarter. Elements that are not finite, or as large as their format
allows, are in no sum: where they are is compared by a digest.

Source    Charikar, Chen, Farach-Colton (2002), Finding frequent items in data streams.
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from fpsim.kernels.elementwise.hashing import xxh3
from fpsim.state.processor import usual_arithmetic

__all__ = ["Sketch"]

_SUMS = 32


class Sketch:
    """The norm of an array and its sums.

    extremes    digest of which elements are NaN, infinite or saturated; 0 where none is.

    >>> x = np.arange(1000.0)
    >>> one, other = Sketch.of(x), Sketch.of(x + 0.5)
    >>> bool(0.5 < one.distance(other) / np.linalg.norm(np.full(1000, 0.5)) < 1.5)
    True
    >>> Sketch.read(str(one)).distance(one)
    0.0
    """

    def __init__(self, norm: float, sums: NDArray[np.float64], extremes: int = 0) -> None:
        self.norm, self.sums, self.extremes = norm, sums, extremes

    @classmethod
    @usual_arithmetic
    def of(cls, values: NDArray[np.floating], largest: float = math.inf) -> Sketch:
        """Of all values, in the order of the elements.

        largest    of their format: masks of minus infinity are so where overflow saturates.
        """
        flat = np.asarray(values, np.float64).reshape(-1)
        with np.errstate(invalid="ignore"):
            is_extreme = ~(abs(flat) < largest)
        extremes = 0
        if is_extreme.any():
            kinds = np.where(np.isnan(flat), 2, np.sign(flat)).astype(np.int8)
            extremes = xxh3(np.where(is_extreme, kinds, np.int8(0)))
            flat = np.where(is_extreme, 0.0, flat)
        places, signs = _places(flat.size)
        sums = np.asarray(np.bincount(places, flat * signs, _SUMS), np.float64)
        return cls(float(np.sqrt(np.sum(flat * flat))), sums, extremes)

    @classmethod
    def read(cls, text: str) -> Sketch:
        """From a line of a file."""
        extremes, norm, *sums = text.split(",")
        return cls(float.fromhex(norm), np.array([*map(float.fromhex, sums)]), int(extremes, 16))

    def __str__(self) -> str:
        return ",".join((f"{self.extremes:x}", *(float(x).hex() for x in (self.norm, *self.sums))))

    @usual_arithmetic
    def distance(self, other: Sketch) -> float:
        """The estimated norm of the difference; infinite where other elements are extremes."""
        if self.extremes != other.extremes:
            return math.inf
        return float(np.sqrt(np.sum(np.square(self.sums - other.sums))))


    @usual_arithmetic
    def sums_apart(self, other: Sketch, distance: float) -> int:
        """Sums that differ by more than a difference of this norm would, spread over all of them.

        Few of them do so where few elements differ.

        >>> x = np.arange(1000.0)
        >>> y = np.where(x == 7, 0, x)
        >>> Sketch.of(x).sums_apart(Sketch.of(y), 1.0), Sketch.of(x).sums_apart(Sketch.of(-x), 1.0)
        (1, 32)
        """
        usual = distance / math.sqrt(_SUMS)
        return int(np.count_nonzero(abs(self.sums - other.sums) > 3 * usual))


@lru_cache(maxsize=64)
def _places(size: int) -> tuple[NDArray[np.int64], NDArray[np.int8]]:
    """The sum of each element, and its sign."""
    random = np.random.Generator(np.random.Philox(key=size))
    return (random.integers(0, _SUMS, size),
            (1 - 2 * random.integers(0, 2, size)).astype(np.int8))
