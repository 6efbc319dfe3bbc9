"""IEEE 754 remainder and C's fmod: exact operations, so only invalid operands raise anything.

Source    IEEE 754-2019 §5.3.1, §7.2; docs/semantics.md §3.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from fpsim.arithmetic import Carrier, apply
from fpsim.flags import Flags
from fpsim.kernels.remainder import remainders
from fpsim.rounding import RNE
from fpsim.settings import Settings

__all__ = ["remainder"]


def _flushed(x: Carrier, settings: Settings) -> NDArray[np.float64]:
    with np.errstate(invalid="ignore"):  # the processor's flag for a signalling NaN is not ours
        wide = x.astype(np.float64)
    if settings.subnormals == "flush_both":
        wide[np.abs(wide) < settings.format.smallest_normal] *= 0.0
    return wide


def remainder(
    x: Carrier,
    y: Carrier,
    settings: Settings,
    *,
    nearest: bool,
    element_flags: NDArray[np.uint8] | None = None,
) -> tuple[Carrier, int]:
    """x - n y, with n = x / y rounded to nearest even (IEEE) or toward zero (C).

    Shapes    x and y broadcast.
    Flags     INVALID for infinite x, zero y and signalling NaN.
    Source    IEEE 754-2019 §5.3.1.
    """
    x, y = np.broadcast_arrays(x, y)
    a, b = _flushed(x, settings).ravel(), _flushed(y, settings).ravel()
    ordinary = np.isfinite(a) & np.isfinite(b) & (b != 0)
    result = np.empty(a.shape, np.float64)
    with np.errstate(invalid="ignore"):
        # Of the others: x itself where only y is infinite, else the NaN that 0/0 and NaN operands make.
        wide = replace(settings, rounding=RNE, divide_by_zero="infinity")
        result[~ordinary] = a[~ordinary]
    bits = result.view(np.uint64)
    some = np.empty(int(ordinary.sum()), np.uint64)
    remainders(a[ordinary].view(np.uint64), b[ordinary].view(np.uint64), some, nearest)
    bits[ordinary] = some
    carrier = settings.format.carrier
    marks = np.zeros(a.shape, np.uint8)
    values, flags = apply("convert", (result.astype(carrier),), wide, element_flags=marks)
    odd = np.isnan(a) | np.isnan(b) | np.isinf(a) | (b == 0)
    if odd.any():
        # 0 * inf is invalid, NaN operands keep their own; the product says all there is to say.
        left = np.where(np.isnan(a), x.ravel(), carrier.type(0))[odd]
        right = np.where(np.isnan(b), y.ravel(), carrier.type(np.inf))[odd]
        sub = np.zeros(left.shape, np.uint8)
        values[odd], _ = apply("multiply", (left, right), wide, element_flags=sub)
        marks[odd] = sub
    flags = int(np.bitwise_or.reduce(marks)) if marks.size else 0
    if element_flags is not None:
        element_flags.reshape(-1)[:] = marks
    return values.reshape(x.shape), flags & (
        int(Flags.INVALID) | int(Flags.UNDERFLOW | Flags.INEXACT)
    )
