"""Windowed units: how one call aligns, cuts, sums and rounds.

The products of two short significands are exact. Scaled by 2**(window - emax) and cut to whole
numbers they are the aligned addends; their sum is exact, and scaled back it is rounded to the
accumulator in one conversion. Exponents stand in tables, in the place of the exponent field; a zero
operand has one so low that it never takes part in emax. `numbers` are the fields that undo the
window, up and down, and an edge: for CUT the digits that stay, for WHOLE the field that subnormal
accumulators count with.

In lanes of 64 bits whole numbers are floats, whose sums have fewer than 53 digits. In lanes of 32
bits they are integers: sums of products below 2**31 (or of all addends, which takes fewer steps)
is what the caller guarantees, with finite operands, no overflow and no subnormal sums (see
`fpsim.products.by_unit.window`). Sums of more digits may be integers of 64 bits while everything
else stays in lanes of 32; one conversion rounds them, to nearest.

Source    docs/semantics.md §5.
"""

from __future__ import annotations

from fpsim.kernels.by_unit.terms import each, exponents, if_finite, values
from fpsim.kernels.lanes.arithmetic import (
    long_to_float,
    smax,
    to_long,
    to_whole,
    to_word,
    trunc,
    whole_to_float,
    whole_to_float_cut,
    word_to_float,
    word_to_float_cut,
)
from fpsim.kernels.lanes.formula import formula
from fpsim.kernels.lanes.vectors import (
    as_bits,
    as_float,
    concat,
    high_half,
    infinity_like,
    low_half,
    narrow,
    select,
    sign_like,
    umax,
    widen,
)
from fpsim.kernels.rounding.store import QUIET

__all__ = [
    "CUT", "NEAREST", "WHOLE", "any_calls_31", "any_calls_32", "any_calls_both", "calls_31",
    "calls_32", "calls_64", "calls_both",
]  # fmt: skip

#: Sums: to nearest or cut into binary32; left whole, since each is rounded where it is stored.
NEAREST, CUT, WHOLE = range(3)


def _top(what, acc, a, x, o, b, y, edge):
    """The largest exponent of a call, as a field."""
    terms, sums, _, _ = what
    top = as_bits(acc) & infinity_like(edge)
    if sums == WHOLE:
        top = select(top != 0, umax(top, edge), top)
    fields = [top, *exponents(terms, a, x, o, b, y)]
    while len(fields) > 1:
        fields = [*map(smax, fields[:-1:2], fields[1::2]), *fields[len(fields) & ~1 :]]
    return fields[0]


def _in_64(what, acc, a, x, o, b, y, numbers):
    """One call in binary64 lanes."""
    terms, sums, _, _ = what
    up, down, edge = numbers
    top = _top(what, acc, a, x, o, b, y, edge)
    scale = as_float(up - top)
    total = trunc(acc * scale)
    for u, v in values(terms, acc, a, x, o, b, y):
        total = total + trunc(u * v * scale)
    total = total * as_float(top - down)
    if sums == WHOLE:
        return total
    if sums == CUT:
        total = as_float(as_bits(total) & edge)
    return widen(narrow(total))


def _cut_float(size, quiet):
    """Words as binary32, cut to 24 digits."""
    if quiet == QUIET:
        return word_to_float_cut(size)
    # All ones below the leading one of the digits above 24.
    more = size >> 24
    more = more | more >> 1
    more = more | more >> 2
    more = more | more >> 4
    return word_to_float(size & ~more)


def _addends_32(what, acc, a, x, o, b, y, numbers):
    """The accumulator and the products cut to whole numbers, and what undoes the scale."""
    terms = what[0]
    up, down, edge = numbers
    top = _top(what, acc, a, x, o, b, y, edge)
    scale = as_float(up - top)
    start = to_whole(acc * scale)
    products = start ^ start
    for u, v in values(terms, acc, a, x, o, b, y):
        products = products + to_whole(u * v * scale)
    return start, products, as_float(top - down)


def _in_31(what, acc, a, x, o, b, y, numbers):
    """One call in binary32 lanes, its sum below 2**31."""
    _, sums, quiet, _ = what
    if sums != NEAREST and quiet != QUIET:
        return _in_32(what, acc, a, x, o, b, y, numbers)
    start, products, undo = _addends_32(what, acc, a, x, o, b, y, numbers)
    total = products + start
    if sums == NEAREST:
        return whole_to_float(total) * undo
    cut = whole_to_float_cut(total)
    if sums == CUT:
        return as_float(as_bits(cut * undo) & numbers[2])
    # An odd last digit stands for what was cut off, until the sum is rounded.
    odd = select(to_whole(cut) != total, as_bits(cut) | 1, as_bits(cut))
    return as_float(odd) * undo


def _in_32(what, acc, a, x, o, b, y, numbers):
    """One call in binary32 lanes, its sum below 2**32."""
    _, sums, quiet, _ = what
    start, products, undo = _addends_32(what, acc, a, x, o, b, y, numbers)
    # Each is below 2**31: the sign of the sum is lost where it differs from both.
    total = products + start
    sign = (total ^ ((products ^ total) & (start ^ total))) & sign_like(total)
    size = select(sign != 0, (sign ^ sign) - total, total)
    if sums == NEAREST:
        return as_float(as_bits(word_to_float(size) * undo) | sign)
    cut = _cut_float(size, quiet)
    if sums == CUT:
        return as_float((as_bits(cut * undo) & numbers[2]) | sign)
    odd = select(to_word(cut) != size, as_bits(cut) | 1, as_bits(cut))
    return as_float(as_bits(as_float(odd) * undo) | sign)


def _in_both(what, acc, a, x, o, b, y, numbers):
    """One call in binary32 lanes, its sums in whole numbers of 64 bits."""
    terms = what[0]
    up, down, edge = numbers
    top = _top(what, acc, a, x, o, b, y, edge)
    scale = as_float(up - top)
    start = acc * scale
    low, high = to_long(low_half(start)), to_long(high_half(start))
    for u, v in values(terms, acc, a, x, o, b, y):
        addend = u * v * scale
        low, high = low + to_long(low_half(addend)), high + to_long(high_half(addend))
    return concat(long_to_float(low), long_to_float(high)) * as_float(top - down)


def _any_in_both(what, acc, a, x, o, b, y, numbers):
    """The same for accumulators that may be infinite or NaN, and stay what they are."""
    return if_finite(acc, _in_both(what, acc, a, x, o, b, y, numbers))


def _any_in_31(what, acc, a, x, o, b, y, numbers):
    """The same for accumulators that may be infinite or NaN, and stay what they are."""
    return if_finite(acc, _in_31(what, acc, a, x, o, b, y, numbers))


def _any_in_32(what, acc, a, x, o, b, y, numbers):
    """The same for accumulators that may be infinite or NaN, and stay what they are."""
    return if_finite(acc, _in_32(what, acc, a, x, o, b, y, numbers))


@formula
def calls_64(what, c, a, x, o, b, y, numbers):
    """One call of every output of a tile, in binary64 lanes."""
    return each(_in_64, what, c, a, x, o, b, y, numbers)


@formula
def calls_31(what, c, a, x, o, b, y, numbers):
    """One call of every output of a tile, in binary32 lanes, sums below 2**31."""
    return each(_in_31, what, c, a, x, o, b, y, numbers)


@formula
def any_calls_31(what, c, a, x, o, b, y, numbers):
    """The same where partials may have overflowed."""
    return each(_any_in_31, what, c, a, x, o, b, y, numbers)


@formula
def calls_32(what, c, a, x, o, b, y, numbers):
    """One call of every output of a tile, in binary32 lanes."""
    return each(_in_32, what, c, a, x, o, b, y, numbers)


@formula
def any_calls_32(what, c, a, x, o, b, y, numbers):
    """The same where partials may have overflowed."""
    return each(_any_in_32, what, c, a, x, o, b, y, numbers)


@formula
def calls_both(what, c, a, x, o, b, y, numbers):
    """One call of every output of a tile, in binary32 lanes with sums of 64 bits."""
    return each(_in_both, what, c, a, x, o, b, y, numbers)


@formula
def any_calls_both(what, c, a, x, o, b, y, numbers):
    """The same where partials may have overflowed."""
    return each(_any_in_both, what, c, a, x, o, b, y, numbers)
