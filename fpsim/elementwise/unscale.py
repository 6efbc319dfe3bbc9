"""The quotient of a tensor and a binary32 number, for scales beyond the range of the format.

Source    docs/semantics.md §6 (unscaling).
"""

from __future__ import annotations

import math

import numpy as np

from fpsim.array import Array
from fpsim.context import Context
from fpsim.elementwise.apply import Carrier, as_read
from fpsim.records.formats import BINARY32, Format

__all__ = ["divide_by"]


def divide_by(context: Context, x: Array, divisor: float) -> Array:
    """x / fl(divisor), the divisor a binary32 number: one operation of the context.

    Rounding  the exact quotient once, in the context; division kernels take any binary32 number.
    Flags     those of the rounding, and of reading x.
    Raises    ValueError for a divisor that is not positive, finite and normal in binary32.

    >>> from fpsim.records.formats import BINARY16
    >>> half = Context(BINARY16)
    >>> divide_by(half, half.array([2.0]), 2.0**17).values.tolist() == [2.0**-16]
    True
    """
    (carrier,) = context.carriers((x,))
    number = np.float32(divisor) if abs(divisor) <= float(BINARY32.max) else np.float32(np.inf)
    if not float(BINARY32.smallest_normal) <= number < np.inf:
        raise ValueError(
            f"divisor={divisor:g} is not a scale; use a positive number that is normal in binary32"
        )
    fmt = context.format
    if context.settings.subnormals == "flush_both" and number < fmt.smallest_normal:
        carrier, number = _shifted(as_read(carrier, context.settings), number, fmt)
    return context.rounded("divide", [carrier, np.asarray(number, carrier.dtype)])


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
