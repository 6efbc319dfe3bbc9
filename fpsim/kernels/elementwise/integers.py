"""Between 64-bit integers and floats, without a rounding of the processor's choosing.

Source    IEEE 754-2019 §5.4.1, §5.8; docs/semantics.md §3.
"""

from __future__ import annotations

import numpy as np

from fpsim.kernels.compiling import compiled

__all__ = ["magnitudes_to_odd", "whole_numbers"]


@compiled
def magnitudes_to_odd(magnitudes, negative, out):
    """binary64 values of 64-bit magnitudes, rounded to odd where they have more than 53 digits."""
    one = np.uint64(1)
    for i in range(out.shape[0]):
        digits, unit = magnitudes[i], one
        while digits >> np.uint64(53):
            # What goes is one sticky digit, in place of the last one that stays.
            digits = digits >> one | digits & one
            unit <<= one
        value = np.float64(digits) * np.float64(unit)
        out[i] = -value if negative[i] else value


@compiled
def whole_numbers(x, whole, low, high, invalid, out, element_flags):
    """out = the whole numbers as integers of out's type; element_flags = INVALID alone, or INEXACT.

    x are the operands, `whole` the same rounded to whole numbers; low <= whole < high is in range.
    """
    for i in range(out.shape[0]):
        w = whole[i]
        if not (w >= low and w < high):
            out[i] = invalid
            element_flags[i] = 16
        else:
            out[i] = out.dtype.type(w)
            element_flags[i] = 1 if w != x[i] else 0
