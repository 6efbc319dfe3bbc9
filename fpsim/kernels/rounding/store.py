"""Rounding of partial results where they are stored.

Source    docs/semantics.md §2 (layout of sums and products).
"""

from __future__ import annotations

from fpsim.kernels.lanes.arithmetic import quiet_add, quiet_subtract
from fpsim.kernels.lanes.formula import formula
from fpsim.kernels.lanes.vectors import (
    as_bits,
    as_float,
    infinity_like,
    select,
    sign_like,
    umax,
    umin,
    width_of,
)
from fpsim.kernels.rounding.modes import RNE, is_signed, is_stochastic
from fpsim.kernels.rounding.round import (
    round_fixed,
    round_random,
    round_random_normal,
    round_residual,
)

__all__ = [
    "BY_INTEGERS", "LOUD", "QUIET", "is_rare", "ordinary_below", "store_lanes", "store_normal",
    "store_ordinary",
]

#: Flags that units raise; residuals of SR as the plan numbers them.
_OVERFLOW, _INVALID = 4, 16
_TRUNCATED, _EVEN = 0, 2

#: Ways to round to nearest: may raise the inexact flag; by instructions that do not; by integers.
LOUD, QUIET, BY_INTEGERS = range(3)


@formula
def store_lanes(what, bits, word, rule):
    """Bits of partials rounded as they are stored, and their flags OVERFLOW and INVALID.

    `word` holds R in its low bits if `low`, else in the top ones; deterministic modes ignore it.
    NaN is made canonical, and infinity is what the rule says of an infinite operand.
    """
    mode, low, residual = what
    width = width_of(bits)
    none = bits ^ bits
    sign, infinity = sign_like(bits), infinity_like(bits)
    a = bits & ~sign
    negative = bits >= sign
    if is_stochastic(mode):
        exact = a if residual == _TRUNCATED else round_residual(a, residual == _EVEN, rule)
        r = round_random(mode, exact, word, low, rule, width)
        over = r > rule.largest
    else:
        r = round_fixed(mode, a, negative, rule, width)
        over = a >= (
            select(negative, rule.over_neg, rule.over_pos) if is_signed(mode) else rule.over_pos
        )
    tiny = select(negative, rule.tiny_neg, rule.tiny_pos) if is_signed(mode) else rule.tiny_pos
    r = select(a < tiny, r & ~rule.flush, r) | (bits & sign)
    r = select(over, select(negative, rule.over_value_neg, rule.over_value_pos), r)
    flags = select(over, none + _OVERFLOW, none)
    infinite = a == infinity
    r = select(infinite, select(negative, rule.infinite_neg, rule.infinite_pos), r)
    flags = select(infinite, rule.infinite_flags & _OVERFLOW, flags)
    nan = a > infinity
    return select(nan, rule.nan_set, r), select(nan, rule.nan_flags & _INVALID, flags)


@formula
def is_rare(bits, rule):
    """Where `store_normal` does not do: subnormal, flushed, larger than the largest value, NaN."""
    a = bits & ~sign_like(bits)
    least = umax(rule.emin << (23 if width_of(bits) == 32 else 52), rule.tiny_pos)
    return ((a - least) > (rule.largest - least)) & (a != 0)


@formula
def store_normal(what, bits, word, rule):
    """As `store_lanes` in a stochastic mode, for zeros and normal values; none raises a flag."""
    mode, low, _ = what
    sign = bits & sign_like(bits)
    return round_random_normal(mode, bits ^ sign, word, low, rule, width_of(bits)) | sign


@formula
def ordinary_below(rule):
    """Exponent fields below it are those of partials that `store_ordinary` rounds.

    They cannot overflow, and the number that is added to them is finite.
    """
    infinity = infinity_like(rule.drop)
    digits = 23 if width_of(rule.drop) == 32 else 52
    return umin(rule.largest & infinity, infinity - (rule.drop << digits))


@formula
def store_ordinary(how, bits, field, word, rule):
    """Bits of partials, rounded as they are stored; only for fields below `ordinary_below`.

    `how` is the mode, whether R stands in the low bits of the words, the residual, and the care
    taken of the inexact flag; `field` holds the exponent fields. To nearest, 1.5 * 2**drop units of
    the last digit are added and taken away again; below the smallest normal number the unit stays,
    and what becomes zero is +0.
    """
    mode, low, residual, quiet = how
    width = width_of(bits)
    if mode == RNE and quiet != BY_INTEGERS:
        digits = 23 if width == 32 else 52
        # Where the lanes' own subnormals are the format's, their unit is that of field 1.
        least = umax(rule.emin, (rule.emin ^ rule.emin) + 1) << digits
        magic = as_float(umax(field, least) + ((rule.drop << digits) | (rule.hidden >> 1)))
        if quiet == QUIET:
            return as_bits(quiet_subtract(quiet_add(as_float(bits), magic), magic))
        return as_bits((as_float(bits) + magic) - magic)
    bits = as_bits(as_float(bits) + 0.0)
    sign = bits & sign_like(bits)
    a = bits ^ sign
    if is_stochastic(mode):
        exact = a if residual == _TRUNCATED else round_residual(a, residual == _EVEN, rule)
        return round_random(mode, exact, word, low, rule, width) | sign
    return round_fixed(mode, a, sign != 0, rule, width) | sign
