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

from fpsim.kernels.elementwise.tally import count_fields
from fpsim.records.formats import Format
from fpsim.state.memory import flat_in_memory
from fpsim.state.processor import usual_arithmetic, usual_arithmetic_in

__all__ = ["Exponents", "Histogram", "count_exponents"]

_BIAS = 127
#: Biased exponents of binary32; the first bin holds zeros, the last infinities and NaN.
_BINS = 256
#: Values of an array that are counted; of a larger one, every so many-th.
_SAMPLE = 1 << 14


@usual_arithmetic
def count_exponents(values: NDArray[Any]) -> NDArray[np.int64]:
    """How many values have each of the 256 biased exponents; of large arrays an estimate.

    >>> counts = count_exponents(np.arange(100_000, dtype=np.float32))
    >>> int(counts.sum()) // 1000, int(np.flatnonzero(counts)[-1]) - 127
    (100, 16)
    """
    stride = max(1, -(-values.size // _SAMPLE) | 1)
    flat = flat_in_memory(values.astype(np.float32, copy=False))
    counts = np.zeros(_BINS, np.int64)
    largest = count_fields(flat.view(np.uint32), stride, counts)
    # The last value stands for fewer, but never for none.
    counts *= stride
    if largest >= 0 and not counts[largest]:
        counts[largest] += 1
    return counts


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
        counts = count_exponents(values)
        sums = self._sums.get((name, fmt))
        if sums is None:
            self._sums[name, fmt] = counts
        else:
            sums += counts

    def replace(self, name: Hashable, fmt: Format, values: NDArray[Any]) -> None:
        """Count these values instead of those that the name had before."""
        self._sums[name, fmt] = count_exponents(values)

    def __iter__(self) -> Iterator[Histogram]:
        for (name, fmt), sums in self._sums.items():
            used = np.flatnonzero(sums[1:-1]) + 1
            counts = {int(e) - _BIAS: int(sums[e]) for e in used}
            yield Histogram(name, fmt, counts, int(sums[0]), int(sums[-1]))
