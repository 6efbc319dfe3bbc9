"""What users pass, as native floats that every later rounding treats as the number itself.

A float array stays as it is; integers and rationals with more digits than binary64 has are rounded
to odd at 53, which leaves room for two digits beyond any format. binary64 itself, the native
reference, takes them rounded to nearest instead: for it nothing is rounded later.

Texts may have exponents and digits without end. What lies beyond every format is not written out,
and of digits only as many are kept as any boundary of a rounding has.

Source    Boldo & Melquiond 2008 (round to odd); docs/semantics.md §1 (exactly one rounding).
"""

from __future__ import annotations

import re
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fpsim.elementwise import codes, integers
from fpsim.records.formats import CATALOGUE, Format

__all__ = [
    "Scalar", "decimal", "exact", "exponent", "floats", "scalar", "to_odd",
]

#: Python numbers, which operators take as constants.
Scalar = bool | int | float

Carrier = NDArray[np.floating[Any]]

#: Powers of ten beyond which no format has a value, nor a digit of one.
_FARTHEST = 1000

#: Significant digits that are kept. A binary64 number, the middle of two, and a number 32 binary
#: digits between them have fewer than 800, so none lies between a text and what is kept of it.
_KEPT = 1600

_DIGITS = r"\d+(?:_\d+)*"
_NUMBER = re.compile(
    rf"(?P<sign>[+-]?)(?=\.?\d)(?P<integer>(?:{_DIGITS})?)"
    rf"(?:/(?P<divisor>{_DIGITS})|(?:\.(?P<fraction>(?:{_DIGITS})?))?(?:e(?P<power>[+-]?{_DIGITS}))?)",
    re.ASCII | re.IGNORECASE,
)
_SPECIAL = re.compile("[+-]?(inf|infinity|nan)", re.IGNORECASE)

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

    Raises    TypeError for what is no string; ValueError for a text that is no number.
    Source    IEEE 754-2019 §5.12.

    >>> decimal("-1/4"), decimal("-0"), decimal("inf"), decimal("1e-999999999") > 0
    (-0.25, -0.0, inf, True)
    """
    if not isinstance(text, str):
        raise TypeError(
            f"text={text!r} is no string; give digits as in '0.1', or numbers to ctx.array"
        )
    if _SPECIAL.fullmatch(text.strip()):
        return float(text)
    try:
        x = exact(text)
    except ValueError:
        raise ValueError(
            f"text={_short(text)} is no number; give digits as in '-1.5e-3', a fraction as in "
            "'1/3', 'inf' or 'nan'"
        ) from None
    return _binary64(x, native) if x else -0.0 if text.strip().startswith("-") else 0.0


def exact(text: str) -> Fraction:
    """The number that decimal digits or a fraction mean, as far as a rounding can tell.

    Beyond 10**±1000 it is that power, and digits after the 1600th are joined into one: no value of
    a format, and no boundary of a rounding mode, lies between the two numbers.

    Raises    ValueError for what is no number.

    >>> exact("-.5e1"), exact("2/6"), exact("1e999999999") == 10**1000
    (Fraction(-5, 1), Fraction(1, 3), True)
    """
    match = _NUMBER.fullmatch(text.strip())
    if not match:
        raise ValueError(f"{_short(text)} is no number")
    field = {name: (value or "").replace("_", "") for name, value in match.groupdict().items()}
    if field["divisor"]:
        if not field["divisor"].strip("0"):
            raise ValueError(f"{_short(text)} divides by zero")
        # int() of a text refuses more digits than 4300; a Decimal takes them all.
        size = Fraction(int(Decimal(field["integer"])), int(Decimal(field["divisor"])))
    else:
        power = exponent(field["power"] or "0") - len(field["fraction"])
        size = _scaled((field["integer"] + field["fraction"]).lstrip("0"), power)
    return -size if field["sign"] == "-" else size


def exponent(text: str) -> int:
    """An exponent; one of more than 18 digits is as good as any such."""
    if len(text.lstrip("+-0")) > 18:
        return -(10**18) if text.startswith("-") else 10**18
    return int(text)


def _scaled(digits: str, power: int) -> Fraction:
    """digits * 10**power, digits without leading zeros."""
    if not digits:
        return Fraction(0)
    top = len(digits) + power
    if abs(top) > _FARTHEST:
        return Fraction(10) ** (_FARTHEST if top > 0 else -_FARTHEST)
    if len(digits) > _KEPT:
        tail = digits[_KEPT:]
        power += len(tail) - 1
        digits = digits[:_KEPT] + ("1" if tail.strip("0") else "0")
    return int(digits) * Fraction(10) ** power


def _short(text: str) -> str:
    return repr(text) if len(text) <= 40 else f"{text[:40]!r}… ({len(text)} characters)"


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
    significand = scaled.numerator // scaled.denominator
    if significand >= 1 << 53:
        shift -= 1
        scaled /= 2
        significand = scaled.numerator // scaled.denominator
    if scaled.denominator != 1:
        significand |= 1
    if 53 - shift > 1024:
        return sign * np.finfo(np.float64).max
    if 53 - shift < -1000:
        return sign * 2.0**-1000
    return sign * float(np.ldexp(float(significand), -shift))


def floats(values: ArrayLike, native: bool = False) -> Carrier:
    """Input of a conversion as binary32 or binary64 that decides every rounding alike."""
    array = codes.unmasked(values)
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
    """Python numbers that numpy holds as floats or objects; integers among them may be long."""
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
