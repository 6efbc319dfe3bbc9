"""Roundings inside matrix products, in the lanes' own arithmetic.

The processor rounds in the direction of the mode (`fpsim.kernels.rounding.direction`, to nearest
for RNE, RNA and RNZ), and its 24 or 53 digits are at least 2 p + 2. Then
- a product of two p-digit numbers is exact;
- a sum, rounded to the lanes' digits and again to p, is the exact sum rounded once: directed
  roundings compose, and a nearest one meets the middle between two p-digit numbers only exactly;
- adding 1.5 * 2**(digits - p + e), e the exponent of x, and subtracting it rounds x to p digits.
Products look at the smallest normal exponent at least; sums below it are exact, so their digits
beyond p are zero, and other modes than RNE, RTP and RTN may treat them as those of any number.

RNA and RNZ move x by one unit of the lanes away from or toward zero, and round to nearest: only
middles change sides, all others are two units or more away from one. RAZ and RTO cut to p digits,
and go one unit further where that changed x; a sum that the processor cut is made odd before.

Source    docs/semantics.md §1; Figueroa 1995 (double rounding is innocuous).
"""

from __future__ import annotations

from typing import NamedTuple

from fpsim.kernels.lanes.formula import formula
from fpsim.kernels.lanes.memory import splat_item
from fpsim.kernels.lanes.vectors import as_bits, as_float, infinity_like, select, sign_like, umax
from fpsim.kernels.rounding.direction import DOWN, NEAREST, UP, ZERO
from fpsim.kernels.rounding.modes import RAZ, RNA, RNE, RNZ, RTN, RTO, RTP, RTZ, SR

__all__ = [
    "DIRECTIONS", "FIELDS", "FUSED_MODES", "MacRule", "NATIVE_MODES", "beyond", "not_sum",
    "round_product", "round_sum", "spread_macs", "with_odd",
]  # fmt: skip

#: How the processor rounds beneath each mode that these formulas know.
DIRECTIONS = {
    RNE: NEAREST, RNA: NEAREST, RNZ: NEAREST, RTZ: ZERO, RTP: UP, RTN: DOWN, RAZ: ZERO, RTO: ZERO,
    SR: ZERO,
}  # fmt: skip

#: Modes for fused sums too. Sums to odd, of which products are part, have no middle that RNA and
#: RNZ could move them away from.
FUSED_MODES = DIRECTIONS.keys() - {RNA, RNZ}

#: Modes that the processor has itself.
NATIVE_MODES = {RNE, RTZ, RTP, RTN}


class MacRule(NamedTuple):
    """Constants of the roundings, bit patterns of the lanes."""

    floor: int  # exponent field of the smallest normal number
    step: int  # 1.5 * 2**(digits - p), as what it adds to the bits of a power of two
    unit: int  # 2**(p - 1), likewise
    below: int  # the digits of a normal number beyond p
    over_pos: int  # smallest positive number that overflows, …
    over_neg: int  # … and the largest negative one, with its sign
    value_pos: int  # what it becomes
    value_neg: int
    tiny_pos: int  # smallest positive number that is not tiny
    tiny_neg: int  # largest negative one
    start: int  # the zero that a sum begins with
    nan: int  # the NaN of results
    zero: int  # bits kept of a zero result


FIELDS = MacRule._fields


@formula
def spread_macs(k):
    """The rule with every constant in all lanes; uint32 constants mean lanes of 32 bits."""
    return MacRule(*(splat_item(k, i) for i in range(len(FIELDS))))


def _to_grid(mode, bits, field, rule):
    """x rounded by the grid of numbers with this exponent field; its sign stays, also of zero."""
    sign = bits & sign_like(bits)
    magic = field + rule.step
    if mode in (RTZ, RAZ, RTO):
        magic = magic | sign
    if mode == RNA:
        bits = bits + 1
    if mode == RNZ:
        bits = bits - select(bits == sign, bits ^ bits, (bits ^ bits) + 1)
    magic = as_float(magic)
    shifted = as_float(bits) + magic
    rounded = shifted - magic
    if mode in (RAZ, RTO):
        further = rounded != as_float(bits)
        if mode == RTO:
            further = further & ((as_bits(shifted) & 1) == 0)
        rounded = select(further, rounded + as_float((field - rule.unit) | sign), rounded)
    return as_float((as_bits(rounded) & ~sign_like(bits)) | sign)


def round_product(mode, x, rule):
    """x to p digits, or to the smallest subnormal."""
    bits = as_bits(x)
    return _to_grid(mode, bits, umax(bits & infinity_like(bits), rule.floor), rule)


def round_sum(mode, x, rule):
    """x to p digits: in the integers of its bits, where that takes fewer steps."""
    bits, below = as_bits(x), rule.below
    half = (below >> 1) + 1
    if mode == RTZ:
        return as_float(bits & ~below)
    if mode == RAZ:
        return as_float((bits + below) & ~below)
    if mode == RNA:
        return as_float((bits + half) & ~below)
    if mode == RNZ:
        return as_float((bits + (half - 1)) & ~below)
    if mode == RNE:
        odd = select((bits & (below + 1)) != 0, half, half - 1)
        return as_float((bits + odd) & ~below)
    if mode == RTO:
        return as_float((bits & ~below) | (((bits & below) + below) & (below + 1)))
    return _to_grid(mode, bits, bits & infinity_like(bits), rule)


def beyond(x, rounded, rule):
    """Where x overflows, and what it then becomes in place of `rounded`. NaN stays NaN."""
    up, down = x >= as_float(rule.over_pos), x <= as_float(rule.over_neg)
    held = select(down, as_float(rule.value_neg), rounded)
    return up | down, select(up, as_float(rule.value_pos), held)


def not_sum(s, x, y):
    """Where s, the sum of x and y as the processor rounds it, is not exact.

    It lies between half and twice the larger one, so the difference to that one is exact.
    """
    return ((s - x) != y) | ((s - y) != x)


def with_odd(mode, s, x, y):
    """The sum s of x and y, cut by the processor, with an odd last digit where something was lost.

    Only for the modes that need it.
    """
    if mode not in (RAZ, RTO):
        return s
    bits = as_bits(s)
    return as_float(select(not_sum(s, x, y), bits | 1, bits))
