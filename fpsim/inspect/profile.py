"""What a format would do to arrays: exponents, losses at both ends, and the best scale.

Nothing is rounded: underflow, overflow and subnormals are comparisons of each magnitude with a
threshold of the format (round to nearest, ties to even), so the counts are exact.

What a scale loses is counted in significant digits. A normal value keeps all p of them, a subnormal
value one fewer for each binade below the smallest normal; what underflows or overflows loses all.
Binades are counted from (1 - 2**-p) 2**emin down: from there on a magnitude is rounded to a normal.

Source    IEEE 754-2019 §4.3.1, §7.4, §7.5; Micikevicius et al. 2018 for the loss scale.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import ArrayLike, NDArray

from fpsim.records.formats import Format, find_number_format
from fpsim.state.processor import usual_arithmetic

__all__ = ["Profile", "profile"]

#: Magnitudes are looked at in chunks that stay in the cache.
_CHUNK = 1 << 18
#: Binary64 exponents lie within ±1100, so keys of thresholds do.
_REACH = 1100


@dataclass(frozen=True)
class Profile:
    """Counts over all elements, and what every scale 2**k loses.

    `scale_exponent` is the k of the best scale, which loses the fewest digits; of several the one
    nearest 0 (of k and -k, k > 0). `scaled_underflows`, `scaled_overflows` and `scaled_subnormals`
    are what is left of them there. NaNs and infinities stay what they are under every scale; they
    are counted and enter no other number but n.

    >>> from fpsim.records.formats import BINARY16
    >>> p = profile(np.float32([1e-9, 3e-6, 0.1, 1e6]), BINARY16)
    >>> isinstance(p, Profile), p.underflows, p.subnormals, p.overflows, p.exponents.tolist()
    (True, 1, 1, 1, [-30, -19, -4, 19])
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
    scaled_subnormals: int
    scales: NDArray[np.int64]  # k, ascending, from where all underflows to where all overflows …
    lost: NDArray[np.float64]  # … and the share of all significant digits that 2**k loses

    def lost_at(self, k: int) -> float:
        """Share of the digits that the scale 2**k loses; 0 if there are none.

        >>> from fpsim.records.formats import BINARY16
        >>> p = profile(np.float32([2.0**-30, 0.25]), BINARY16)
        >>> p.lost_at(0), p.scale_exponent, p.lost_at(16)
        (0.5, 16, 0.0)
        """
        return float(self.lost[np.clip(k - self.scales[0], 0, self.scales.size - 1)])

    def share(self, what: str) -> float:
        """A count as a share of all elements, 0 of none.

        >>> from fpsim.records.formats import BINARY16
        >>> profile(np.array([0.0, 1e-9, 1.0, 1e9]), BINARY16).share("overflows")
        0.25
        """
        return getattr(self, what) / self.n if self.n else 0.0


@usual_arithmetic
def profile(array: ArrayLike, fmt: Format | str, dtype: str | None = None) -> Profile:
    """Count what rounding `array` into fmt would do, and find the best power-of-two scale.

    A file of an ml_dtypes type holds bytes without a name; `dtype` names it, as in "bfloat16".

    Shapes    any; float16, float32, float64 and ml_dtypes' types, each read exactly.
    Rounding  round to nearest, ties to even.
    Raises    TypeError for other dtypes.

    >>> gradients = np.float32([2.0**-26, 2.0**-20, 3.0, np.nan])
    >>> p = profile(gradients, "binary16")
    >>> p.underflows, p.subnormals, p.nans, p.scale_exponent, p.scaled_subnormals
    (1, 1, 1, 12, 0)
    """
    flat = _checked(array, dtype).ravel()
    totals = _Totals(find_number_format(fmt))
    for start in range(0, flat.size, _CHUNK):
        totals.add(flat[start : start + _CHUNK].astype(np.float64))
    return totals.profile(flat.size)


def _checked(array: ArrayLike, dtype: str | None) -> NDArray[Any]:
    values = np.asarray(array)
    if dtype is not None:
        values = _named(values, dtype)
    native = values.dtype.kind == "f" and values.dtype.itemsize <= 8
    if not native and not _is_small_float(values.dtype):
        advice = "; name the type of its bytes, as in dtype='bfloat16'" * _is_bytes(values.dtype)
        raise TypeError(
            f"array has dtype {values.dtype}; give float16, float32, float64 or an ml_dtypes type"
            + advice
        )
    return values


def _named(values: NDArray[Any], dtype: str) -> NDArray[Any]:
    """Bytes without a name as the type that is named; what has a type keeps it."""
    named = getattr(ml_dtypes, dtype, None) if isinstance(dtype, str) else None
    if named is None:
        raise TypeError(f"dtype={dtype!r} is no type of ml_dtypes; name one, as in 'bfloat16'")
    if not _is_bytes(values.dtype):
        return values
    if np.dtype(named).itemsize != values.dtype.itemsize:
        raise TypeError(
            f"dtype={dtype!r} has {np.dtype(named).itemsize} bytes, elements of the array have "
            f"{values.dtype.itemsize}"
        )
    return values.view(named)


def _is_bytes(dtype: np.dtype[Any]) -> bool:
    return dtype.kind == "V" and dtype.names is None and dtype.name.startswith("void")


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
        self.normal_keys = np.zeros(2 * _REACH + 1, np.int64)

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
        # Below a normal, digits end where a magnitude of 1 - 2**-p times it is halfway to it.
        normal = exponent + (fraction >= 1 - math.ldexp(1.0, -self.format.precision))
        for keys, total in (
            (exponent - 1, self.histogram), (low, self.low_keys), (high, self.high_keys),
            (normal, self.normal_keys),
        ):
            total += np.bincount(keys + _REACH, minlength=total.size)

    def _is_between(
        self, size: NDArray[np.float64], exponent: NDArray[np.int64]
    ) -> NDArray[np.bool_]:
        """Whether a magnitude is no multiple of the format's quantum at its exponent."""
        fmt = self.format
        scaled = np.ldexp(size, fmt.precision - 1 - np.maximum(exponent - 1, fmt.emin))
        return np.asarray(scaled != np.floor(scaled))

    def losses(self, k: NDArray[np.int64]) -> tuple[NDArray[np.int64], ...]:
        """Underflows, overflows, subnormals and lost digits of the array times 2**k."""
        fmt = self.format
        underflows = _at_most(self.low_keys, self.half_exponent - k)
        overflows = self.high_keys.sum() - _at_most(self.high_keys, self.limit_exponent - 1 - k)
        lost = overflows * fmt.precision
        for digit in range(1, fmt.precision + 1):
            lost = lost + _at_most(self.normal_keys, fmt.emin + 1 - digit - k)
        subnormals = _at_most(self.normal_keys, fmt.emin - k) - underflows
        return underflows, overflows, subnormals, lost

    def profile(self, n: int) -> Profile:
        used = np.flatnonzero(self.histogram)
        exponents, counts = used - _REACH, self.histogram[used]
        scales = self._scales(exponents)
        underflows, overflows, subnormals, lost = self.losses(scales)
        order = np.lexsort((-scales, np.abs(scales), lost))
        best, zero = order[0], np.flatnonzero(scales == 0)[0]
        return Profile(
            self.format, n, self.zeros, self.nans, self.infinities, int(underflows[zero]),
            int(overflows[zero]), self.subnormals, self.inexact, exponents, counts,
            int(scales[best]), int(underflows[best]), int(overflows[best]), int(subnormals[best]),
            scales, lost / max(1, int(counts.sum()) * self.format.precision),
        )

    def _scales(self, exponents: NDArray[np.int64]) -> NDArray[np.int64]:
        """Exponents of scales, from where everything underflows to where everything overflows."""
        if not exponents.size:
            return np.zeros(1, np.int64)
        fmt = self.format
        first = min(0, fmt.emin - fmt.precision - 1 - int(exponents[-1]))
        return np.arange(first, max(0, fmt.emax + 1 - int(exponents[0])) + 1)


def _at_most(keys: NDArray[np.int64], limit: NDArray[np.int64]) -> NDArray[np.int64]:
    """How many keys are `limit` or less."""
    below = np.append(0, np.cumsum(keys))
    return below[np.clip(limit + _REACH + 1, 0, below.size - 1)]


def _overflow_limit(fmt: Format) -> tuple[float, int]:
    """(f, e) of the smallest magnitude f * 2**e, 1/2 <= f < 1, that overflows."""
    if fmt.precision == 53:
        return 0.5, fmt.emax + 2  # the magnitudes themselves have no digit more
    unit = fmt.ulp(fmt.max)
    middle = fmt.max + unit / 2
    # An even last value keeps the tie.
    even = (fmt.max / unit) % 2 == 0
    fraction, exponent = math.frexp(math.nextafter(middle, math.inf) if even else middle)
    return fraction, exponent
