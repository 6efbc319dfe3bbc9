"""Comparisons, minimum and maximum, sign operations: results that need no rounding.

Source    IEEE 754-2019 §5.6.1, §5.11, §9.6; docs/semantics.md §3.
"""

from __future__ import annotations

import operator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fpsim.elementwise.apply import apply, as_read, broadcast
from fpsim.records.flags import Flags
from fpsim.records.settings import Settings
from fpsim.records.types import Carrier
from fpsim.state.processor import usual_arithmetic

__all__ = ["SIGNALLING", "compare", "extreme", "is_signalling", "with_sign"]


def _unordered(x: Carrier, y: Carrier) -> NDArray[np.bool_]:
    truth: NDArray[np.bool_] = np.isnan(x) | np.isnan(y)
    return truth


_RELATIONS = {
    "equal": operator.eq, "not_equal": operator.ne, "less": operator.lt,
    "less_equal": operator.le, "greater": operator.gt, "greater_equal": operator.ge,
    "unordered": _unordered,
}

#: Order relations signal for every NaN, the others only for signalling ones (IEEE 754 §5.11).
SIGNALLING = {name: name not in ("equal", "not_equal", "unordered") for name in _RELATIONS}


def _bits(x: Carrier) -> NDArray[Any]:
    return x.view(f"u{x.dtype.itemsize}")


def is_signalling(x: Carrier) -> NDArray[np.bool_]:
    """Where x is a signalling NaN: a NaN whose top fraction bit is clear."""
    quiet = 1 << (22 if x.dtype.itemsize == 4 else 51)
    result: NDArray[np.bool_] = np.isnan(x) & ((_bits(x) & quiet) == 0)
    return result


@usual_arithmetic
@np.errstate(invalid="ignore")
def compare(
    name: str, x: Carrier, y: Carrier, settings: Settings, signalling: bool
) -> tuple[NDArray[np.bool_], NDArray[np.uint8]]:
    """Truth values of a relation, and the flags of each element.

    Flags     INVALID for a signalling NaN; if `signalling`, for every NaN.
    """
    x, y = broadcast(as_read(x, settings), as_read(y, settings))
    truth = _RELATIONS[name](x, y)
    nan = np.isnan(x) | np.isnan(y)
    if not (signalling or settings.quiet_nan_raises):
        nan = is_signalling(x) | is_signalling(y)
    return truth, nan.astype(np.uint8) * np.uint8(Flags.INVALID)


@usual_arithmetic
@np.errstate(invalid="ignore")
def extreme(
    name: str, x: Carrier, y: Carrier, settings: Settings
) -> tuple[Carrier, NDArray[np.uint8]]:
    """maximum, minimum (a NaN wins), fmax, fmin (the number wins); -0 < +0. With element flags."""
    x, y = broadcast(as_read(x, settings), as_read(y, settings))
    largest = name in ("maximum", "fmax")
    before = (x < y) | ((x == y) & np.signbit(x) & ~np.signbit(y))
    result = np.where(before == largest, y, x)
    nan_x, nan_y = np.isnan(x), np.isnan(y)
    loud = is_signalling(x) | is_signalling(y)
    if settings.quiet_nan_raises:
        loud = loud | nan_x | nan_y
    numbers_win = name in ("fmax", "fmin")
    if numbers_win:
        result = np.where(nan_x, y, np.where(nan_y, x, result))
    nan = (nan_x & nan_y) if numbers_win else (nan_x | nan_y)
    if nan.any():
        result[nan], _ = apply("add", (x[nan], y[nan]), settings, track=False)
    return result, loud.astype(np.uint8) * np.uint8(Flags.INVALID)


@usual_arithmetic
def with_sign(name: str, x: Carrier, settings: Settings) -> Carrier:
    """negative or absolute: the sign bit alone, also of a NaN; no flags (IEEE 754 §5.5.1)."""
    sign, bits = 1 << (8 * x.dtype.itemsize - 1), _bits(x)
    if name == "absolute":
        changed = bits & bits.dtype.type(sign - 1)
    else:
        changed = bits ^ bits.dtype.type(sign)
        if not settings.format.has_negative_zero:
            changed = np.where((x == 0) | np.isnan(x), bits, changed)
    # numpy makes scalars of arrays without dimensions.
    result: Carrier = np.asarray(changed).view(x.dtype)
    return result
