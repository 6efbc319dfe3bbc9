"""Products rounded after every multiplication and addition by a deterministic mode.

Four rows by two vectors of columns stay in registers while their terms pass. The caller guarantees
finite operands and exact products (see `fpsim.mac_range`). Overflow is looked for where `checked`,
flags where `watched`, so that neither costs anything once it is known.

Source    docs/semantics.md §4.
"""

# mypy: no-check-untyped-defs
from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple

from numba import njit

from fpsim.kernels.compiling import INLINE, compiled
from fpsim.kernels.direction import raised, set_direction
from fpsim.kernels.exact import sum_to_odd
from fpsim.kernels.formula import formula
from fpsim.kernels.lane_math import fused, spread_item
from fpsim.kernels.lanes import (
    any_lane,
    as_bits,
    as_float,
    infinity_like,
    is_nan,
    select,
    sign_like,
    umax,
    width_of,
)
from fpsim.kernels.macs import beyond, not_sum, round_product, round_sum, spread_macs, with_odd
from fpsim.kernels.memory import copy_item, load_float, pointer, room, store_float
from fpsim.kernels.round import RNE

__all__ = [
    "INEXACT",
    "INFINITE",
    "LOOK_FOR_ALL",
    "LOOK_FOR_NONE",
    "LOOK_FOR_OVERFLOW",
    "NAN",
    "OVERFLOW",
    "ROWS",
    "UNDERFLOW",
    "MacVariant",
    "keep_rows",
    "mac_kernel",
]

ROWS = 4

#: Operand elements of a group of rows.
_GROUP = 1 << 16

#: What a kernel reports: flags, and whether infinities and NaN are among the results.
INEXACT, UNDERFLOW, OVERFLOW, INFINITE, NAN = 1, 2, 4, 32, 64

#: Which flags are looked for.
LOOK_FOR_NONE, LOOK_FOR_OVERFLOW, LOOK_FOR_ALL = range(3)


class MacVariant(NamedTuple):
    """What is compiled in."""

    mode: int
    direction: int
    fused: bool
    native: bool  # the lanes are the format: nothing is left to round
    checked: bool  # sums and products may overflow
    watched: int  # which flags are looked for
    has_fma: bool


def _look(x, result, lost, rule, seen):  # type: ignore[no-untyped-def]
    """What was seen so far: inexact results, and tiny ones among them."""
    some, tiny, over = seen
    changed = (result != x) | lost
    inside = (x < as_float(rule.tiny_pos)) & (x > as_float(rule.tiny_neg))
    return some | changed, tiny | (changed & inside), over


def _edge(watched, x, result, rule, seen):  # type: ignore[no-untyped-def]
    some, tiny, over = seen
    large, result = beyond(x, result, rule)
    if watched:
        over = over | large
    return result, (some, tiny, over)


def _separate(what, acc, x, y, rule, seen):  # type: ignore[no-untyped-def]
    """acc = fl(acc + fl(x y)), and what was seen so far."""
    mode, checked, watched = what
    product = x * y
    p = round_product(mode, product, rule)
    if watched == LOOK_FOR_ALL:
        seen = _look(product, p, product != product, rule, seen)
    if checked:
        p, seen = _edge(watched, product, p, rule, seen)
    total = with_odd(mode, acc + p, acc, p)
    result = round_sum(mode, total, rule)
    if watched == LOOK_FOR_ALL:
        seen = _look(total, result, not_sum(total, acc, p), rule, seen)
    if checked:
        result, seen = _edge(watched, total, result, rule, seen)
    return result, seen


def _fused(what, acc, x, y, rule, seen):  # type: ignore[no-untyped-def]
    """acc = fl(acc + x y), and what was seen so far. A directed sum needs no odd digit."""
    mode, checked, watched = what
    product = x * y
    total = with_odd(mode, acc + product, acc, product)
    lost = total != total
    if mode == RNE:
        total = as_float(sum_to_odd(acc, product, width_of(total)))
    elif watched == LOOK_FOR_ALL:
        lost = not_sum(total, acc, product)
    result = round_product(mode, total, rule)
    if watched == LOOK_FOR_ALL:
        seen = _look(total, result, lost, rule, seen)
    if checked:
        result, seen = _edge(watched, total, result, rule, seen)
    return result, seen


def _term(what, acc, x, y, rule, seen):  # type: ignore[no-untyped-def]
    chain, native, has_fma = what[:3]
    if native:
        if chain and has_fma:
            return fused(x, y, acc), seen
        return acc + x * y, seen
    if chain:
        return _fused(what[3:], acc, x, y, rule, seen)
    return _separate(what[3:], acc, x, y, rule, seen)


@formula
def _terms(what, c, a, x, u, v, rule, seen):  # type: ignore[no-untyped-def]
    """One term of eight vectors: rows at x in a, columns u and v."""
    found = []
    for i, acc in enumerate(c):
        item = spread_item(a, x[i // 2])
        acc, seen = _term(what, acc, item, (u, v)[i % 2], rule, seen)
        found.append(acc)
    return tuple(found), seen


def _result(tile, i, acc, checked, rule):  # type: ignore[no-untyped-def]
    """A vector of results into a tile: NaN canonical, zeros of the format; their magnitudes."""
    bits = as_bits(acc)
    bits = select((bits & ~sign_like(bits)) == 0, bits & rule.zero, bits)
    if checked:
        bits = select(is_nan(acc), rule.nan, bits)
    store_float(tile, i * 512 // width_of(bits), bits)
    return as_bits(acc) & ~sign_like(bits)


@formula
def _results(tile, c, checked, rule):  # type: ignore[no-untyped-def]
    """Eight vectors of results; the largest magnitude of each lane."""
    top = rule.step ^ rule.step
    for i, acc in enumerate(c):
        top = umax(top, _result(tile, i, acc, checked, rule))
    return top


@njit(**INLINE)  # type: ignore[misc]
def keep_rows(out, first, stride, tile, m, n, none):  # type: ignore[no-untyped-def]
    """m rows of n results from a tile of two vectors of columns."""
    lanes = 512 // width_of(none)
    for r in range(m):
        for c in range(0, 2 * lanes, lanes):
            if n >= c + lanes:
                x = load_float(tile, r * 2 * lanes + c, none)
                store_float(out, first + r * stride + c, as_bits(x))
                continue
            for i in range(c, min(n, c + lanes)):
                copy_item(out, first + r * stride + i, tile, r * 2 * lanes + i)


@cache
def mac_kernel(variant: MacVariant) -> Any:
    """The compiled product.

    Call    flags = loop(a, b, out, constants): a (M, K), b (panels, K, two vectors), out (M, N),
            constants as `spread_macs` reads them, all of one width; flags as this file numbers
            them, and where `native` the processor's own << 8
    """
    MODE, DIRECTION, FUSED, NATIVE, CHECKED, WATCHED, FMA = variant

    @compiled
    def loop(a, b, out, constants):  # type: ignore[no-untyped-def]
        rule = spread_macs(constants)
        none = rule.step ^ rule.step
        rows, columns = out.shape
        depth, wide = b.shape[1], b.shape[2]
        pa, pb, po = pointer(a.reshape(-1)), pointer(b.reshape(-1)), pointer(out.reshape(-1))
        tile = room(out, 128)
        what = (FUSED, NATIVE, FMA, MODE, CHECKED, WATCHED)
        never = none != none
        seen, top = (never, never, never), none
        start = as_float(rule.start)
        blocks = (rows + ROWS - 1) // ROWS
        group = max(1, _GROUP // (depth * ROWS))
        set_direction(DIRECTION)
        for turn in range((blocks + group - 1) // group * b.shape[0]):
            panel, begin = turn % b.shape[0], turn // b.shape[0] * group
            for block in range(begin, min(begin + group, blocks)):
                i, last = block * ROWS, rows - 1
                x0, x1 = i * depth, min(i + 1, last) * depth
                x2, x3 = min(i + 2, last) * depth, min(i + 3, last) * depth
                j = panel * depth * wide
                c = (start, start, start, start, start, start, start, start)
                for k in range(depth):
                    u = load_float(pb, j + k * wide, none)
                    v = load_float(pb, j + k * wide + wide // 2, none)
                    c, seen = _terms(
                        what, c, pa, (x0 + k, x1 + k, x2 + k, x3 + k), u, v, rule, seen
                    )
                top = umax(top, _results(tile, c, CHECKED or NATIVE, rule))
                m, n = min(ROWS, rows - i), min(wide, columns - panel * wide)
                keep_rows(po, i * columns + panel * wide, columns, tile, m, n, none)
        flags = raised() << 8
        some, tiny, over = seen
        flags |= any_lane(some) * INEXACT + any_lane(tiny) * UNDERFLOW + any_lane(over) * OVERFLOW
        infinity = infinity_like(none)
        return flags + any_lane(top > infinity) * NAN + any_lane(top == infinity) * INFINITE

    return loop
