"""Exact sums, cut toward zero to the digits of the lanes, and what the cut has lost.

Stochastic rounding looks at a fixed number of digits and at nothing below them, so where the lanes
hold these digits a sum need not be rounded to odd, which would take two more. That something was
lost is known apart: it makes the result inexact.

Source    Moller, Knuth (TwoSum); docs/semantics.md §1 (the digits that SR looks at).
"""

from __future__ import annotations

from fpsim.kernels.lanes.formula import formula
from fpsim.kernels.lanes.vectors import as_bits, select

__all__ = ["cut_sum"]


@formula
def cut_sum(x, y):
    """x + y in binary32 lanes, as bits, and lanes that are not zero where cut.

    A sum beyond the lanes stays infinite.
    """
    s = x + y
    part = s - x
    error = (x - (s - part)) + (y - part)
    bits, lost = as_bits(s), as_bits(error)
    cut = error != 0.0  # false for the NaN beside an infinite sum
    none = bits ^ bits
    # The nearest sum is beyond the exact one where the error has the other sign.
    return select(cut, bits - ((bits ^ lost) >> 31), bits), select(cut, none + 1, none)
