"""The numbers that one rounding needs, laid out for the kernels.

`fpsim.elementwise.constants` fills an array with the constants of a format, mode and policy, as bit
patterns of the 32- or 64-bit lanes the kernel works in; the kernel spreads them over lanes once
per call. The names below are the only agreement between the two.
"""

from __future__ import annotations

from typing import NamedTuple

from fpsim.kernels.lanes.formula import formula
from fpsim.kernels.lanes.memory import splat_item, splat_register

__all__ = ["FIELDS", "RoundingRule", "spread", "spread_registers"]


class RoundingRule(NamedTuple):
    """Constants of one rounding; magnitudes are bit patterns without the sign.

    Lanes of 32 bits have 24 digits, lanes of 64 bits 53: `digits` below.
    """

    drop: int  # digits - precision: what a normal result loses
    emin: int  # exponent field of the smallest normal; 0 where the lanes' own subnormals do it
    hidden: int  # the leading digit, 2**(digits - 1)
    quantum: int  # smallest subnormal
    quantum_sr: int  # the same, 0 where emin is 0
    up_pos: int  # below the quantum: a larger positive magnitude goes up to it …
    up_neg: int  # … and a larger negative one
    last: int  # largest magnitude on the grid: no smaller one overflows
    over_pos: int  # smallest positive magnitude that overflows
    over_neg: int
    over_value_pos: int  # what it becomes, with its sign
    over_value_neg: int
    tiny_pos: int  # a smaller positive magnitude is tiny
    tiny_neg: int
    flush: int  # all ones where tiny results become zero
    daz: int  # a smaller operand magnitude is read as zero (0: none)
    largest: int  # largest finite magnitude
    nan_keep: int  # bits kept of a NaN operand
    nan_set: int  # bits set in a NaN result
    nan_made: int  # the NaN that numbers make
    made_first: int  # all ones where fma counts the NaN of inf * 0 before the addend's
    nan_flags: int  # raised by every NaN result
    infinite_pos: int  # what an infinite operand of a conversion becomes
    infinite_neg: int
    infinite_flags: int
    zero_divide_pos: int  # what finite / 0 becomes
    zero_divide_neg: int
    random_bits: int  # digits of the tail that SR looks at, normal results
    random_most: int  # the same, at most, below the smallest normal


FIELDS = RoundingRule._fields


@formula
def spread(k):
    """The rule with every constant in all lanes; uint32 constants mean lanes of 32 bits."""
    return RoundingRule(*(splat_item(k, i) for i in range(len(FIELDS))))


@formula
def spread_registers(k):
    """The same in lanes of a register of products."""
    return RoundingRule(*(splat_register(k, i) for i in range(len(FIELDS))))
