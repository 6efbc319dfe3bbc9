"""Exact units in binary64 lanes: how one call sums and rounds.

Products of short significands are exact in binary64, and mostly their sums are too. The processor
says so itself: its sticky inexact flag, lowered before a stretch of a tile and read after it, is
proof that every addition there was exact. The rounding to binary32 raises no flag: it goes by
additions that the processor keeps quiet, or by integers. Where the flag is up, the stretch is done
again in two limbs that hold every digit.

The caller guarantees finite operands and that the unit of the higher limb fits the data (see
`fpsim.products.by_unit.exact`). `numbers` begin with 1.5 * 2**52 of these units.

Source    docs/semantics.md §5; Dekker 1971 (splitting at a fixed place); Boldo & Melquiond 2008.
"""

from __future__ import annotations

from fpsim.kernels.by_unit.terms import COLUMNS, if_finite, values
from fpsim.kernels.lanes.arithmetic import (
    add_down,
    add_up,
    fused,
    quiet_add,
    quiet_fused,
    quiet_subtract,
)
from fpsim.kernels.lanes.formula import formula
from fpsim.kernels.lanes.vectors import as_bits, as_float, infinity_like, lanes_of, select
from fpsim.kernels.rounding.store import QUIET

__all__ = ["ANY", "FINITE", "long_calls", "short_calls"]

#: Accumulators of the long way: finite, or what stores of partials have made of them.
FINITE, ANY = range(2)


def _nearest_by_integers(x):
    """binary64 rounded to 24 digits, ties to even, without an arithmetic flag.

    Less than half a unit is added, or half of one where the unit's own digit is odd, and what lies
    below the unit is cleared.
    """
    bits = as_bits(x)
    below = (bits ^ bits) + ((1 << 29) - 1)
    return as_float((bits + (below >> 1) + (bits >> 29 & 1)) & ~below)


def _nearest_by_splitting(x):
    """The same in three steps (Veltkamp); the flag may rise."""
    wide = x * _lanes_of(2.0**29 + 1, x)
    return wide - (wide - x)


def _lanes_of(number, like):
    """A number in all lanes."""
    return as_float(as_bits(like) ^ as_bits(like)) + number


def _nearest_quiet(x):
    """The same in three steps: 1.5 * 2**52 units are added and taken away again."""
    bits = as_bits(x)
    power, zero = as_float(bits & infinity_like(bits)), as_float(bits ^ bits)
    units = 1.5 * 2.0**29
    return fused(power, zero - units, quiet_fused(power, zero + units, x))


def _nearest_by_sums(x):
    """The same in four steps, which leave the multiplier to the products."""
    bits = as_bits(x)
    magic = as_float((bits & infinity_like(bits)) + ((29 << 52) | (1 << 51)))
    return quiet_subtract(quiet_add(x, magic), magic)


def _nearest_binary32(x, quiet, has_fma):
    return _nearest_quiet(x) if quiet == QUIET and has_fma else _nearest_by_integers(x)


def _odd_sum(x, y):
    """x + y, odd where it is inexact.

    Of its two neighbours, of the sums rounded down and up, one is odd.
    """
    down = add_down(x, y)
    return select((as_bits(down) & 1) != 0, down, add_up(x, y))


def _short(what, c, a, x, o, b, y, numbers):
    """Calls that are right where every addition is exact.

    Vectors of the same columns follow each other: of the right factors one waits in a register.
    """
    terms, _, quiet, has_fma, has_adders = what
    wide, c = max(1, COLUMNS // lanes_of(c[0])), list(c)
    order = [i for column in range(wide) for i in range(column, len(c), wide)]
    for factors in values(terms, c, a, x, o, b, y, order):
        for i, (u, v) in zip(order, factors, strict=True):
            c[i] = fused(u, v, c[i]) if has_fma else u * v + c[i]
    if quiet == QUIET and has_adders:
        return tuple(map(_nearest_by_sums, c))
    return tuple(_nearest_binary32(acc, quiet, has_fma) for acc in c)


def _long(what, c, a, x, o, b, y, numbers):
    """Calls in two limbs: whole multiples of a unit, and what is left.

    Some vectors of one row at a time, whose limbs stay in registers.
    """
    terms, starts, quiet, has_fma, _ = what
    unit, totals = as_float(numbers[0]), []
    part = len(c) if quiet == QUIET else 4
    for first in range(0, len(c), part):
        rows = slice(first, first + part)
        limbs = [(acc + unit, acc - ((acc + unit) - unit)) for acc in c[rows]]
        for factors in values(terms, c[rows], a, x[rows], o, b, y):
            limbs = [
                _moved(pair, u, v, has_fma) for pair, (u, v) in zip(limbs, factors, strict=True)
            ]
        totals += [_rounded_once(high - unit, low, quiet, has_fma) for high, low in limbs]
    return if_finite(c, tuple(totals)) if starts == ANY else tuple(totals)


def _rounded_once(high, low, quiet, has_fma):
    """high + low in 24 digits; high is zero or a multiple of the last place of low."""
    if quiet == QUIET:
        return _nearest_binary32(_odd_sum(high, low), quiet, has_fma)
    total = high + low
    lost = low - (total - high)
    bits = as_bits(total)
    # Of the neighbours of a sum that lost something, the odd one lies on the side of what was lost.
    odd = (bits - ((bits ^ as_bits(lost)) >> 63)) | 1
    return _nearest_by_splitting(as_float(select(lost != 0.0, odd, bits)))


def _moved(limbs, u, v, has_fma):
    """Two limbs and a product: the higher one takes what it can, the lower one the rest."""
    high, low = limbs
    if has_fma:
        after = fused(u, v, high)
        return after, low + fused(u, v, high - after)
    after = high + u * v
    return after, low + (u * v - (after - high))


@formula
def short_calls(what, c, a, x, o, b, y, numbers):
    """One call of every output of a tile, right where every addition is exact."""
    return _short(what, c, a, x, o, b, y, numbers)


@formula
def long_calls(what, c, a, x, o, b, y, numbers):
    """One call of every output of a tile, always right."""
    return _long(what, c, a, x, o, b, y, numbers)
