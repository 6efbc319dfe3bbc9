"""Conversions between integers and formats, each with exactly one rounding.

Source    IEEE 754-2019 §5.4.1, §5.8; invalid results as x86 and TestFloat have them;
          docs/semantics.md §3.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from fpsim.elementwise.apply import apply
from fpsim.kernels.elementwise.integers import magnitudes_to_odd, whole_numbers
from fpsim.records.flags import Flags
from fpsim.records.formats import Format
from fpsim.records.settings import Settings
from fpsim.records.types import Carrier, ElementFlags
from fpsim.state.draws import NO_DRAW, Draw
from fpsim.state.processor import usual_arithmetic

__all__ = ["INTEGERS", "round_to_integral", "to_binary64", "to_integers", "whole_format"]

#: Integer types of conversions, and what an invalid one gives.
INTEGERS = {np.dtype(f"int{n}"): -(1 << (n - 1)) for n in (8, 16, 32, 64)} | {
    np.dtype(f"uint{n}"): (1 << n) - 1 for n in (8, 16, 32, 64)
}


def to_binary64(x: NDArray[Any]) -> NDArray[np.float64]:
    """Integers in binary64, exact up to 53 digits and rounded to odd beyond.

    Rounding  to odd: any later rounding to at most 51 digits is that of the integer itself.

    >>> int(to_binary64(np.array([2**63 + 1], np.uint64))[0]) - 2**63
    2048
    >>> int(to_binary64(np.array([2**53 + 2], np.uint64))[0]) - 2**53
    2
    """
    if x.dtype.itemsize < 8:
        return x.astype(np.float64)
    flat = np.ascontiguousarray(x).reshape(-1)
    negative = flat < 0
    bits = flat.view(np.uint64)
    magnitudes = np.where(negative, ~bits + np.uint64(1), bits)
    out = np.empty(flat.shape, np.float64)
    magnitudes_to_odd(magnitudes, negative, out)
    return out.reshape(x.shape)


def whole_format(fmt: Format) -> Format:
    """A format of fmt's precision that holds its values, and each rounded to a whole number."""
    return Format.custom(9, fmt.precision) if fmt.max < 1 << (fmt.precision - 1) else fmt


def integer_type(dtype: DTypeLike) -> np.dtype[Any]:
    """The integer type, checked."""
    try:
        kind = np.dtype(dtype)
    except TypeError:
        kind = None
    if kind is None or kind not in INTEGERS:
        names = ", ".join(str(d) for d in INTEGERS)
        raise TypeError(f"dtype={dtype} is not an integer type of conversions; use {names}")
    return kind


@usual_arithmetic
def round_to_integral(
    name: str,
    operands: Sequence[Carrier],
    settings: Settings,
    *,
    out: Carrier | None = None,
    element_flags: ElementFlags | None = None,
    bits: Draw = NO_DRAW,
) -> tuple[Carrier, int]:
    """`apply` for round_to_integral, which flushes whole numbers where these are subnormal.

    Flags     UNDERFLOW and INEXACT where a result is flushed.
    """
    values, flags = apply(name, operands, settings, out=out, element_flags=element_flags, bits=bits)
    fmt = settings.format
    if settings.subnormals == "keep" or fmt.smallest_normal <= 1:
        return values, flags
    tiny = (values != 0) & (np.abs(values) < fmt.smallest_normal)
    if tiny.any():
        raised = Flags.UNDERFLOW | Flags.INEXACT
        signed = np.copysign(0.0, values) if fmt.has_negative_zero else np.zeros_like(values)
        values[tiny] = signed[tiny]
        flags |= int(raised)
        if element_flags is not None:
            element_flags[tiny] |= np.uint8(raised)
    return values, flags


@usual_arithmetic
def to_integers(
    x: NDArray[Any], whole: NDArray[Any], dtype: np.dtype[Any]
) -> tuple[NDArray[Any], NDArray[np.uint8]]:
    """Integers of values that were rounded to whole numbers, and the flags of each element.

    Flags     INVALID alone for NaN, infinity and out of range; else INEXACT where rounded.
    """
    info = np.iinfo(dtype)
    out = np.empty(x.shape, dtype)
    marks = np.empty(x.shape, np.uint8)
    with np.errstate(invalid="ignore"):  # the processor's flag for a signalling NaN is not ours
        wide = np.ascontiguousarray(x, np.float64).reshape(-1)
    whole_numbers(
        wide,
        np.ascontiguousarray(whole, np.float64).reshape(-1),
        float(info.min),
        float(info.max + 1),
        dtype.type(INTEGERS[dtype]),
        out.reshape(-1),
        marks.reshape(-1),
    )
    return out, marks
