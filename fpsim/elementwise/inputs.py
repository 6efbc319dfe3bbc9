"""What people hand in, as native floats that every later rounding treats as the number itself.

A float array stays as it is; integers and rationals with more digits than binary64 has are rounded
to odd at 53, which leaves room for two digits beyond any format. binary64 itself, the native
reference, takes them rounded to nearest instead: for it nothing is rounded later.

Source    Boldo & Melquiond 2008 (round to odd); docs/semantics.md §1 (exactly one rounding).
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fpsim.elementwise import codes, integers
from fpsim.records.formats import CATALOGUE, Format

__all__ = ["Scalar", "decimal", "floats", "scalar", "to_odd"]

#: Python numbers, which operators take as constants.
Scalar = bool | int | float

Carrier = NDArray[np.floating[Any]]

_FORMAT_OF_STORAGE = {
    f.packed: f for f in CATALOGUE.values() if isinstance(f, Format) and f.storage
}


def scalar(value: Scalar, native: bool = False) -> Carrier:
    """A Python number as a binary64 from which every rounding is that of the number."""
    if isinstance(value, float):
        return np.array(value, np.float64)
    return np.array(_binary64(Fraction(int(value)), native), np.float64)


def decimal(text: str, native: bool = False) -> float:
    """A number in decimal digits, or a fraction, as `scalar` gives numbers; -0, inf and nan too.

    Source    IEEE 754-2019 §5.12.

    >>> decimal("-1/4"), decimal("-0"), decimal("inf")
    (-0.25, -0.0, inf)
    """
    if not isinstance(text, str):
        raise TypeError(
            f"text={text!r} is no string; give digits as in '0.1', or numbers to ctx.array"
        )
    if text.strip().lower().lstrip("+-") in ("inf", "infinity", "nan"):
        return float(text)
    try:
        exact = Fraction(text)
    except (ValueError, ZeroDivisionError):
        raise ValueError(
            f"text={text!r} is no number; give digits as in '-1.5e-3', a fraction as in '1/3', "
            "'inf' or 'nan'"
        ) from None
    return _binary64(exact, native) if exact else -0.0 if text.strip().startswith("-") else 0.0


def _binary64(x: Fraction, native: bool) -> float:
    """To nearest if `native`, else to odd."""
    if not native:
        return to_odd(x)
    try:
        return x.numerator / x.denominator  # correctly rounded by Python
    except OverflowError:
        return float("-inf") if x < 0 else float("inf")


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


def floats(values: ArrayLike, native: bool = False) -> Carrier:
    """Input of a conversion as binary32 or binary64 that decides every rounding alike."""
    array = np.asarray(values)
    dtype = array.dtype
    if not isinstance(values, np.ndarray) and dtype in (np.float64, object):
        return _items(values, array, native)
    if dtype in (np.float32, np.float64):
        return array
    if dtype in _FORMAT_OF_STORAGE:
        return codes.unpack(array, _FORMAT_OF_STORAGE[dtype])
    if dtype.kind in "iub" and dtype.isnative:
        if native or dtype.kind == "b":
            return array.astype(np.float64)
        return integers.to_binary64(array)
    raise _unsuitable(dtype)


def _items(values: ArrayLike, array: NDArray[Any], native: bool) -> Carrier:
    """Python numbers, of which numpy made floats or objects: integers among them may be long."""
    if array.dtype != object and not (np.abs(array) >= 2.0**53).any():
        return array
    items = np.asarray(values, object)
    if not all(isinstance(x, (int, float, np.integer, np.floating)) for x in items.flat):
        raise _unsuitable(array.dtype)
    exact = [_of_item(x, native) for x in items.flat]
    return np.array(exact, np.float64).reshape(array.shape)


def _of_item(x: Any, native: bool) -> float:
    return float(x) if isinstance(x, (float, np.floating)) else float(scalar(int(x), native))


def _unsuitable(dtype: np.dtype[Any]) -> TypeError:
    return TypeError(
        f"values have dtype {dtype}; give floats (float16/32/64, ml_dtypes) or integers of up to "
        "64 bits, in this machine's byte order; decimal strings go through ctx.decimal"
    )
