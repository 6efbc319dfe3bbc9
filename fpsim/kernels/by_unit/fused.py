"""Chains of fused multiply-adds in binary32: one rounding per term, ascending.

Where the processor has no fused multiply-add, product and sum are made in binary64, rounded to odd,
and rounded once from there. `numbers` begin with the magnitude up to which sums are suspect.

Source    docs/semantics.md §5; Boldo & Melquiond 2008 (round to odd).
"""

from __future__ import annotations

from fpsim.kernels.by_unit.terms import values
from fpsim.kernels.lanes.arithmetic import fused
from fpsim.kernels.lanes.formula import formula
from fpsim.kernels.lanes.vectors import (
    as_bits,
    as_float,
    concat,
    high_half,
    low_half,
    narrow,
    widen,
)
from fpsim.kernels.rounding.to_odd import sum_to_odd

__all__ = ["fused_terms", "suspects"]


def _to_odd(x, y, acc):
    return narrow(as_float(sum_to_odd(widen(x) * widen(y), widen(acc), 64)))


def _term(acc, u, v, has_fma):
    """acc + u * v, rounded once."""
    if has_fma:
        return fused(u, v, acc)
    return concat(
        _to_odd(low_half(u), low_half(v), low_half(acc)),
        _to_odd(high_half(u), high_half(v), high_half(acc)),
    )


@formula
def fused_terms(what, c, a, x, o, b, y, numbers):
    """One term of every output of a tile."""
    (factors,) = values(1, c, a, x, o, b, y)
    return tuple(_term(acc, u, v, what[3]) for acc, (u, v) in zip(c, factors, strict=True))


@formula
def suspects(c, doubtful, limit):
    """Sums that a policy for tiny results or the sign of zero may change: 1 … limit, and -0."""
    for acc in c:
        bits = as_bits(acc)
        doubtful = doubtful | ((bits & 0x7FFFFFFF) - 1 < limit) | (bits == 0x80000000)
    return doubtful
