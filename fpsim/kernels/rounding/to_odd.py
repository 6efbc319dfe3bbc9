"""Exact results of + - * / sqrt fma, kept to the last digit by rounding them to odd.

The operands are finite and have few digits (at most 26 in binary64 lanes, at most 11 in binary32
lanes), so an error-free transformation gives what the hardware operation lost, and one odd last
digit stands for all of it. Any later rounding to at least two digits fewer is then the rounding of
the exact result, and "inexact" is "changed by that rounding".

No fused multiply-add is needed: products of 26 digits are exact in binary64, and the operands of
division and square root are short enough that splitting the result in two halves makes the
residual exact. So every processor computes the same thing in the same way.

Source    Boldo & Melquiond 2008 (round to odd); Moller, Knuth (TwoSum); Sterbenz;
          docs/semantics.md §3.
"""

from __future__ import annotations

from fpsim.kernels.lanes.formula import formula
from fpsim.kernels.lanes.vectors import as_bits, as_float, select, sqrt

__all__ = ["divide_to_odd", "root_to_odd", "sum_to_odd"]

#: Clears the 27 low digits of a binary64 significand of 53, so that 26 remain.
HIGH = 0xFFFFFFFFF8000000


def _to_odd(rounded, error, against, width):
    """Bits of the nearest value, moved to the odd neighbour if something was lost.

    `against` has its top bit set where the exact magnitude is below the rounded one.
    """
    return select(error != 0.0, (rounded - (against >> (width - 1))) | 1, rounded)


@formula
def sum_to_odd(x, y, width):
    """x + y in the lanes' own precision, as bits."""
    s = x + y
    part = s - x
    error = (x - (s - part)) + (y - part)
    bits = as_bits(s)
    return _to_odd(bits, error, bits ^ as_bits(error), width)


def divide_to_odd(x, y):
    """x / y in binary64 lanes.

    The high half of the quotient times y is within a factor of two of x, and what is left within a
    factor of two of the low half times y, so both subtractions are exact.
    """
    q = x / y
    bits = as_bits(q)
    high = as_float(bits & HIGH)
    residual = (x - high * y) - (q - high) * y
    return _to_odd(bits, residual, as_bits(residual) ^ as_bits(x), 64)


def root_to_odd(x):
    """sqrt(x) in binary64 lanes, x >= 0.

    With s = high + low, |low| at most 26 digits, the three terms of s * s are exact; the last
    subtraction may round, but never to another sign.
    """
    s = sqrt(x)
    bits = as_bits(s)
    high = as_float((bits + 0x4000000) & HIGH)
    low = s - high
    residual = ((x - high * high) - 2.0 * (high * low)) - low * low
    return _to_odd(bits, residual, as_bits(residual), 64)
