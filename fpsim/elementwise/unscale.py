"""Quotients by binary32 numbers, for scales beyond the range of a format.

Narrow lanes hold quotients of two numbers of the format alone, so a divisor that the format does
not have goes as binary64, whose lanes take any; where operands are flushed one could be read as 0.

Source    docs/semantics.md §6 (unscaling).
"""

from __future__ import annotations

import math

import numpy as np

from fpsim.elementwise.apply import as_read
from fpsim.elementwise.codes import is_held
from fpsim.records.formats import BINARY32, Format
from fpsim.records.settings import Settings
from fpsim.records.types import Carrier

__all__ = ["quotient_operands"]


def quotient_operands(x: Carrier, divisor: float, settings: Settings) -> list[Carrier]:
    """Operands whose quotient, as the kernels compute it, is x / fl(divisor).

    Raises    ValueError for a divisor that is not positive, finite and normal in binary32.
    """
    if isinstance(divisor, bool) or not isinstance(divisor, (int, float, np.integer, np.floating)):
        raise TypeError(f"divisor={divisor!r} is no number; use a positive number")
    number = np.float32(divisor) if abs(divisor) <= float(BINARY32.max) else np.float32(np.inf)
    if not float(BINARY32.smallest_normal) <= number < np.inf:
        raise ValueError(
            f"divisor={divisor:g} is not a scale; use a positive number that is normal in binary32"
        )
    fmt = settings.format
    if settings.subnormals == "flush_both" and number < fmt.smallest_normal:
        x, number = _shifted(as_read(x, settings), number, fmt)
    elif x.dtype == np.float32 and is_held(np.asarray(number), fmt):
        return [x, np.asarray(number)]
    return [x, np.asarray(number, np.float64)]


def _shifted(x: Carrier, number: np.float32, fmt: Format) -> tuple[Carrier, np.float32]:
    """Both times a power of two, so that the kernel does not read the divisor as zero.

    No quotient changes: where x leaves the carrier, x / number overflows in any case, as it does
    from the largest carrier on.
    """
    shift = fmt.emin + 1 - math.frexp(number)[1]
    finite, most = np.isfinite(x), np.finfo(x.dtype).max
    with np.errstate(over="ignore"):
        moved = np.ldexp(np.where(finite, x, 0), shift)
    return np.where(finite, np.clip(moved, -most, most), x), np.ldexp(number, shift)
