"""Windowed units in binary64 lanes: eight outputs side by side, four rows at a time.

The products of two short significands are exact. Scaled by 2**(window - emax) and cut to whole
numbers they are the aligned addends, whose sum has fewer than 53 digits; scaled back it is rounded
to the accumulator in one conversion. Exponents stand in tables, in the place of the exponent field;
a zero operand has one so low that it never takes part in emax.

The caller guarantees finite operands, no overflow and no subnormal sums (see `fpsim.engines`).

Source    docs/semantics.md §5.
"""

# mypy: no-check-untyped-defs
from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple

import numpy as np
from numba import njit

from fpsim.kernels.compiling import INLINE, compiled
from fpsim.kernels.lane_math import spread_item, trunc
from fpsim.kernels.lanes import (
    F64,
    U64,
    any_lane,
    as_bits,
    as_float,
    narrow,
    or_lanes,
    select,
    splat,
    umax,
    umin,
    widen,
)
from fpsim.kernels.memory import (
    copy_item,
    load,
    load_float,
    load_word,
    pointer,
    room,
    store,
    store_byte,
    store_float,
)
from fpsim.kernels.round import SR, SR_EQUAL
from fpsim.kernels.rule import spread
from fpsim.kernels.store import store_lanes

__all__ = [
    "COLUMNS", "CUT", "NEAREST", "ROWS", "WHOLE", "WindowVariant", "fetch", "keep", "pack",
    "stored", "window_kernel",
]  # fmt: skip

#: Outputs of a tile.
ROWS, COLUMNS = 4, 8

#: Exponent that stands for zero, far below every other.
_NOTHING = -400

#: Operand elements of a group of rows (16 bytes each).
_GROUP = 1 << 14

_FIELD = 0x7FF0000000000000
_ONE = 1 << 52


NEAREST, CUT, WHOLE = range(3)


class WindowVariant(NamedTuple):
    """What is compiled in."""

    terms: int
    calls: int  # of a pass, after which partials are stored
    sums: int  # NEAREST or CUT to binary32; WHOLE: each is rounded where it is stored
    store: int  # 0: partials stay as they are, 1: rounded by the mode below
    mode: int
    low: bool
    residual: int


@compiled
def pack(panels, values, exponents, bias, emin, factor):  # type: ignore[no-untyped-def]
    """Values times a factor, and exponents plus bias as fields, of binary32 codes in panels.

    An empty `exponents` is left alone.

    Returns the smallest and the largest exponent of a number (0 and -1 where all are zero), and
    whether all are finite.
    """
    source, target = pointer(panels.reshape(-1)), pointer(values.reshape(-1))
    fields = pointer(exponents.reshape(-1))
    none = splat(np.uint64(0), U64)
    factors = splat(factor, F64)
    low, high = none + 255, none
    special = none != none
    for i in range(0, panels.size, 8):
        code = load_word(source, i, none)
        magnitude = code & 0x7FFFFFFF
        number = magnitude != 0
        field = umax(magnitude >> 23, none + np.uint64(emin + 127))
        low = umin(low, select(number, field, none + 255))
        high = umax(high, select(number, field, none))
        special = special | (magnitude >= 0x7F800000)
        field = select(number, field, none + np.uint64(127 + _NOTHING))
        if exponents.size:
            store(fields, i, (field + np.uint64(bias - 127)) << 52)
        store_float(target, i, as_bits(load_float(source, i, none) * factors))
    least, most = np.int64(1 << 20), np.int64(-1)
    room_low, room_high = np.empty(8, np.uint64), np.empty(8, np.uint64)
    store(pointer(room_low), 0, low)
    store(pointer(room_high), 0, high)
    for lane in range(8):
        least, most = min(least, np.int64(room_low[lane])), max(most, np.int64(room_high[lane]))
    if most == 0:
        return np.int64(0), np.int64(-1), True
    return least - 127, most - 127, not any_lane(special)


@njit(**INLINE)  # type: ignore[misc]
def _one_call(terms, sums, acc, a, ea, i, b, eb, j, up, down, edge):  # type: ignore[no-untyped-def]
    """The accumulator of one row after `terms` products; `up` and `down` undo the window.

    `edge` holds the digits that stay of a sum that is CUT; for WHOLE sums the exponent field that
    subnormal accumulators count with.
    """
    top = as_bits(acc) & _FIELD
    if sums == WHOLE:
        top = select(top != 0, umax(top, edge), top)
    for t in range(terms):
        e = spread_item(ea, i + ROWS * t) + load(eb, j + COLUMNS * t)
        top = umax(top, e)
    scale = as_float(up - top)
    total = trunc(acc * scale)
    for t in range(terms):
        product = spread_item(a, i + ROWS * t) * load_float(b, j + COLUMNS * t, acc)
        total = total + trunc(product * scale)
    total = total * as_float(top - down)
    if sums == WHOLE:
        return total
    if sums == CUT:
        total = as_float(as_bits(total) & edge)
    return widen(narrow(total))


@njit(**INLINE)  # type: ignore[misc]
def stored(how, acc, words, w, rule):  # type: ignore[no-untyped-def]
    """Partials rounded as they are stored, and flags. A sum of zero is +0 before it is rounded."""
    bits = as_bits(acc + 0.0)
    word = bits
    if how[0] == SR or how[0] == SR_EQUAL:
        word = load_word(words, w, bits)
    bits, flags = store_lanes(how, bits, word, rule)
    return as_float(bits), flags


@njit(**INLINE)  # type: ignore[misc]
def fetch(tile, array, first, stride, m, n, none):  # type: ignore[no-untyped-def]
    """tile (4, 8) = m rows of n numbers of an array, zeros around them."""
    for r in range(ROWS):
        if r < m and n == COLUMNS:
            store_float(tile, r * COLUMNS, as_bits(load_float(array, first + r * stride, none)))
            continue
        store_float(tile, r * COLUMNS, none)
        for c in range(n if r < m else 0):
            copy_item(tile, r * COLUMNS + c, array, first + r * stride + c)


@njit(**INLINE)  # type: ignore[misc]
def keep(array, tile, first, stride, m, n, none):  # type: ignore[no-untyped-def]
    """The other way."""
    for r in range(m):
        if n == COLUMNS:
            store_float(array, first + r * stride, as_bits(load_float(tile, r * COLUMNS, none)))
            continue
        for c in range(n):
            copy_item(array, first + r * stride + c, tile, r * COLUMNS + c)


@cache
def window_kernel(variant: WindowVariant) -> Any:
    """The compiled product of packed operands.

    Call    flags = loop(a, ea, b, eb, out, marks, words, constants, window, edge)
            a (tiles, K, 4) binary64, ea uint64, b (panels, K, 8) binary32, eb uint64; out (M, N)
            binary32 holds the partials and receives the result, marks (M, N) its flags; words
            (places, M * N and 32 more)
    """
    TERMS, CALLS, SUMS, STORE, MODE, LOW, RESIDUAL = variant

    @compiled
    def loop(a, ea, b, eb, out, marks, words, constants, window, edge):  # type: ignore[no-untyped-def]
        rule = spread(constants)
        none = rule.drop ^ rule.drop
        raised = none
        depth = a.shape[1]
        rows, columns = out.shape
        pa, pea, pb, peb = (
            pointer(a.reshape(-1)), pointer(ea.reshape(-1)), pointer(b.reshape(-1)),
            pointer(eb.reshape(-1)),
        )  # fmt: skip
        po, pm, pw = (
            pointer(out.reshape(-1)),
            pointer(marks.reshape(-1)),
            pointer(words.reshape(-1)),
        )
        how = (MODE, LOW, RESIDUAL)
        up = none + np.uint64((2046 + window) * _ONE)
        down = none + np.uint64(window * _ONE)
        edges = none + np.uint64(edge)
        tile, tile_marks = room(out, 32), room(marks, 32)
        # A group of rows stays in the second-level cache while the panels pass by.
        group = max(1, _GROUP // (depth * ROWS))
        for turn in range((a.shape[0] + group - 1) // group * b.shape[0]):
            panel, begin = turn % b.shape[0], turn // b.shape[0] * group
            for block in range(begin, min(begin + group, a.shape[0])):
                i, j = block * depth * ROWS, panel * depth * COLUMNS
                first = block * ROWS * columns + panel * COLUMNS
                m, n = min(ROWS, rows - block * ROWS), min(COLUMNS, columns - panel * COLUMNS)
                fetch(tile, po, first, columns, m, n, none)
                c0, c1 = load_float(tile, 0, none), load_float(tile, 8, none)
                c2, c3 = load_float(tile, 16, none), load_float(tile, 24, none)
                place = 0
                g0 = g1 = g2 = g3 = none
                for k in range(0, depth, TERMS * CALLS):
                    for q in range(k, k + TERMS * CALLS, TERMS):
                        x, y = i + q * ROWS, j + q * COLUMNS
                        c0 = _one_call(TERMS, SUMS, c0, pa, pea, x, pb, peb, y, up, down, edges)
                        c1 = _one_call(TERMS, SUMS, c1, pa, pea, x + 1, pb, peb, y, up, down, edges)
                        c2 = _one_call(TERMS, SUMS, c2, pa, pea, x + 2, pb, peb, y, up, down, edges)
                        c3 = _one_call(TERMS, SUMS, c3, pa, pea, x + 3, pb, peb, y, up, down, edges)
                    if STORE:
                        w = place * words.shape[1] + first
                        c0, f0 = stored(how, c0, pw, w, rule)
                        c1, f1 = stored(how, c1, pw, w + min(1, m - 1) * columns, rule)
                        c2, f2 = stored(how, c2, pw, w + min(2, m - 1) * columns, rule)
                        c3, f3 = stored(how, c3, pw, w + min(3, m - 1) * columns, rule)
                        g0, g1, g2, g3 = g0 | f0, g1 | f1, g2 | f2, g3 | f3
                        place += 1
                if not STORE:
                    # A sum of zero is +0, also where it was cut away.
                    c0, c1, c2, c3 = c0 + 0.0, c1 + 0.0, c2 + 0.0, c3 + 0.0
                store_float(tile, 0, as_bits(c0))
                store_float(tile, 8, as_bits(c1))
                store_float(tile, 16, as_bits(c2))
                store_float(tile, 24, as_bits(c3))
                keep(po, tile, first, columns, m, n, none)
                if STORE and any_lane((g0 | g1 | g2 | g3) != 0):
                    raised = raised | g0 | g1 | g2 | g3
                    store_byte(tile_marks, 0, g0)
                    store_byte(tile_marks, 8, g1)
                    store_byte(tile_marks, 16, g2)
                    store_byte(tile_marks, 24, g3)
                    for r in range(m):
                        for c in range(n):
                            copy_item(pm, first + r * columns + c, tile_marks, r * COLUMNS + c)
        return np.int64(or_lanes(raised))

    return loop
