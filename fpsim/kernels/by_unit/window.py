"""Windowed units: how one call aligns, cuts, sums and rounds.

The products of two short significands are exact. Scaled by 2**(window - emax) and cut to whole
numbers they are the aligned addends; their sum is exact, and scaled back it is rounded to the
accumulator in one conversion. Exponents stand in tables, in the place of the exponent field; a zero
operand has one so low that it never takes part in emax. `numbers` are the fields that undo the
window, up and down, and an edge: for CUT the digits that stay, for WHOLE the field that subnormal
accumulators count with, for pairs the middle of their float.

In lanes of 64 bits whole numbers are floats, whose sums have fewer than 53 digits. In lanes of 32
bits they are integers: sums of products below 2**31 (or of all addends, which takes fewer steps)
is what the caller guarantees, with finite operands, no overflow and no subnormal sums (see
`fpsim.products.by_unit.window`). Sums of more digits to nearest stay in lanes of 32 bits as pairs
of a float and an integer. The float begins as 1.5 * 2**k, the `middle` of a binade, and takes of
every addend the multiple of its last place that is nearest; the integer takes the rest, cut. An
addend with digits below the window is smaller than half of that place: the float takes nothing of
it, and what is cut is the addend itself, toward its own zero. Both are exact, and their sum is
rounded once.

Source    docs/semantics.md §5.
"""

from __future__ import annotations

from fpsim.kernels.by_unit.terms import exponents, if_finite, values
from fpsim.kernels.lanes.arithmetic import (
    fused,
    smax,
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
    infinity_like,
    narrow,
    select,
    sign_like,
    umax,
    widen,
)
from fpsim.kernels.rounding.store import QUIET
from fpsim.kernels.target import PRODUCT_BITS

__all__ = [
    "CARRIED", "CUT", "NEAREST", "WHOLE", "any_calls_31", "any_calls_32", "any_calls_pair",
    "calls_31", "calls_32", "calls_64", "calls_pair",
]

#: Sums: to nearest or cut into binary32; left whole, since each is rounded where it is stored; to
#: nearest, of a pair whose integer may have more digits than a float.
NEAREST, CUT, WHOLE, CARRIED = range(4)

#: The middle of the float that an accumulator of 24 digits is divided by.
_MIDDLE_OF_STARTS = 1.5 * 2.0**47


def _tops(what, c, a, x, o, b, y, edge):
    """The largest exponent of each call, as a field."""
    terms, sums, *_ = what
    tops = [as_bits(acc) & infinity_like(edge) for acc in c]
    if sums == WHOLE:
        tops = [select(top != 0, umax(top, edge), top) for top in tops]
    for fields in exponents(terms, c, a, x, o, b, y):
        tops = [*map(smax, tops, fields)]
    return tops


def _products(cut, what, c, a, x, o, b, y, scales):
    """For every term the products of each call, scaled and cut to whole numbers."""
    for factors in values(what[0], c, a, x, o, b, y):
        yield [cut(u * v * scale) for (u, v), scale in zip(factors, scales, strict=True)]


def _in_64(what, c, a, x, o, b, y, numbers):
    """Calls in binary64 lanes."""
    up, down, edge = numbers
    tops = _tops(what, c, a, x, o, b, y, edge)
    scales = [as_float(up - top) for top in tops]
    totals = [trunc(acc * scale) for acc, scale in zip(c, scales, strict=True)]
    for products in _products(trunc, what, c, a, x, o, b, y, scales):
        totals = [total + product for total, product in zip(totals, products, strict=True)]
    totals = [total * as_float(top - down) for total, top in zip(totals, tops, strict=True)]
    if what[1] == WHOLE:
        return tuple(totals)
    if what[1] == CUT:
        totals = [as_float(as_bits(total) & edge) for total in totals]
    return tuple(widen(narrow(total)) for total in totals)


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


def _sums_31(what, start, products, undo, numbers):
    """A call's sum below 2**31, rounded and scaled back."""
    _, sums, quiet, *_ = what
    if sums != NEAREST and quiet != QUIET:
        return _sums_32(what, start, products, undo, numbers)
    total = products + start
    if sums == NEAREST:
        return whole_to_float(total) * undo
    cut = whole_to_float_cut(total)
    if sums == CUT:
        return as_float(as_bits(cut * undo) & numbers[2])
    # An odd last digit stands for what was cut off, until the sum is rounded.
    odd = select(to_whole(cut) != total, as_bits(cut) | 1, as_bits(cut))
    return as_float(odd) * undo


def _sums_32(what, start, products, undo, numbers):
    """A call's sum below 2**32, rounded and scaled back."""
    _, sums, quiet, *_ = what
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


def _in_words(rounded, what, c, a, x, o, b, y, numbers):
    """Calls in binary32 lanes, their sums in words."""
    up, down, edge = numbers
    tops = _tops(what, c, a, x, o, b, y, edge)
    scales = [as_float(up - top) for top in tops]
    starts = [to_whole(acc * scale) for acc, scale in zip(c, scales, strict=True)]
    sums = [start ^ start for start in starts]
    for products in _products(to_whole, what, c, a, x, o, b, y, scales):
        sums = [total + product for total, product in zip(sums, products, strict=True)]
    return tuple(
        rounded(what, start, total, as_float(top - down), numbers)
        for start, total, top in zip(starts, sums, tops, strict=True)
    )


def _in_words_31(*call):
    return _in_words(_sums_31, *call)


def _in_words_32(*call):
    return _in_words(_sums_32, *call)


def _in_pairs(what, c, a, x, o, b, y, numbers):
    """Calls in binary32 lanes, their sums in pairs of a float and an integer."""
    terms, sums, _, has_fma, _ = what
    up, down, middle = numbers
    tops = _tops(what, c, a, x, o, b, y, middle)
    scales = [as_float(up - top) for top in tops]
    undo = [as_float(top - down) for top in tops]
    if terms == 1:  # the sum of two floats is rounded once
        starts = [trunc(acc * scale) for acc, scale in zip(c, scales, strict=True)]
        (products,) = _products(trunc, what, c, a, x, o, b, y, scales)
        totals = [start + product for start, product in zip(starts, products, strict=True)]
        return tuple(total * back for total, back in zip(totals, undo, strict=True))
    middle = as_float(middle)
    pairs = [_begun(acc, scale, middle, has_fma) for acc, scale in zip(c, scales, strict=True)]
    for factors in values(terms, c, a, x, o, b, y):
        pairs = [
            _moved(pair, u * v, scale, has_fma)
            for pair, (u, v), scale in zip(pairs, factors, scales, strict=True)
        ]
    return tuple(
        _joined(pair, middle, sums) * back for pair, back in zip(pairs, undo, strict=True)
    )


def _begun(acc, scale, middle, has_fma):
    """The pair that a call begins with: an accumulator, scaled and cut."""
    far = _lanes_of(_MIDDLE_OF_STARTS, acc)
    high, low = _moved((far, as_bits(acc) ^ as_bits(acc)), acc, scale, has_fma)
    return high - (far - middle), low


def _moved(pair, x, scale, has_fma):
    """A pair and an addend: the float takes what it can, the integer the rest, cut."""
    high, low = pair
    after = _scaled_sum(x, scale, high, has_fma)
    return after, low + to_whole(_scaled_sum(x, scale, high - after, has_fma))


def _scaled_sum(x, scale, y, has_fma):
    """x * scale + y, rounded once: a product with a power of two is exact."""
    return fused(x, scale, y) if has_fma else x * scale + y


def _joined(pair, middle, sums):
    """The sum of a pair, rounded once."""
    high, low = pair
    whole = high - middle
    if sums == CARRIED:  # the float takes what is more than 24 digits
        rest = low & 0xFFFFFF
        whole, low = whole + whole_to_float(low ^ rest), rest
    return whole + whole_to_float(low)


def _lanes_of(number, like):
    """A number in all lanes."""
    return as_float(as_bits(like) ^ as_bits(like)) + number


def _by_parts(compute, what, c, a, x, o, b, y, numbers):
    """Calls of as many vectors of a tile at a time as registers hold, with all they need."""
    part = len(c) if PRODUCT_BITS == 512 else 4
    parts = [slice(first, first + part) for first in range(0, len(c), part)]
    return tuple(
        total for rows in parts for total in compute(what, c[rows], a, x[rows], o, b, y, numbers)
    )


@formula
def calls_64(what, c, a, x, o, b, y, numbers):
    """One call of every output of a tile, in binary64 lanes."""
    return _by_parts(_in_64, what, c, a, x, o, b, y, numbers)


@formula
def calls_31(what, c, a, x, o, b, y, numbers):
    """One call of every output of a tile, in binary32 lanes, sums below 2**31."""
    return _by_parts(_in_words_31, what, c, a, x, o, b, y, numbers)


@formula
def any_calls_31(what, c, a, x, o, b, y, numbers):
    """The same where partials may have overflowed: infinities and NaN stay what they are."""
    return if_finite(c, _by_parts(_in_words_31, what, c, a, x, o, b, y, numbers))


@formula
def calls_32(what, c, a, x, o, b, y, numbers):
    """One call of every output of a tile, in binary32 lanes."""
    return _by_parts(_in_words_32, what, c, a, x, o, b, y, numbers)


@formula
def any_calls_32(what, c, a, x, o, b, y, numbers):
    """The same where partials may have overflowed: infinities and NaN stay what they are."""
    return if_finite(c, _by_parts(_in_words_32, what, c, a, x, o, b, y, numbers))


@formula
def calls_pair(what, c, a, x, o, b, y, numbers):
    """One call of every output of a tile, in binary32 lanes with sums in pairs of floats."""
    return _by_parts(_in_pairs, what, c, a, x, o, b, y, numbers)


@formula
def any_calls_pair(what, c, a, x, o, b, y, numbers):
    """The same where partials may have overflowed: infinities and NaN stay what they are."""
    return if_finite(c, _by_parts(_in_pairs, what, c, a, x, o, b, y, numbers))
