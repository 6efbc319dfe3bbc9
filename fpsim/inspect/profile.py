"""What a format would do to given arrays: exponents, losses at both ends, and the best scale.

Nothing is rounded: underflow, overflow and subnormals are comparisons of each magnitude with a
threshold of the format (round to nearest, ties to even), so the counts are exact.

Source    IEEE 754-2019 §4.3.1, §7.4, §7.5; Micikevicius et al. 2018 for the loss scale.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fpsim.records.formats import Format

__all__ = ["Profile", "profile"]

#: Magnitudes are looked at in chunks that stay in the cache.
_CHUNK = 1 << 18
#: Binary64 exponents lie within ±1100, so keys of thresholds do; a scale joins two of them.
_REACH = 1100


@dataclass(frozen=True)
class Profile:
    """Counts over all elements; `scale_exponent` is the k of the best scale 2**k.

    The best k has the fewest underflows and overflows together; of several the one nearest 0 (of
    k and -k, k > 0). `scaled_underflows` and `scaled_overflows` are what is left of them there.
    """

    format: Format
    n: int
    zeros: int
    nans: int
    infinities: int
    underflows: int  # not zero, rounded to zero
    overflows: int  # finite, rounded beyond the largest finite value
    subnormals: int  # rounded to a subnormal value
    inexact: int  # finite and changed by rounding
    exponents: NDArray[np.int64]  # floor(log2|x|), ascending …
    counts: NDArray[np.int64]  # … and how many finite elements other than zero have it
    scale_exponent: int
    scaled_underflows: int
    scaled_overflows: int

    def share(self, what: str) -> float:
        """A count as a share of all elements, 0 of none.

        >>> from fpsim.records.formats import BINARY16
        >>> profile(np.array([0.0, 1e-9, 1.0, 1e9]), BINARY16).share("overflows")
        0.25
        """
        return getattr(self, what) / self.n if self.n else 0.0


def profile(array: ArrayLike, fmt: Format) -> Profile:
    """Count what rounding `array` into fmt would do, and find the best power-of-two scale.

    Shapes    any; float16, float32, float64 and ml_dtypes' types, each read exactly.
    Rounding  round to nearest, ties to even.
    Raises    TypeError for other dtypes.

    >>> from fpsim.records.formats import BINARY16
    >>> gradients = np.float32([2.0**-26, 2.0**-20, 3.0, 0.0])
    >>> p = profile(gradients, BINARY16)
    >>> p.underflows, p.subnormals, p.scale_exponent, p.scaled_underflows
    (1, 1, 2, 0)
    """
    flat = _checked(array).ravel()
    totals = _Totals(fmt)
    for start in range(0, flat.size, _CHUNK):
        totals.add(flat[start : start + _CHUNK].astype(np.float64))
    return totals.profile(flat.size)


def _checked(array: ArrayLike) -> NDArray[Any]:
    values = np.asarray(array)
    native = values.dtype.kind == "f" and values.dtype.itemsize <= 8
    if not native and not _is_small_float(values.dtype):
        raise TypeError(
            f"array has dtype {values.dtype}; give float16, float32, float64 or an ml_dtypes type"
        )
    return values


def _is_small_float(dtype: np.dtype[Any]) -> bool:
    return dtype.kind == "V" and dtype.names is None and "float" in dtype.name


class _Totals:
    """Sums over chunks. A key is the binary exponent at which a magnitude meets a threshold."""

    def __init__(self, fmt: Format) -> None:
        self.format = fmt
        quantum = fmt.emin - fmt.precision + 1
        self.half_exponent = quantum - 1
        self.normal = fmt.smallest_normal - math.ldexp(1.0, self.half_exponent)
        self.limit, self.limit_exponent = _overflow_limit(fmt)
        self.zeros = self.nans = self.infinities = self.subnormals = self.inexact = 0
        self.histogram = np.zeros(2 * _REACH + 1, np.int64)
        self.low_keys = np.zeros(2 * _REACH + 1, np.int64)
        self.high_keys = np.zeros(2 * _REACH + 1, np.int64)

    def add(self, x: NDArray[np.float64]) -> None:
        size = np.abs(x)
        self.nans += int(np.isnan(size).sum())
        self.infinities += int(np.isinf(size).sum())
        self.zeros += int((size == 0).sum())
        size = size[(size > 0) & (size < np.inf)]
        fraction, exponent = np.frexp(size)
        exponent = exponent.astype(np.int64)
        low = np.where(fraction == 0.5, exponent - 1, exponent)  # ceil(log2 size)
        high = np.where(fraction >= self.limit, exponent, exponent - 1)
        lost = (low <= self.half_exponent) | (high >= self.limit_exponent)
        self.inexact += int((lost | self._is_between(size, exponent)).sum())
        self.subnormals += int(((low > self.half_exponent) & (size < self.normal)).sum())
        for keys, total in (
            (exponent - 1, self.histogram), (low, self.low_keys), (high, self.high_keys),
        ):  # fmt: skip
            total += np.bincount(keys + _REACH, minlength=total.size)

    def _is_between(
        self, size: NDArray[np.float64], exponent: NDArray[np.int64]
    ) -> NDArray[np.bool_]:
        """Whether a magnitude is no multiple of the format's quantum at its exponent."""
        fmt = self.format
        scaled = np.ldexp(size, fmt.precision - 1 - np.maximum(exponent - 1, fmt.emin))
        return np.asarray(scaled != np.floor(scaled))

    def losses(self, k: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Underflows and overflows of the array times 2**k."""
        below = np.append(0, np.cumsum(self.low_keys))
        at_least = below[-1] - np.append(0, np.cumsum(self.high_keys))
        edge = np.clip(self.half_exponent - k + _REACH + 1, 0, below.size - 1)
        start = np.clip(self.limit_exponent - k + _REACH, 0, below.size - 1)
        return below[edge], at_least[start]

    def profile(self, n: int) -> Profile:
        k = np.array(sorted(range(-2 * _REACH, 2 * _REACH + 1), key=lambda k: (abs(k), -k)))
        underflows, overflows = self.losses(k)
        best = int(np.argmin(underflows + overflows))  # the first of the least
        used = np.flatnonzero(self.histogram)
        return Profile(
            self.format, n, self.zeros, self.nans, self.infinities, int(underflows[0]),
            int(overflows[0]), self.subnormals, self.inexact, used - _REACH, self.histogram[used],
            int(k[best]), int(underflows[best]), int(overflows[best]),
        )  # fmt: skip


def _overflow_limit(fmt: Format) -> tuple[float, int]:
    """(f, e) of the smallest magnitude f * 2**e, 1/2 <= f < 1, that overflows; e = 2000 if none."""
    if fmt.precision == 53:
        return 0.5, 2000
    unit = fmt.ulp(fmt.max)
    middle = fmt.max + unit / 2
    # An even last value keeps the tie.
    even = (fmt.max / unit) % 2 == 0
    fraction, exponent = math.frexp(math.nextafter(middle, math.inf) if even else middle)
    return fraction, exponent
