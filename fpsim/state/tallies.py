"""What one pass over the numbers of an array tells: zeros, the largest, exponents.

Values are looked at and never changed. Of a large array the exponents of evenly spaced values are
counted, each for those that it stands for; its largest magnitude is always among them.
"""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fpsim.kernels.elementwise.tally import tally_values
from fpsim.records.formats import Format
from fpsim.state.memory import flat_in_memory
from fpsim.state.processor import usual_arithmetic

__all__ = ["BINS", "ValueTally", "largest_of", "sampled_tally", "stride_of", "tally_of"]

#: Biased exponents of binary32; the first bin holds zeros, the last infinities and NaN.
BINS = 256
#: Values of an array whose exponents are counted; of a larger one, every so many-th.
_SAMPLE = 1 << 14
_FRACTION = 23


class ValueTally(NamedTuple):
    """What is known of the numbers of an array.

    zeros       how many are zero.
    largest     bits of the largest magnitude in binary32; above those of infinity with a NaN.
    exponents   how many have each biased exponent; of large arrays an estimate.
    """

    zeros: int
    largest: int
    exponents: NDArray[np.int64]

    @property
    def most(self) -> float:
        """The largest magnitude, NaN where there is one."""
        return float(np.uint32(self.largest).view(np.float32))

    def is_below_largest(self, fmt: Format) -> bool:
        """Whether all are numbers, and smaller than the largest one of the format."""
        return self.largest < _bits_of_largest(fmt)


@cache
def _bits_of_largest(fmt: Format) -> int:
    return int(np.float32(fmt.max).view(np.uint32))


def stride_of(size: int) -> int:
    """Of so many values every so many-th is counted: an odd number.

    >>> stride_of(16384), stride_of(16385), stride_of(100_000)
    (1, 3, 7)
    """
    return max(1, -(-size // _SAMPLE) | 1)


def sampled_tally(
    zeros: int, largest: int, number: int, fields: NDArray[np.int64], stride: int
) -> ValueTally:
    """The tally of which these exponents, of every stride-th value, were counted.

    number    bits of the largest magnitude that is no NaN.
    """
    exponents = fields * stride
    # The last value stands for fewer, but never for none.
    if number > 0 and not exponents[number >> _FRACTION]:
        exponents[number >> _FRACTION] += 1
    return ValueTally(zeros, largest, exponents)


@usual_arithmetic
def tally_of(values: NDArray[Any]) -> ValueTally:
    """The tally of an array, in binary32.

    >>> counts = tally_of(np.arange(100_000, dtype=np.float32)).exponents
    >>> int(counts.sum()) // 1000, int(np.flatnonzero(counts)[-1]) - 127
    (100, 16)
    """
    stride = stride_of(values.size)
    bits = flat_in_memory(values.astype(np.float32, copy=False)).view(np.uint32)
    fields = np.zeros(BINS, np.int64)
    zeros, _, largest, number = tally_values(bits, np.uint32(0), 0, stride, fields)
    return sampled_tally(zeros, largest, number, fields, stride)


def largest_of(bits: NDArray[np.uint32]) -> float:
    """The largest magnitude of binary32 numbers, given by their bits; NaN where there is one.

    >>> largest_of(np.float32([1.5, -3.0]).view(np.uint32))
    3.0
    """
    nowhere = bits.size + 1
    _, _, largest, _ = tally_values(bits, np.uint32(0), 1, nowhere, np.zeros(1, np.int64))
    return ValueTally(0, largest, np.zeros(0, np.int64)).most
