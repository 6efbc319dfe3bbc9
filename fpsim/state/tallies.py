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

__all__ = [
    "BINS", "ValueTally", "bits_of_largest", "number_of", "sampled_exponents",
    "sampled_exponents_of_many", "stride_of", "tally_of",
]

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
        return number_of(self.largest)

    def is_below_largest(self, fmt: Format) -> bool:
        """Whether all are numbers, and smaller than the largest one of the format."""
        return self.largest < bits_of_largest(fmt)


@usual_arithmetic
def _narrowed(values: NDArray[Any]) -> NDArray[np.float32]:
    return values.astype(np.float32)


def number_of(bits: int) -> float:
    """The binary32 number with these bits.

    >>> number_of(0x3FC00000)
    1.5
    """
    return float(np.uint32(bits).view(np.float32))


@cache
def bits_of_largest(fmt: Format) -> int:
    """Those of the largest number of a format, in binary32."""
    return int(np.float32(fmt.max).view(np.uint32))


def stride_of(size: int) -> int:
    """Of so many values every so many-th is counted: an odd number.

    >>> stride_of(16384), stride_of(16385), stride_of(100_000)
    (1, 3, 7)
    """
    return max(1, -(-size // _SAMPLE) | 1)


def sampled_exponents(number: int, fields: NDArray[np.int64], stride: int) -> NDArray[np.int64]:
    """Exponents of values of which these were counted, of every stride-th value.

    number    bits of the largest magnitude that is no NaN.
    """
    exponents = fields * stride if stride > 1 else fields
    # The last value stands for fewer, but never for none.
    if number > 0 and not exponents[number >> _FRACTION]:
        exponents[number >> _FRACTION] += 1
    return exponents


def sampled_exponents_of_many(
    numbers: NDArray[np.int64], fields: NDArray[np.int64], strides: NDArray[np.int64]
) -> NDArray[np.int64]:
    """The same of results of many arrays.

    Shapes    numbers (arrays, results), fields (arrays, results, BINS), strides (arrays).
    """
    exponents = fields * strides[:, None, None]
    places = (numbers >> _FRACTION)[..., None]
    counted = np.take_along_axis(exponents, places, -1)
    counted[(counted == 0) & (numbers > 0)[..., None]] = 1
    np.put_along_axis(exponents, places, counted, -1)
    return exponents


def tally_of(values: NDArray[Any]) -> ValueTally:
    """The tally of an array, in binary32.

    >>> counts = tally_of(np.arange(100_000, dtype=np.float32)).exponents
    >>> int(counts.sum()) // 1000, int(np.flatnonzero(counts)[-1]) - 127
    (100, 16)
    """
    stride = stride_of(values.size)
    if values.dtype != np.float32:
        values = _narrowed(values)
    bits = flat_in_memory(values).view(np.uint32)
    fields = np.zeros(BINS, np.int64)
    zeros, largest, number = tally_values(bits, 0, stride, fields)
    return ValueTally(zeros, largest, sampled_exponents(number, fields, stride))
