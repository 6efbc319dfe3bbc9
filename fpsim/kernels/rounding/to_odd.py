"""Exact results of + - * / sqrt fma, kept to the last digit by rounding them to odd.

The operands are finite and have few digits (at most 26 in binary64 lanes, at most 11 in binary32
lanes), so an error-free transformation gives what the hardware operation lost, and one odd last
digit stands for all of it. Any later rounding to at least two digits fewer is then the rounding of
the exact result, and "inexact" is "changed by that rounding".

No fused multiply-add is needed: products of 26 digits are exact in binary64, those of 12 digits in
binary32, and the operands of division and square root are short enough that splitting the result in
two halves makes the residual exact. So every processor computes the same thing in the same way.

Source    Boldo & Melquiond 2008 (round to odd); Moller, Knuth (TwoSum); Sterbenz;
          docs/semantics.md §3.
"""

from __future__ import annotations

from fpsim.kernels.lanes.formula import formula
from fpsim.kernels.lanes.vectors import as_bits, as_float, select, sqrt, width_of

__all__ = ["divide_to_odd", "quotient", "root", "root_to_odd", "sum_to_odd"]

#: Low digits of the lanes' significand without which half of them remain: 26 of 53, 12 of 24.
_LOW = {64: 27, 32: 12}


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


def _high(bits):
    """The upper half of the digits, as a number."""
    zero = bits ^ bits
    return as_float(bits & (zero - (zero + 1 << _LOW[width_of(bits)])))


def quotient(x, y):
    """Bits of the nearest x / y, an error of its sign or zero, and `against` as above.

    The high half of the quotient times y is within a factor of two of x, and what is left within a
    factor of two of the low half times y, so both subtractions are exact.
    """
    q = x / y
    bits = as_bits(q)
    high = _high(bits)
    residual = (x - high * y) - (q - high) * y
    return bits, residual, as_bits(residual) ^ as_bits(x)


def root(x):
    """The same of sqrt(x), x >= 0.

    With s = high + low, |low| of half the digits, the three terms of s * s are exact; the last
    subtraction may round, but never to another sign.
    """
    s = sqrt(x)
    bits = as_bits(s)
    high = _high(bits + (1 << _LOW[width_of(bits)] - 1))
    low = s - high
    residual = ((x - high * high) - 2.0 * (high * low)) - low * low
    return bits, residual, as_bits(residual)


def divide_to_odd(x, y):
    """x / y in the lanes' own precision, as bits."""
    return _to_odd(*quotient(x, y), width_of(x))


def root_to_odd(x):
    """sqrt(x), x >= 0."""
    return _to_odd(*root(x), width_of(x))
