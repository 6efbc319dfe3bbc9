"""Values in their carrier, integer codes, and packed storage: three faces of the same number.

`to_codes` and `from_codes` take carrier bits apart with integer operations
(`fpsim.kernels.elementwise.codes`), so no rounding takes part, and every code of every format
survives the way there and back. A NaN is carried with its payload top-aligned. FP8 NaNs are all
quiet and are carried as quiet ones; where that sets the top fraction bit of an IEEE-like 8-bit
code, the carrier's lowest bit remembers it.

Source    IEEE 754-2019 §3.4 (encodings), §6.2.1 (NaN payloads).
"""

from __future__ import annotations

import sys
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fpsim.elementwise.constants import LANES
from fpsim.kernels.elementwise.codes import CHECK, DECODE, ENCODE, Coding, codec
from fpsim.records.formats import Format
from fpsim.state.threads import run_blocks

__all__ = ["from_codes", "is_held", "pack", "to_codes", "unmasked", "unpack"]

Bits = NDArray[np.unsignedinteger[Any]]
Values = NDArray[np.floating[Any]]

#: In the place of `held` where it is not computed.
_NONE = np.zeros(1, np.uint8)

#: Elements for which a second thread is worth its cost.
_SMALLEST = 1 << 16


def to_codes(values: ArrayLike, fmt: Format, *, out: Bits | None = None) -> Bits:
    """Codes of values that the format holds, given in its carrier type.

    out       memory for them, of that shape and dtype, in C order.

    Shapes    any; the result has the same shape and the dtype `fmt.code_dtype`.
    Raises    ValueError for a value that the format does not hold (round it first).

    >>> from fpsim.records.formats import BINARY16
    >>> [hex(c) for c in to_codes(np.float32([1.0, -0.0, np.inf]), BINARY16)]
    ['0x3c00', '0x8000', '0x7c00']
    """
    array = _as_carrier(values, fmt)
    codes = np.empty(array.shape, fmt.code_dtype) if out is None else out
    if _run(ENCODE, array, codes, fmt):
        first = array[~is_held(array, fmt)][0]
        raise ValueError(
            f"values hold {first!s}, which is no value of {fmt.name}; round first: "
            f"Context({fmt.name}).array(values)"
        )
    return codes


def is_held(values: ArrayLike, fmt: Format) -> NDArray[np.bool_]:
    """Whether each carrier value is a value of the format: NaN and -0 are where it has them.

    >>> from fpsim.records.formats import E4M3FN
    >>> is_held(np.float32([448.0, 464.0, np.inf, np.nan]), E4M3FN)
    array([ True, False, False,  True])
    """
    array = _as_carrier(values, fmt)
    held = np.empty(array.shape, np.uint8)
    _run(CHECK, array, np.empty(array.shape, fmt.code_dtype), fmt, held)
    is_value = held.view(np.bool_)
    return is_value if fmt.has_negative_zero else is_value & ~((array == 0) & np.signbit(array))


def unmasked(values: ArrayLike) -> NDArray[Any]:
    """An ndarray of what people hand in, which may not have a mask: it would be lost.

    Raises    TypeError for a masked array.
    """
    # Where nobody imported numpy.ma there is none, and importing it takes time.
    masks = sys.modules.get("numpy.ma")
    if masks is not None and isinstance(values, masks.MaskedArray):
        raise TypeError(
            "values are a masked array, whose mask fpsim does not keep; give values.filled(number) "
            "or values.compressed()"
        )
    return np.asarray(values)


def _as_carrier(values: ArrayLike, fmt: Format) -> Values:
    array = unmasked(values)
    if array.dtype != fmt.carrier:
        raise TypeError(
            f"values have dtype {array.dtype}; {fmt.name} is carried in {fmt.carrier}. "
            f"Round with Context({fmt.name}).array(values), or use encode"
        )
    return array


def from_codes(codes: ArrayLike, fmt: Format) -> Values:
    """Carrier values of codes, exactly.

    Raises    ValueError for codes beyond the format's width, TypeError for what is no integer.

    >>> from fpsim.records.formats import F143
    >>> from_codes([0x00, 0x01, 0x7F, 0x80], F143).tolist()
    [0.0, 0.0009765625, 240.0, nan]
    """
    array = _checked_codes(codes, fmt)
    values = np.empty(array.shape, fmt.carrier)
    _run(DECODE, array, values, fmt)
    return values


def _checked_codes(codes: ArrayLike, fmt: Format) -> Bits:
    array = unmasked(codes)
    if array.dtype.kind not in "ui":
        raise TypeError(f"codes have dtype {array.dtype}; give integers (pack, unpack for storage)")
    full = array.dtype == fmt.code_dtype and fmt.bits == 8 * array.itemsize
    if not full and array.size and (array.min() < 0 or array.max() > fmt.n_codes - 1):
        raise ValueError(f"codes are out of range; {fmt.name} has codes 0 to {fmt.n_codes - 1:#x}")
    return array.astype(fmt.code_dtype, copy=False)


def _run(
    what: int, source: NDArray[Any], target: NDArray[Any], fmt: Format, held: Any = _NONE
) -> int:
    """The kernel on arrays of any layout; tells whether a value is not held."""
    codes, words, marks = _words(source), _words(target), held.reshape(-1)
    loop, constants = codec(what), _coding(fmt)

    def work(a: int, b: int) -> int:
        bad: int = loop(codes[a:b], words[a:b], marks[a:b], constants)
        return bad

    return run_blocks(work, 0, source.size, _SMALLEST, 16)


#: Unsigned integers by their bytes.
_WORDS = {size: np.dtype(f"u{size}") for size in (1, 2, 4, 8)}


def _words(array: NDArray[Any]) -> Bits:
    if not array.flags.c_contiguous:
        array = np.ascontiguousarray(array)
    return array.reshape(-1).view(_WORDS[array.itemsize])


@lru_cache(maxsize=256)
def _coding(fmt: Format) -> NDArray[np.unsignedinteger[Any]]:
    """The constants of the kernels for a format."""
    lane = LANES[8 * fmt.carrier.itemsize]
    digits, p = lane.digits, fmt.precision
    everything, body = lane.sign | (lane.sign - 1), (1 << (fmt.bits - 1)) - 1
    smallest = fmt.emin + lane.bias
    quantum = fmt.emin - p + 1
    ieee = fmt.specials == "ieee"
    infinity = ((1 << fmt.exponent_bits) - 1) << (p - 1)
    extended = fmt.specials == "extended"
    nan = {"ieee": infinity, "fn": body, "finite": 0}.get(fmt.specials, body + 1)
    marked = ieee and not fmt.has_signalling_nan
    coding = Coding(
        drop=digits - p,
        hidden=1 << (digits - 1),
        smallest=smallest,
        offset=(smallest - 1) << (digits - 1),
        normal=lane.bits(fmt.smallest_normal),
        largest=lane.bits(fmt.max),
        nan_above=lane.infinity if fmt.has_nan else everything,
        infinity_held=lane.infinity if fmt.has_infinity else everything,
        infinity_code=infinity if ieee else body if extended else 0,
        nan_code=nan,
        payload=(1 << (p - 1)) - 1 if ieee else 0,
        lost_payload=1 << (p - 2),
        mark_cleared=1 << (p - 2) if marked and p > 2 else 0,
        mark=lane.quiet | 1 if marked else 0,
        sign_shift=lane.width - fmt.bits,
        zero_sign=everything if fmt.has_negative_zero else 0,
        body=body,
        first_normal=1 << (p - 1),
        special={"ieee": infinity, "fn": body, "extended": body}.get(fmt.specials, body + 1),
        special_bits=lane.infinity | (0 if ieee or extended else lane.quiet),
        quantum=(quantum << (digits - 1)) & everything,
        quantum_field=max(0, -quantum),
        own_shift=min(max(quantum + lane.bias + digits - 2, 0), lane.width - 1),
    )
    return np.array(coding, fmt.carrier.str.replace("f", "u"))


# Storage and people --------------------------------------------------------------------------


def pack(values: ArrayLike, fmt: Format) -> NDArray[Any]:
    """Carrier values as an array of the format's storage type.

    >>> from fpsim.records.formats import E4M3FN, TF32
    >>> pack(np.float32([448.0]), E4M3FN).dtype.name, pack(np.float32([1.0]), TF32).dtype.name
    ('float8_e4m3fn', 'uint32')
    """
    return to_codes(values, fmt).view(fmt.packed)


def unpack(packed: ArrayLike, fmt: Format) -> Values:
    """Carrier values of packed storage.

    Raises    TypeError where the storage type is not the format's.
    """
    array = unmasked(packed)
    if array.dtype != fmt.packed:
        raise TypeError(f"packed has dtype {array.dtype}; {fmt.name} is stored as {fmt.packed}")
    codes = np.ascontiguousarray(array).view(fmt.code_dtype).reshape(array.shape)
    return from_codes(codes, fmt)
