"""Sequential sums of binary32 by the processor's own additions, where they are the same.

The context's sum rounds every addition to nearest even; so does the processor. Left to the caller
are results that are not finite, which may hide flags, and the flag INEXACT.

Source    docs/semantics.md §4 (order); IEEE 754-2019 §4.3.1.
"""

from __future__ import annotations

import math

import numpy as np

from fpsim.arithmetic import Carrier
from fpsim.processor import usual_arithmetic

__all__ = ["outer_sums"]

#: Sums of numbers from here on are no subnormal numbers: they are multiples of 2**-126.
_SAFE = 2.0**-103


@usual_arithmetic
def outer_sums(x: Carrier, axes: tuple[int, ...], *, flush: bool) -> Carrier | None:
    """Sums over neighbouring axes that are not the last, in C order; None where they may differ.

    Shapes    the axes vanish.
    flush     whether subnormal numbers count as zeros; then x must hold none, and no number from
              which a sum could become one.

    >>> outer_sums(np.float32([[1, 2], [3, 4]]), (0,), flush=True)
    array([4., 6.], dtype=float32)
    """
    first, last = min(axes, default=-1), max(axes, default=-1)
    if x.size == 0 or last in (-1, x.ndim - 1) or len(axes) != last - first + 1:
        return None
    rest = math.prod(x.shape[last + 1 :])
    if rest == 1 or (flush and _smallest(x) < _SAFE):
        return None
    rows = np.ascontiguousarray(x).reshape(-1, math.prod(x.shape[first : last + 1]), rest)
    with np.errstate(all="ignore"):
        # Along what is not contiguous numpy adds row after row, else in pairs; -0 changes nothing.
        sums: Carrier = np.add.reduce(rows, axis=1, initial=np.float32(-0.0))
    if not np.isfinite(sums).all():
        return None
    return sums.reshape(x.shape[:first] + x.shape[last + 1 :])


def _smallest(x: Carrier) -> float:
    """The smallest magnitude but zero; infinity where all are zero."""
    magnitudes = x.view(np.uint32) & np.uint32(0x7FFFFFFF)
    below = int((magnitudes - np.uint32(1)).min())  # zero turns into the largest
    return math.inf if below == 0xFFFFFFFF else float(np.uint32(below + 1).view(np.float32))
