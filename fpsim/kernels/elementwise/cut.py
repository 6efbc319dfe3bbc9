"""Exact results, cut toward zero to the digits of the lanes, and what the cut has lost.

Stochastic rounding looks at a fixed number of digits and at nothing below them, so where the lanes
hold these digits a result need not be rounded to odd, which would take two more. That something was
lost is known apart: it makes the result inexact.

Source    Moller, Knuth (TwoSum); docs/semantics.md §1 (the digits that SR looks at).
"""

from __future__ import annotations

from fpsim.kernels.lanes.formula import formula
from fpsim.kernels.lanes.vectors import as_bits, select
from fpsim.kernels.rounding.to_odd import quotient, root

__all__ = ["cut_quotient", "cut_root", "cut_sum"]


def _cut(bits, error, against):
    """The nearest result, moved to its neighbour below where it lies beyond the exact one."""
    cut = error != 0.0  # false for the NaN beside an infinite result
    none = bits ^ bits
    return select(cut, bits - (against >> 31), bits), select(cut, none + 1, none)


@formula
def cut_sum(x, y):
    """x + y in binary32 lanes, as bits, and lanes that are not zero where cut.

    A sum beyond the lanes stays infinite.
    """
    s = x + y
    part = s - x
    error = (x - (s - part)) + (y - part)
    bits = as_bits(s)
    # The nearest sum is beyond the exact one where the error has the other sign.
    return _cut(bits, error, bits ^ as_bits(error))


@formula
def cut_quotient(x, y):
    """The same of x / y, of at most 11 digits each."""
    return _cut(*quotient(x, y))


@formula
def cut_root(x):
    """The same of sqrt(x), x >= 0."""
    return _cut(*root(x))
