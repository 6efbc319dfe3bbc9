"""Loops of units whose operands are blocks: one row and sixteen columns at a time.

Products of elements are exact in binary32. Of a call they are scaled by 2**(window - emax) without
the scales of their blocks, which are powers of two, and cut to whole numbers of 32 bits; or groups
of them are summed exactly, multiplied by the significands of their scales, and cut in binary64.
The sum of what was cut and of the accumulator is exact in binary64, and is rounded to binary32
once. Exponents stand in unsigned words with a bias, so that all are above zero; what takes no part
in the largest one stands below all others.

Operands are finite: rows and columns that are not are the caller's.

Source    docs/semantics.md §5.
"""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple

import numpy as np

from fpsim.kernels.compiling import compiled
from fpsim.kernels.lanes.arithmetic import plus, smax, spread_item, to_whole, trunc
from fpsim.kernels.lanes.formula import formula
from fpsim.kernels.lanes.memory import load, load_float, pointer, store_float, store_low
from fpsim.kernels.lanes.vectors import (
    F32,
    as_bits,
    as_float,
    concat,
    high_half,
    infinity_like,
    low_half,
    narrow,
    select,
    sign_like,
    splat,
    umax,
    unary,
    widen,
)

__all__ = ["ABSENT", "BIAS", "DOWN", "NEAREST", "TO_ZERO", "ScaledVariant", "scaled_kernel"]

#: How sums are rounded to binary32.
NEAREST, TO_ZERO, DOWN = range(3)

#: Of exponents of one factor, and of zeros and missing groups among them.
BIAS, ABSENT = 1000, 0
#: Sums of two exponents below it are of a factor that is absent.
_PRESENT = 2 * BIAS - 400

COLUMNS = 16


class ScaledVariant(NamedTuple):
    """What is compiled in."""

    terms: int  # of a call
    group: int  # summed exactly before scales are applied; 1: products take part one by one
    window: int
    rounding: int
    empty: bool  # groups of zeros take part in the largest exponent


#: Signed integers of 32 bits as floats of 64.
_doubles = unary(lambda a: a.of("f", 64), lambda b, v, a, r: b.sitofp(v, r.vector))


def _power(exponent):
    """2**exponent in lanes of 64 bits, of words with a bias of 2 * BIAS."""
    return as_float(widen(exponent) + (1023 - 2 * BIAS) << 52)


def _halves(x):
    return low_half(x), high_half(x)


def _exponent_of(c):
    """Exponents of accumulators, subnormal ones with the smallest; zeros and infinities absent."""
    bits = as_bits(c)
    size = bits ^ (bits & sign_like(bits))
    none = bits ^ bits
    field = umax(size >> 23, none + 1)
    absent = (size == 0) | (size >= infinity_like(bits))
    return select(absent, none, field + (2 * BIAS - 127))


def _rounded(v, mode):
    """Sums in binary64 rounded to binary32, and where they overflow."""
    if mode == NEAREST:
        result = narrow(v)
        over = (as_bits(result) & infinity_like(as_bits(result))) == infinity_like(as_bits(result))
        return result, over
    bits = as_bits(v)
    sign = bits & sign_like(bits)
    size = bits ^ sign
    zero = bits ^ bits
    quanta = v * _lanes(2.0**149, v)
    cut = as_float(bits & ~(zero + ((1 << 29) - 1)))
    small = trunc(quanta)
    over = size >= (zero + (1023 + 128 << 52))
    largest = as_float(sign | (zero + 0x47EFFFFFE0000000))
    if mode == DOWN:
        down = (sign != 0) & (cut != v)
        cut = as_float(select(down, as_bits(cut) + (1 << 29), as_bits(cut)))
        below = (sign != 0) & (small != quanta)
        small = select(below, small - 1.0, small)
        over = over | ((as_bits(cut) ^ sign) >= (zero + (1023 + 128 << 52)))
        largest = select(sign != 0, as_float(sign | infinity_like(bits)), largest)
    small = as_float(as_bits(small * _lanes(2.0**-149, v)) | sign)
    result = select(size < (zero + (1023 - 126 << 52)), small, cut)
    return narrow(select(over, largest, result)), over


def _lanes(number, like):
    """A number in all lanes."""
    return as_float(as_bits(like) ^ as_bits(like)) + number


def _finish(v, window, top, c, start, mode):
    """The sums of both halves, scaled back and rounded; what is not finite stays."""
    low, high = (
        _rounded(total * _power(half - window), mode)
        for total, half in zip(v, _halves(top), strict=True)
    )
    result = concat(low[0], high[0])
    bits = as_bits(start)
    none = bits ^ bits
    finite = (bits & infinity_like(bits)) != infinity_like(bits)
    over = concat(select(low[1], _ones(low[0]), _ones(low[0]) ^ _ones(low[0])),
                  select(high[1], _ones(high[0]), _ones(high[0]) ^ _ones(high[0])))
    # Where everything is absent the sum is +0.
    result = as_float(select(top == 0, none, as_bits(result)))
    return select(finite, result, start), select(finite, over, none)


def _ones(like):
    """4, the flag of an overflow, in all lanes."""
    return (as_bits(like) ^ as_bits(like)) + 4


@formula
def _products(what, a, b, at, to, exponents, c):
    """One call of products that are cut one by one.

    a, b        values and exponents of the operands, as pointers.
    at, to      where those of the row and of the columns begin.
    exponents   of both scales together, BIAS twice in them.
    """
    terms, window, mode = what
    (av, ae), (bv, be) = a, b
    none = exponents ^ exponents
    top = none
    for t in range(terms):
        fields = spread_item(ae, plus(at, t)) + load(be, plus(to, COLUMNS * t))
        top = umax(top, fields)
    exponent_c = _exponent_of(c)
    absent = top < (none + _PRESENT)
    relative = exponents - 2 * BIAS
    top = umax(select(absent, none, top + relative), exponent_c)
    # Products without their scales: 2**(window - emax + scales), within binary32.
    shift = (none + (window + 2 * BIAS)) + relative - top
    shift = smax(shift, none - 120)
    shift = none - smax(none - shift, none - 100)
    factor = as_float((shift + 127) << 23)
    sums = [none, none]
    for t in range(terms):
        product = spread_item(av, plus(at, t)) * load_float(bv, plus(to, COLUMNS * t), c)
        sums[t % 2] = sums[t % 2] + to_whole(product * factor)
    totals = []
    for even, odd, own_c, half in zip(
        _halves(sums[0]), _halves(sums[1]), _halves(c), _halves(top), strict=True
    ):
        inverse = (half ^ half) + (4 * BIAS + window) - half
        start = trunc(widen(own_c) * _power(inverse))
        totals.append(_doubles(even) + _doubles(odd) + start)
    return _finish(totals, window, top, c, c, mode)


@formula
def _groups(what, a, b, at, to, scales, first, c):
    """One call of groups that are summed exactly; a and b are pointers to values.

    scales   significands and exponents of the scales of the row and of the columns, as pointers,
             and where those of the call's first group stand.
    """
    terms, group, window, mode, empty = what
    (sam, sae), (sbm, sbe) = scales
    row, column = first
    exponent_c = _exponent_of(c)
    top, addends = exponent_c, []
    none = exponent_c ^ exponent_c
    for g in range(terms // group):
        total = as_float(none)
        for t in range(g * group, (g + 1) * group):
            total = total + spread_item(a, plus(at, t)) * load_float(b, plus(to, COLUMNS * t), c)
        k, j = plus(row, g), plus(column, COLUMNS * g)
        exponent = spread_item(sae, k) + load(sbe, j)
        total = total * (spread_item(sam, k) * load_float(sbm, j, c))
        absent = exponent < (none + _PRESENT)
        if not empty:
            absent = absent | (total == 0.0)
        top = umax(top, select(absent, none, exponent))
        addends.append((total, select(absent, none, exponent)))
    sums = []
    for side in range(2):
        half = _halves(top)[side]
        up = (half ^ half) + (4 * BIAS + window) - half
        v = trunc(widen(_halves(c)[side]) * _power(up))
        for total, exponent in addends:
            there = _halves(exponent)[side]
            shift = there + ((half ^ half) + (2 * BIAS + window) - half)
            # Of what is absent the total is zero: any power does.
            shift = select(there == 0, (half ^ half) + 2 * BIAS, shift)
            v = v + trunc(widen(_halves(total)[side]) * _power(shift))
        sums.append(v)
    return _finish(sums, window, top, c, c, mode)


@cache
def scaled_kernel(variant: ScaledVariant) -> Any:
    """loop(av, ae, bv, be, sam, sae, sbm, sbe, out, flags, begin, end): the compiled loop.

    av, ae     values and exponents (rows, K); K is whole calls.
    bv, be     the same of panels of sixteen columns (panels, K, 16).
    sam, sae   significands and exponents of scales (rows, groups), sbm, sbe (panels, groups, 16);
               of products one by one a group is a call, and significands are not read.
    out        binary32 (rows, 16 panels), what the products are added to; flags uint8 likewise.
    """
    TERMS, GROUP, WINDOW, MODE, EMPTY = variant
    OF_CALL = 1 if GROUP == 1 else TERMS // GROUP

    @compiled
    def loop(av, ae, bv, be, sam, sae, sbm, sbe, out, flags, begin, end):
        depth, panels = av.shape[1], bv.shape[0]
        calls, columns = depth // TERMS, panels * COLUMNS
        pav, pae, pbv, pbe = (pointer(av.reshape(-1)), pointer(ae.reshape(-1)),
                              pointer(bv.reshape(-1)), pointer(be.reshape(-1)))
        psam, psae, psbm, psbe = (pointer(sam.reshape(-1)), pointer(sae.reshape(-1)),
                                  pointer(sbm.reshape(-1)), pointer(sbe.reshape(-1)))
        pout, pflags = pointer(out.reshape(-1)), pointer(flags.reshape(-1))
        groups = calls * OF_CALL
        like = splat(np.float32(0.0), F32)
        for panel in range(panels):
            for row in range(begin, end):
                at = row * columns + panel * COLUMNS
                c, overflows = load_float(pout, at, like), as_bits(like)
                for call in range(calls):
                    k, to = row * depth + call * TERMS, (panel * depth + call * TERMS) * COLUMNS
                    i = row * groups + call * OF_CALL
                    j = (panel * groups + call * OF_CALL) * COLUMNS
                    if GROUP == 1:
                        exponents = spread_item(psae, i) + load(psbe, j)
                        what = TERMS, WINDOW, MODE
                        c, over = _products(
                            what, (pav, pae), (pbv, pbe), k, to, exponents, c
                        )
                    else:
                        what = TERMS, GROUP, WINDOW, MODE, EMPTY
                        c, over = _groups(
                            what, pav, pbv, k, to, ((psam, psae), (psbm, psbe)), (i, j), c
                        )
                    overflows = overflows | over
                store_float(pout, at, as_bits(c))
                store_low(pflags, at, overflows)
        return 0

    return loop
