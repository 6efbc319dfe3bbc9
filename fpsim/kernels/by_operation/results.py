"""What products rounded after every operation leave behind: results, and what was seen on the way.

Overflow is looked for where `checked`, flags where `watched`, so that neither costs anything once
it is known.
"""

from __future__ import annotations

from numba import njit

from fpsim.kernels.by_operation.lane_rounding import BY_SIDE, beyond, held_beyond
from fpsim.kernels.compiling import INLINE
from fpsim.kernels.lanes.formula import formula
from fpsim.kernels.lanes.memory import store_float
from fpsim.kernels.lanes.vectors import (
    any_lane,
    as_bits,
    as_float,
    infinity_like,
    is_nan,
    select,
    sign_like,
    umax,
)

__all__ = [
    "ANYWHERE", "GROUP", "IN_SUMS", "INEXACT", "INFINITE", "LOOK_FOR_ALL", "LOOK_FOR_NONE",
    "LOOK_FOR_OVERFLOW", "NAN", "NOWHERE", "OVERFLOW", "ROWS", "STRETCH", "UNDERFLOW", "look",
    "look_beyond", "put_result", "report",
]

#: Rows of a tile, and operand elements of a group of rows.
ROWS, GROUP = 4, 1 << 16

#: Terms between two looks whether sums are far from overflow.
STRETCH = 8

#: What a kernel reports: flags, and whether infinities and NaN are among the results.
INEXACT, UNDERFLOW, OVERFLOW, INFINITE, NAN = 1, 2, 4, 32, 64

#: Where something may overflow.
NOWHERE, IN_SUMS, ANYWHERE = range(3)

#: Which flags are looked for.
LOOK_FOR_NONE, LOOK_FOR_OVERFLOW, LOOK_FOR_ALL = range(3)


def look(x, result, lost, rule, events):
    """The events so far: inexact results, tiny ones among them, and what may overflow."""
    inexact, tiny, over = events
    changed = (result != x) | lost
    inside = (x < as_float(rule.tiny_pos)) & (x > as_float(rule.tiny_neg))
    return inexact | changed, tiny | (changed & inside), over


def look_beyond(what, watched, x, result, rule, events):
    """The result for x where that may overflow, and the events so far: the largest magnitude, or
    all ones where only the sign tells what overflows.

    `what` overflow becomes is a number of `fpsim.kernels.by_operation.lane_rounding`.
    """
    inexact, tiny, over = events
    if what == BY_SIDE:
        large, result = beyond(x, result, rule)
        size = select(large, ~(over ^ over), over ^ over)
    else:
        result, bits = held_beyond(what, x, result, rule), as_bits(x)
        size = bits & ~sign_like(bits)
    return result, (inexact, tiny, umax(over, size) if watched else over)


@formula
def put_result(tile, i, acc, checked, rule):
    """A vector of results into a tile: NaN canonical, zeros of the format; their magnitudes."""
    bits = as_bits(acc)
    bits = select((bits & ~sign_like(bits)) == 0, bits & rule.zero, bits)
    if checked:
        bits = select(is_nan(acc), rule.nan, bits)
    store_float(tile, i, bits)
    return as_bits(acc) & ~sign_like(bits)


@njit(**INLINE)
def report(events, top, rule):
    """Flags of the events; infinities and NaN, by the largest magnitudes of the results."""
    inexact, tiny, size = events
    infinity, over = infinity_like(top), size >= rule.over_pos
    flags = any_lane(inexact) * INEXACT + any_lane(tiny) * UNDERFLOW + any_lane(over) * OVERFLOW
    return flags + any_lane(top > infinity) * NAN + any_lane(top == infinity) * INFINITE
