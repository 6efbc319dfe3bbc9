"""Exact units in binary64 lanes: how one call sums and rounds.

Products of short significands are exact in binary64, and mostly their sums are too. The processor
says so itself: its sticky inexact flag, lowered before a stretch of a tile and read after it, is
proof that every addition there was exact. The rounding to binary32 goes by integers, which raise no
flag. Where the flag is up, the stretch is done again in two limbs that hold every digit.

The caller guarantees finite operands and that the unit of the higher limb fits the data (see
`fpsim.products.by_unit.exact`). `numbers` begin with 1.5 * 2**52 of these units.

Source    docs/semantics.md §5; Dekker 1971 (splitting at a fixed place); Boldo & Melquiond 2008.
"""

from __future__ import annotations

from fpsim.kernels.by_unit.terms import each, if_finite, values
from fpsim.kernels.lanes.arithmetic import fused
from fpsim.kernels.lanes.formula import formula
from fpsim.kernels.lanes.vectors import as_bits, as_float, select
from fpsim.kernels.rounding.to_odd import sum_to_odd

__all__ = ["long_calls", "short_calls"]


def _nearest_binary32(bits):
    """binary64 bits rounded to 24 digits, ties to even, without an arithmetic flag.

    Half a unit is added and what lies below the unit is cleared; after a tie, which leaves nothing
    there, the unit's own digit too, so that it ends even.
    """
    none = bits ^ bits
    up = bits + (1 << 28)
    tie = (up & (none + ((1 << 29) - 1))) == 0
    return as_float(up & select(tie, ~(none + ((1 << 30) - 1)), ~(none + ((1 << 29) - 1))))


def _short(what, acc, a, x, o, b, y, numbers):
    """One call, right where every addition is exact."""
    terms, _, _, has_fma = what
    for u, v in values(terms, acc, a, x, o, b, y):
        acc = fused(u, v, acc) if has_fma else u * v + acc
    return _nearest_binary32(as_bits(acc))


def _long(what, acc, a, x, o, b, y, numbers):
    """One call in two limbs: whole multiples of a unit, and what is left."""
    terms, _, _, has_fma = what
    unit = as_float(numbers[0])
    high = acc + unit
    low = acc - (high - unit)
    for u, v in values(terms, acc, a, x, o, b, y):
        if has_fma:
            after = fused(u, v, high)
            low = low + fused(u, v, high - after)
        else:
            after = high + u * v
            low = low + (u * v - (after - high))
        high = after
    return if_finite(acc, _nearest_binary32(sum_to_odd(high - unit, low, 64)))


@formula
def short_calls(what, c, a, x, o, b, y, numbers):
    """One call of every output of a tile, right where every addition is exact."""
    return each(_short, what, c, a, x, o, b, y, numbers)


@formula
def long_calls(what, c, a, x, o, b, y, numbers):
    """One call of every output of a tile, always right."""
    return each(_long, what, c, a, x, o, b, y, numbers)
