"""Roundings inside matrix products, in the lanes' own arithmetic.

The processor rounds in the direction of the mode (`fpsim.kernels.rounding.direction`, to nearest
for RNE, RNA and RNZ), and its 24 or 53 digits are at least 2 p + 2. Then
- a product of two p-digit numbers is exact;
- a sum, rounded to the lanes' digits and again to p, is the exact sum rounded once: directed
  roundings compose, and a nearest one meets the middle between two p-digit numbers only exactly;
- adding 1.5 * 2**(digits - p + e), e the exponent of x, and subtracting it rounds x to p digits.
Products look at the smallest normal exponent at least; sums below it are exact, so their digits
beyond p are zero, and other modes than RNE, RTP and RTN may treat them as those of any number.
Where the processor has a fused multiply-add, the number that is added is never formed: it is e as
a power of two times a constant.

RNA and RNZ move x by one unit of the lanes away from or toward zero, and round to nearest: only
middles change sides, all others are two units or more away from one. Beneath RTZ, RAZ and RTO the
processor cuts: with the sign of x the added number leaves x cut; with the other sign the sum has
that sign too, so cutting it takes x away from zero. RTO needs both neighbours of x, which differ in
their last digit where x is between them. A sum that the processor cut is made odd before.

A zero has the sign of these additions, not of x: see `signed_like` and
`fpsim.kernels.by_operation.zeros`.

Where the processor adds on other ports than it multiplies on, numbers to nearest even are split
instead of taken apart (`split_number`).

Source    docs/semantics.md §1; Figueroa 1995 (double rounding is innocuous); Dekker 1971
          (splitting); Boldo 2006 (it rounds to nearest, ties to even where the lanes do).
"""

from __future__ import annotations

from typing import NamedTuple

from fpsim.kernels.lanes.arithmetic import fused
from fpsim.kernels.lanes.formula import formula
from fpsim.kernels.lanes.memory import splat_register
from fpsim.kernels.lanes.vectors import as_bits, as_float, infinity_like, select, sign_like, umax
from fpsim.kernels.rounding.modes import RAZ, RNA, RNE, RNZ, RTN, RTO, RTP, RTZ, SR
from fpsim.kernels.status_register import TO_NEAREST, TOWARD_MINUS, TOWARD_PLUS, TOWARD_ZERO

__all__ = [
    "BY_SIDE", "DIRECTIONS", "FIELDS", "FUSED_MODES", "GROWS", "INTEGER_MODES", "MacRule",
    "NATIVE_MODES", "STOPS",
    "beyond", "held_beyond", "not_sum", "round_cut_sum",
    "round_product", "round_sum", "signed_like", "split_number", "split_product", "spread_macs",
    "with_odd",
]

#: How the processor rounds beneath each mode that these formulas know.
DIRECTIONS = {
    RNE: TO_NEAREST, RNA: TO_NEAREST, RNZ: TO_NEAREST, RTZ: TOWARD_ZERO, RTP: TOWARD_PLUS,
    RTN: TOWARD_MINUS, RAZ: TOWARD_ZERO, RTO: TOWARD_ZERO, SR: TOWARD_ZERO,
}

#: Modes for fused sums too. Sums to odd, of which products are part, have no middle that RNA and
#: RNZ could move them away from.
FUSED_MODES = DIRECTIONS.keys() - {RNA, RNZ}

#: Modes that the processor has itself.
NATIVE_MODES = {RNE, RTZ, RTP, RTN}

#: Modes that round numbers that are not small in far fewer steps, in the integers of their bits.
INTEGER_MODES = {RTZ, RAZ, RNA, RNZ, RTO}

#: What overflow becomes: the largest number of its sign; an infinity of its sign or a NaN; else.
STOPS, GROWS, BY_SIDE = range(3)


class MacRule(NamedTuple):
    """Constants of the roundings, bit patterns of the lanes."""

    floor: int  # exponent field of the smallest normal number
    step: int  # 1.5 * 2**(digits - p), as what it adds to the bits of a power of two
    lift: int  # 1.5 * 2**(digits - p)
    below: int  # the digits of a normal number beyond p …
    last: int  # … and its last digit
    over_pos: int  # smallest positive number that overflows, …
    over_neg: int  # … and the largest negative one, with its sign
    value_pos: int  # what it becomes
    value_neg: int
    tiny_pos: int  # smallest positive number that is not tiny
    tiny_neg: int  # largest negative one
    start: int  # the zero that a sum begins with
    nan: int  # the NaN of results
    zero: int  # bits kept of a zero result
    split: int  # 2**(digits - p) + 1
    calm: int  # the largest magnitude from which no sum overflows within a stretch


FIELDS = MacRule._fields


@formula
def spread_macs(k):
    """The rule with every constant in all lanes; uint32 constants mean lanes of 32 bits."""
    return MacRule(*(splat_register(k, i) for i in range(len(FIELDS))))


def _shifts(field, rule, has_fma):
    """x + c and x - c as functions of x, c the number that rounds to this exponent and sign."""
    if has_fma:
        unit, lift = as_float(field), as_float(rule.lift)
        sink = as_float(rule.lift | sign_like(field))
        return lambda x: fused(unit, lift, x), lambda x: fused(unit, sink, x)
    magic = as_float(field + rule.step)
    return lambda x: x + magic, lambda x: x - magic


def _to_grid(mode, bits, field, rule, has_fma):
    """x rounded by the grid of numbers with this exponent field."""
    none = bits ^ bits
    if mode in (RTZ, RAZ):
        field = field | (bits & sign_like(bits))
    if mode == RNA:
        bits = bits + 1
    if mode == RNZ:
        bits = bits - select((bits & ~sign_like(bits)) == 0, none, none + 1)
    # Where bits of zero were moved, they are a subnormal number, which is slow to multiply and add.
    up, down = _shifts(field, rule, has_fma and mode not in (RNA, RNZ))
    x = as_float(bits)
    if mode == RAZ:
        return up(down(x))
    shifted = up(x)
    if mode == RTO:
        low, high = as_bits(shifted), as_bits(down(x))
        shifted = as_float(low | ((low ^ high) & 1))
    return down(shifted)


def round_product(mode, x, rule, has_fma):
    """x to p digits, or to the smallest subnormal."""
    bits = as_bits(x)
    return _to_grid(mode, bits, umax(bits & infinity_like(bits), rule.floor), rule, has_fma)


def round_sum(mode, x, rule, has_fma):
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
    if mode == RNE and not has_fma:
        odd = select((bits & (below + 1)) != 0, half, half - 1)
        return as_float((bits + odd) & ~below)
    if mode == RTO:
        return as_float(select((bits & below) == 0, bits, (bits & ~below) | rule.last))
    return _to_grid(mode, bits, bits & infinity_like(bits), rule, has_fma)


def split_number(x, rule):
    """x to p digits, ties to even: its higher part by Veltkamp's splitting, which keeps -0.

    One operation more than `round_sum` takes, but none that asks for the exponent of x: two sums,
    and one product. x * 2**(digits - p) is in the range of the lanes (see `find_lane`).
    """
    wide = x * as_float(rule.split)
    return wide - (wide - x)


def split_product(x, y, wide, has_fma):
    """fl(x y) of numbers of p digits, where it is not small; `wide` is y times `rule.split`.

    That is exact, since it has no more digits than a lane. With a fused multiply-add the product
    itself is never formed.
    """
    wide = x * wide
    if not has_fma:
        return wide - (wide - x * y)
    return wide - fused(as_float(as_bits(x) ^ sign_like(as_bits(x))), y, wide)


def round_cut_sum(mode, s, x, y, rule, has_fma):
    """The sum s of x and y, as the processor rounded it, to p digits; x and y have no more.

    As `round_sum` of `with_odd`, in fewer steps: r, the sum cut to p digits, less x is y less what
    was lost, which has the sign of the sum. If x is the larger one, that is exact, since r and x
    are within a factor of two where anything was lost; if y is, it is smaller than y, whose sign
    the sum has, and is cut to another number than y.
    """
    if mode not in (RAZ, RTO):
        return round_sum(mode, s, rule, has_fma)
    r = as_bits(s) & ~rule.below
    other = r | rule.last if mode == RTO else r + rule.last
    return as_float(select((as_float(r) - x) != y, other, r))


def signed_like(rounded, x):
    """The rounded x with its sign, also of zero."""
    bits, sign = as_bits(rounded), as_bits(x) & sign_like(as_bits(x))
    return as_float((bits & ~sign_like(bits)) | sign)


def beyond(x, rounded, rule):
    """Where x overflows, and what it then becomes in place of `rounded`. NaN stays NaN."""
    up, down = x >= as_float(rule.over_pos), x <= as_float(rule.over_neg)
    held = select(down, as_float(rule.value_neg), rounded)
    return up | down, select(up, as_float(rule.value_pos), held)


def held_beyond(what, x, rounded, rule):
    """The same without telling where; `what` it becomes is STOPS or GROWS."""
    if what == STOPS:
        # No infinities and no NaN: the rounded numbers themselves are compared.
        least, most = as_float(rule.value_neg), as_float(rule.value_pos)
        below = select(rounded < most, rounded, most)
        return select(below > least, below, least)
    size = as_float(as_bits(x) & ~sign_like(as_bits(x)))
    return select(size >= as_float(rule.over_pos), x * as_float(rule.value_pos), rounded)


def not_sum(s, x, y):
    """Where s, the sum of x and y as the processor rounds it, is not exact.

    It lies between half and twice the larger one, so the difference to that one is exact.
    """
    return ((s - x) != y) | ((s - y) != x)


def with_odd(mode, s, x, y):
    """The sum s of x and y, cut by the processor, with an odd last digit where something was lost.

    Only for the modes that need it. One look is enough: s - x is y less what was lost, which has
    the sign of s. If x is the larger one, that is exact; if y is, s has its sign, and a number
    between 0 and y is cut to another one than y.
    """
    if mode not in (RAZ, RTO):
        return s
    bits = as_bits(s)
    return as_float(select((s - x) != y, bits | 1, bits))
