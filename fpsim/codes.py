"""Values in their carrier, integer codes, and packed storage: three faces of the same number.

`to_codes` and `from_codes` take carrier bits apart with integer operations, so no rounding and no
processor switch takes part, and every code of every format survives the way there and back. A NaN
is carried with its payload top-aligned. FP8 NaNs are all quiet and are carried as quiet ones; where
that sets the top fraction bit of an IEEE-like 8-bit code, the carrier's lowest bit remembers it.

Source    IEEE 754-2019 §3.4 (encodings), §6.2.1 (NaN payloads).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fpsim.formats import Format

__all__ = ["from_codes", "is_held", "pack", "to_codes", "unpack"]

Bits = NDArray[np.unsignedinteger[Any]]
Values = NDArray[np.floating[Any]]


class _Carrier:
    """Layout of binary32 or binary64 as unsigned integers."""

    def __init__(self, dtype: np.dtype[Any]) -> None:
        self.float = dtype
        self.uint = np.dtype(f"u{dtype.itemsize}")
        self.width = 8 * dtype.itemsize
        self.digits = 24 if self.width == 32 else 53
        self.fraction_bits = self.digits - 1
        self.emin = -126 if self.width == 32 else -1022
        self.top = (1 << (self.width - self.digits)) - 1
        self.hidden = 1 << self.fraction_bits
        self.infinity = self.top << self.fraction_bits
        self.quiet = self.hidden >> 1


_CARRIERS = {np.dtype(t): _Carrier(np.dtype(t)) for t in (np.float32, np.float64)}


def to_codes(values: ArrayLike, fmt: Format) -> Bits:
    """Codes of values that the format holds, given in its carrier type.

    Shapes    any; the result has the same shape and the dtype `fmt.code_dtype`.
    Raises    ValueError for a value that the format does not hold (round it first).

    >>> from fpsim.formats import BINARY16
    >>> [hex(c) for c in to_codes(np.float32([1.0, -0.0, np.inf]), BINARY16)]
    ['0x3c00', '0x8000', '0x7c00']
    """
    array = _as_carrier(values, fmt)
    codes = _codes_of(array.ravel(), fmt)
    held = _same_bits(_values_of(codes, fmt), array.ravel(), fmt)
    if not held.all():
        first = array.ravel()[~held][0]
        raise ValueError(
            f"values hold {first!s}, which is no value of {fmt.name}; round first: "
            f"Context({fmt.name}).array(values)"
        )
    return codes.reshape(array.shape)


def is_held(values: ArrayLike, fmt: Format) -> NDArray[np.bool_]:
    """Whether each carrier value is a value of the format (a NaN is, where the format has one).

    >>> from fpsim.formats import E4M3FN
    >>> is_held(np.float32([448.0, 464.0, np.inf, np.nan]), E4M3FN)
    array([ True, False, False,  True])
    """
    array = _as_carrier(values, fmt)
    flat = array.ravel()
    return _same_bits(_values_of(_codes_of(flat, fmt), fmt), flat, fmt).reshape(array.shape)


def _as_carrier(values: ArrayLike, fmt: Format) -> Values:
    array = np.asarray(values)
    if array.dtype != fmt.carrier:
        raise TypeError(
            f"values have dtype {array.dtype}; {fmt.name} is carried in {fmt.carrier}. "
            f"Round with Context({fmt.name}).array(values), or use encode"
        )
    return array


def _same_bits(found: Values, wanted: Values, fmt: Format) -> NDArray[np.bool_]:
    """Equal as values; any two NaNs agree, and so do zeros where the format has one zero."""
    c = _CARRIERS[fmt.carrier]
    same = found.view(c.uint) == wanted.view(c.uint)
    if fmt.has_nan:
        same |= np.isnan(found) & np.isnan(wanted)
    if not fmt.has_negative_zero:
        same |= (found == 0) & (wanted == 0)
    return np.asarray(same)


def _codes_of(flat: Values, fmt: Format) -> Bits:
    """Codes where `flat` holds values of the format; anything elsewhere."""
    c = _CARRIERS[fmt.carrier]
    bits = flat.view(c.uint)
    magnitude = bits & (bits.dtype.type(1 << (c.width - 1)) - 1)
    body = _number_body(magnitude, c, fmt)
    body = np.where(magnitude >= c.infinity, _special_body(magnitude, c, fmt), body)
    sign = (bits >> (c.width - 1)) << (fmt.bits - 1)
    code = body | sign
    if fmt.specials == "fnuz":
        code = np.where(magnitude == 0, 0, code)
        code = np.where(magnitude > c.infinity, 1 << (fmt.bits - 1), code)
    return np.asarray(code.astype(fmt.code_dtype))


def _number_body(magnitude: Bits, c: _Carrier, fmt: Format) -> Bits:
    """Exponent field and fraction: the significand added to the field below its own."""
    field = magnitude >> c.fraction_bits
    significand = magnitude & (c.hidden - 1)
    significand = np.where(field > 0, significand | c.hidden, significand)
    # The exponent fields of the carrier and of the format differ by a constant.
    smallest = fmt.emin - c.emin + 1
    shortfall = np.maximum(smallest, np.maximum(field, 1)) - np.maximum(field, 1)
    shift = np.minimum(shortfall + (c.digits - fmt.precision), c.width - 1)
    target = np.maximum(field, smallest) - smallest
    code: Bits = (target << (fmt.precision - 1)) + (significand >> shift.astype(c.uint))
    return code & (magnitude.dtype.type(1 << (fmt.bits - 1)) - 1)


def _special_body(magnitude: Bits, c: _Carrier, fmt: Format) -> Bits:
    """Infinities and NaNs without their sign."""
    if fmt.specials == "ieee":
        infinity = ((1 << fmt.exponent_bits) - 1) << (fmt.precision - 1)
        payload = (magnitude & (c.hidden - 1)) >> (c.digits - fmt.precision)
        lost = (magnitude > c.infinity) & (payload == 0)
        payload = np.where(lost, 1 << (fmt.precision - 2), payload)
        if not fmt.has_signalling_nan and fmt.precision > 2:
            marked = (magnitude > c.infinity) & (magnitude & 1 == 1)
            payload = np.where(marked, payload & ((1 << (fmt.precision - 2)) - 1), payload)
        return np.asarray(payload | infinity)
    all_ones = (1 << (fmt.bits - 1)) - 1
    # No infinity to hold: the largest number, which is not what came in.
    return np.where(magnitude > c.infinity, all_ones, 0).astype(c.uint)


def from_codes(codes: ArrayLike, fmt: Format) -> Values:
    """Carrier values of codes, exactly.

    Raises    ValueError for codes beyond the format's width, TypeError for what is no integer.

    >>> from fpsim.formats import F143
    >>> from_codes([0x00, 0x01, 0x7F, 0x80], F143).tolist()
    [0.0, 0.0009765625, 240.0, nan]
    """
    array = _checked_codes(codes, fmt)
    return _values_of(array.ravel(), fmt).reshape(array.shape)


def _values_of(codes: Bits, fmt: Format) -> Values:
    c = _CARRIERS[fmt.carrier]
    code: Bits = codes.astype(c.uint)
    body: Bits = code & c.uint.type((1 << (fmt.bits - 1)) - 1)
    is_normal = body >> (fmt.precision - 1) > 0
    bits = np.where(is_normal, _normal_bits(body, c, fmt), _subnormal_bits(body, c, fmt))
    bits = _with_specials(bits, body, code, c, fmt)
    sign = (code >> (fmt.bits - 1)) << (c.width - 1)
    if fmt.specials == "fnuz":
        sign = np.where(body == 0, 0, sign)
    values: Values = (bits | sign).astype(c.uint).view(c.float)
    return values


def _checked_codes(codes: ArrayLike, fmt: Format) -> Bits:
    array = np.asarray(codes)
    if array.dtype.kind not in "ui":
        raise TypeError(f"codes have dtype {array.dtype}; give integers (pack, unpack for storage)")
    if array.size and (array.min() < 0 or array.max() > fmt.n_codes - 1):
        raise ValueError(f"codes are out of range; {fmt.name} has codes 0 to {fmt.n_codes - 1:#x}")
    return array


def _normal_bits(body: Bits, c: _Carrier, fmt: Format) -> Bits:
    shift = c.digits - fmt.precision
    offset = (fmt.emin - c.emin) << c.fraction_bits
    return np.asarray((body << shift) + body.dtype.type(offset))


def _subnormal_bits(body: Bits, c: _Carrier, fmt: Format) -> Bits:
    """m quanta: normalised for the carrier, or one of the carrier's own subnormals."""
    m = body & ((1 << (fmt.precision - 1)) - 1)
    leading = (m.astype(np.float64).view(np.uint64) >> 52).astype(np.int64) - 1023
    quantum = fmt.emin - fmt.precision + 1
    exponent = leading + quantum
    shift = np.clip(c.fraction_bits - leading, 0, c.width - 1).astype(c.uint)
    field = np.maximum(exponent - c.emin, 0).astype(c.uint)
    normal = (field << c.fraction_bits) + (m << shift)
    own = m << max(quantum - (c.emin - c.fraction_bits), 0)
    bits = np.where(exponent >= c.emin, normal, own)
    return np.where(m == 0, 0, bits).astype(c.uint)


def _with_specials(bits: Bits, body: Bits, code: Bits, c: _Carrier, fmt: Format) -> Bits:
    """Put infinities and NaNs over the numbers that their codes would be."""
    if fmt.specials == "ieee":
        infinity = ((1 << fmt.exponent_bits) - 1) << (fmt.precision - 1)
        payload = (body & ((1 << (fmt.precision - 1)) - 1)) << (c.digits - fmt.precision)
        if not fmt.has_signalling_nan:
            hidden_quiet = (payload != 0) & (payload & c.quiet == 0)
            payload = np.where(hidden_quiet, payload | c.quiet | 1, payload)
        return np.where(body >= infinity, payload | c.infinity, bits)
    if fmt.specials == "fn":
        return np.where(body == (1 << (fmt.bits - 1)) - 1, c.infinity | c.quiet, bits)
    if fmt.specials == "fnuz":
        return np.where(code == 1 << (fmt.bits - 1), c.infinity | c.quiet, bits)
    return bits


# Storage and people --------------------------------------------------------------------------


def pack(values: ArrayLike, fmt: Format) -> NDArray[Any]:
    """Carrier values as an array of the format's storage type.

    >>> from fpsim.formats import E4M3FN, TF32
    >>> pack(np.float32([448.0]), E4M3FN).dtype.name, pack(np.float32([1.0]), TF32).dtype.name
    ('float8_e4m3fn', 'uint32')
    """
    return to_codes(values, fmt).view(fmt.packed)


def unpack(packed: ArrayLike, fmt: Format) -> Values:
    """Carrier values of packed storage.

    Raises    TypeError where the storage type is not the format's.
    """
    array = np.asarray(packed)
    if array.dtype != fmt.packed:
        raise TypeError(f"packed has dtype {array.dtype}; {fmt.name} is stored as {fmt.packed}")
    codes = np.ascontiguousarray(array).view(fmt.code_dtype).reshape(array.shape)
    return from_codes(codes, fmt)
