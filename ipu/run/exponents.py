"""Exponents of values: histograms by layer and format, read from the bits of the carriers.

A value x other than zero has the exponent floor(log2|x|). Values are looked at and never changed,
so a run that is looked at has the same bits as one that is not. Of a large array evenly spaced
values are counted, each for those that it stands for; its largest magnitude is always among them.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fpsim.records.formats import Format
from fpsim.state.processor import usual_arithmetic_in
from fpsim.state.tallies import tally_of

__all__ = ["Exponents", "Histogram", "count_exponents"]

_BIAS = 127


def count_exponents(values: NDArray[Any]) -> NDArray[np.int64]:
    """How many values have each of the 256 biased exponents; of large arrays an estimate.

    >>> counts = count_exponents(np.float32([1.5, 0.0, 0.75]))
    >>> [int(e) - 127 for e in np.flatnonzero(counts[1:]) + 1], int(counts[0])
    ([-1, 0], 1)
    """
    return tally_of(values).exponents


class Histogram(NamedTuple):
    """Exponents of the values of a name in a format.

    counts       values by exponent, ascending; of large arrays an estimate.
    nonfinite    infinities and NaN.
    """

    name: Hashable
    format: Format
    counts: dict[int, int]
    zeros: int
    nonfinite: int

    @property
    def size(self) -> int:
        """Values, zeros and nonfinite ones too."""
        return sum(self.counts.values()) + self.zeros + self.nonfinite

    @property
    def highest(self) -> int | None:
        """The largest exponent; None without finite values other than zero."""
        return max(self.counts, default=None)


@usual_arithmetic_in()
class Exponents:
    """Histograms of exponents, by name and format.

    >>> from fpsim import BINARY16
    >>> exponents = Exponents()
    >>> exponents.add("net.conv1", BINARY16, np.float32([0.0, 1.5, -0.25, 0.3]))
    >>> next(iter(exponents)).counts
    {-2: 2, 0: 1}
    """

    def __init__(self) -> None:
        self._sums: dict[tuple[Hashable, Format], NDArray[np.int64]] = {}

    def add(self, name: Hashable, fmt: Format, values: NDArray[Any]) -> None:
        """Count values that are held in binary32."""
        self.add_counts(name, fmt, count_exponents(values))

    def add_counts(self, name: Hashable, fmt: Format, counts: NDArray[np.int64]) -> None:
        """Count values of which so many have each biased exponent."""
        sums = self._sums.get((name, fmt))
        if sums is None:
            self._sums[name, fmt] = counts.copy()
        else:
            sums += counts

    def replace(self, name: Hashable, fmt: Format, values: NDArray[Any]) -> None:
        """Count these values instead of those that the name had before."""
        self.replace_counts(name, fmt, count_exponents(values))

    def replace_counts(self, name: Hashable, fmt: Format, counts: NDArray[np.int64]) -> None:
        """The same of values of which so many have each biased exponent."""
        self._sums[name, fmt] = counts

    def __iter__(self) -> Iterator[Histogram]:
        for (name, fmt), sums in self._sums.items():
            used = np.flatnonzero(sums[1:-1]) + 1
            counts = {int(e) - _BIAS: int(sums[e]) for e in used}
            yield Histogram(name, fmt, counts, int(sums[0]), int(sums[-1]))
