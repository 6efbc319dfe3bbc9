"""What people hand in, as native floats that every later rounding treats as the number itself.

A float array stays as it is; integers and rationals with more digits than binary64 has are rounded
to odd at 53, which leaves room for two digits beyond any format.

Source    Boldo & Melquiond 2008 (round to odd); docs/semantics.md §1 (exactly one rounding).
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fpsim import codes, integers
from fpsim.formats import CATALOGUE, Format

__all__ = ["Scalar", "floats", "scalar", "to_odd"]

#: Python numbers, which operators take as constants.
Scalar = bool | int | float

Carrier = NDArray[np.floating[Any]]

_FORMAT_OF_STORAGE = {
    f.packed: f for f in CATALOGUE.values() if isinstance(f, Format) and f.storage
}


def scalar(value: Scalar) -> Carrier:
    """A Python number as a binary64 from which every rounding is that of the number."""
    if isinstance(value, float):
        return np.array(value, np.float64)
    return np.array(to_odd(Fraction(int(value))), np.float64)


def to_odd(x: Fraction) -> float:
    """binary64 of a rational, rounded to odd; beyond its range, its largest or smallest number."""
    if x == 0:
        return 0.0
    sign = -1.0 if x < 0 else 1.0
    x = abs(x)
    shift = 53 - (x.numerator.bit_length() - x.denominator.bit_length())
    scaled = x * Fraction(2) ** shift
    whole = scaled.numerator // scaled.denominator
    if whole >= 1 << 53:
        shift -= 1
        scaled /= 2
        whole = scaled.numerator // scaled.denominator
    if scaled.denominator != 1:
        whole |= 1
    if 53 - shift > 1023:
        return sign * np.finfo(np.float64).max
    if 53 - shift < -1000:
        return sign * 2.0**-1000
    return sign * float(np.ldexp(float(whole), -shift))


def floats(values: ArrayLike) -> Carrier:
    """Input of a conversion as binary32 or binary64 that decides every rounding alike."""
    array = np.asarray(values)
    dtype = array.dtype
    if dtype in (np.float32, np.float64):
        return array
    if dtype in _FORMAT_OF_STORAGE:
        return codes.unpack(array, _FORMAT_OF_STORAGE[dtype])
    if dtype.kind in "iub" and dtype.isnative:
        return integers.to_binary64(array.astype(np.int32) if dtype.kind == "b" else array)
    if array.dtype == object and not isinstance(values, np.ndarray) and _all_integers(array):
        exact = [to_odd(Fraction(int(v))) for v in array.flat]
        return np.array(exact, np.float64).reshape(array.shape)
    raise TypeError(
        f"values have dtype {dtype}; give floats (float16/32/64, ml_dtypes) or integers of up to "
        "64 bits; decimal strings go through ctx.decimal"
    )


def _all_integers(array: NDArray[Any]) -> bool:
    return all(isinstance(v, int) for v in array.flat)
