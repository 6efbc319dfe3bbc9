"""The loop of every fast product: tiles of outputs stay in eight vectors while their terms pass.

A tile is sixteen columns wide; its rows are what the vectors of a tile hold, and the vectors are
what the processor has registers for. How a
unit call works is a function that the loop is given; there are two of them where the short way is
right only on ordinary data. The short way of a stretch is proven afterwards (no addition was
inexact, no partial came near to overflow), else the stretch is done again in the long way. After
two failures the tiles go there directly and try the short way every sixteenth time.

The stretches are functions of their own; that costs nothing (0.99 to 1.00 times the time with
stored partials, least of 300 runs in 3 interleaved processes). The loop around them stays in one
piece: its choices are constants of the closure, so what a variant lacks is never even typed.

The left operand is read where it stands, at the sum of a row's base and a term's offset; the right
one is in panels of sixteen columns. Lanewise the left numbers of neighbouring columns stand side by
side there.

Source    docs/semantics.md §2 (rounding places) and §5.
"""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple

import numpy as np
from numba import njit

from fpsim.kernels.by_unit.exact import long_calls, short_calls
from fpsim.kernels.by_unit.fused import fused_terms, suspects
from fpsim.kernels.by_unit.terms import COLUMNS
from fpsim.kernels.by_unit.tile_memory import (
    clear_flags,
    fetch_rows,
    keep_rows,
    lanewise_bases_of,
    largest_field,
    load_tile,
    merge_flags,
    positive,
    put_tile,
    read_apart,
    row_bases_of,
    signed,
)
from fpsim.kernels.by_unit.window import (
    any_calls_31,
    any_calls_32,
    any_calls_pair,
    calls_31,
    calls_32,
    calls_64,
    calls_pair,
)
from fpsim.kernels.compiling import INLINE, compiled
from fpsim.kernels.lanes.arithmetic import clear_inexact, inexact, plus
from fpsim.kernels.lanes.formula import formula
from fpsim.kernels.lanes.memory import (
    copy_item,
    load_raw,
    load_word,
    pointer,
    room,
    splat_register,
    store_float,
    store_low,
)
from fpsim.kernels.lanes.vectors import (
    any_lane,
    as_bits,
    as_float,
    infinity_like,
    lanes_of,
    or_lanes,
    select,
    umax,
)
from fpsim.kernels.random.words import place_words
from fpsim.kernels.rounding.modes import SR
from fpsim.kernels.rounding.rule import spread_registers
from fpsim.kernels.rounding.store import ordinary_below, store_lanes, store_ordinary

__all__ = [
    "COLUMNS", "EXACT", "FLAG", "FUSED", "PARTIALS", "SUMS", "UNGUARDED", "WINDOW_31", "WINDOW_32",
    "WINDOW_64", "WINDOW_PAIR", "TileVariant", "tile_kernel",
]

#: Terms between two looks at the guards, terms of a chunk that all tiles pass before the next one
#: (its panel stays in the first-level cache), and operand elements of a group of rows.
STRETCH, STEPS, _GROUP = 256, 512, 1 << 14

#: Unit calls.
WINDOW_64, WINDOW_32, EXACT, FUSED, WINDOW_PAIR, WINDOW_31 = range(6)

#: What guards the short way.
UNGUARDED, FLAG, PARTIALS, SUMS = 0, 1, 2, 4


class TileVariant(NamedTuple):
    """What is compiled in."""

    kind: int
    terms: int
    calls: int
    guard: int
    store: bool  # partials are rounded after each pass, by the mode below
    mode: int
    residual: int
    supplied: bool  # random bits are handed over, R in their low bits
    wide: bool  # R takes a whole word
    quiet: int  # how roundings of partials leave the inexact flag alone
    sums: int  # of a unit call: how it is rounded (see the kernels)
    has_fma: bool
    has_adders: bool  # sums do not wait for products
    vectors: int  # of a tile
    lanewise: bool = False  # each column has left factors of its own, side by side


#: How a call of each kind works: the short way, and the one that is always right.
_SHORT = {
    WINDOW_64: calls_64, WINDOW_32: calls_32, WINDOW_PAIR: calls_pair, EXACT: short_calls,
    FUSED: fused_terms, WINDOW_31: calls_31,
}
_LONG = {
    WINDOW_64: calls_64, WINDOW_32: any_calls_32, WINDOW_PAIR: any_calls_pair, EXACT: long_calls,
    WINDOW_31: any_calls_31,
}


@formula
def _short_call(what, c, a, x, o, b, y, numbers):
    return _SHORT[what[0]]((what[1], *what[3:]), c, a, x, o, b, y, numbers)


@formula
def _long_call(what, c, a, x, o, b, y, numbers):
    return _LONG[what[0]]((what[1], *what[3:]), c, a, x, o, b, y, numbers)


@formula
def _store_ordinary(how, c, largest, words, w, rule):
    """Partials rounded where they cannot overflow, and the largest exponent field so far.

    The sign of a zero is settled after the last pass (see `signed`).
    """
    lanes, rounded = lanes_of(largest), []
    for i, acc in enumerate(c):
        bits = as_bits(acc)
        field = bits & infinity_like(bits)
        word = bits
        if how[0] >= SR:
            at = i * lanes // COLUMNS * 128 + i * lanes % COLUMNS
            word = load_word(words, plus(w, at), bits)
        rounded.append(as_float(store_ordinary(how, bits, field, word, rule)))
        largest = umax(largest, field)
    return tuple(rounded), largest


@njit(**INLINE)
def _store_any(how, sums, tile, vectors, element_flags, words, w, rule):
    """The sums of a tile rounded into its partials, and their flags. A sum of zero is +0 before.

    The sums have the width of the lanes: those that are left whole have more digits than binary32.
    """
    none = rule.drop ^ rule.drop
    merged = none
    lanes = lanes_of(none)
    for i in range(0, vectors * lanes, lanes):
        bits = as_bits(as_float(load_raw(sums, i, none)) + 0.0)
        word = bits
        if how[0] >= SR:
            word = load_word(words, w + i // COLUMNS * 128 + i % COLUMNS, bits)
        bits, flags = store_lanes(how[:3], bits, word, rule)
        store_float(tile, i, bits)
        store_low(element_flags, i, load_word(element_flags, i, bits) | flags)
        merged = merged | flags
    return merged


@njit(**INLINE)
def _words_at(drawn, fresh, draw, first, m, n, place, start):
    """Where in `fresh` the random words of a pass begin; `first` is the number of output (0, 0).

    The rows of a tile get their words together, for all rounding places of a counter: at the first
    one of these, and at the `start`.
    """
    supplied, places, outputs, stride, seed, operation = draw
    count = 4 if drawn[1] else 8
    within = place % count
    if start or within == 0:
        for r in range(m):
            number = first + r * stride
            if drawn[0]:
                for i in range(min(count, places - place + within)):
                    for c in range(n):
                        at = (place - within + i) * outputs + number + c
                        copy_item(fresh, r * 128 + i * COLUMNS + c, supplied, at)
            else:
                place_words(fresh, r * 128, number, place // count, seed, operation, drawn[1])
    return within * COLUMNS


@njit(**INLINE)
def _short_terms(what, watched, c, operands, span, terms, doubtful):
    """The sums of a stretch the short way, and which ones were suspect if they are watched."""
    a, x, offsets, b, j = operands
    for k in range(span[0], span[1], what[2]):
        for q in range(k, k + what[2], what[1]):
            c = _short_call(what, c, a, x, (offsets, q), b, j + q * COLUMNS, terms)
            if watched:
                doubtful = suspects(c, doubtful, terms[0])
    return c, doubtful


@njit(**INLINE)
def _short_passes(what, how, drawn, c, operands, span, terms, draw, at, before, rule):
    """The same with partials rounded after each pass; the largest exponent field of one."""
    a, x, offsets, b, j = operands
    fresh, first, m, n, place = at
    none = rule.drop ^ rule.drop
    largest = largest_field(c, none)
    for k in range(span[0], span[1], what[2]):
        for q in range(k, k + what[2], what[1]):
            c = _short_call(what, c, a, x, (offsets, q), b, j + q * COLUMNS, terms)
        w = np.int64(0)
        if how[0] >= SR:
            w = _words_at(drawn, fresh, draw, first, m, n, place + k // what[2], k == span[0])
        put_tile(before, c)
        c, largest = _store_ordinary(how, c, largest, fresh, w, rule)
    return signed(c, before), largest


@njit(**INLINE)
def _long_terms(what, c, operands, span, terms):
    """The sums of a stretch the long way."""
    a, x, offsets, b, j = operands
    for k in range(span[0], span[1], what[2]):
        for q in range(k, k + what[2], what[1]):
            c = _long_call(what, c, a, x, (offsets, q), b, j + q * COLUMNS, terms)
    return c


@njit(**INLINE)
def _long_passes(what, how, drawn, tile, flags, operands, span, terms, draw, at, sums, rule):
    """The same with partials rounded after each pass, in the tile; flags raised.

    sums   room for those of a pass.
    """
    fresh, first, m, n, place = at
    none = rule.drop ^ rule.drop
    merged = none
    for k in range(span[0], span[1], what[2]):
        c = load_tile(tile, operands[1], none)
        c = _long_terms(what, c, operands, (k, k + what[2]), terms)
        w = np.int64(0)
        if how[0] >= SR:
            w = _words_at(drawn, fresh, draw, first, m, n, place + k // what[2], k == span[0])
        put_tile(sums, c)
        merged = merged | _store_any(how, sums, tile, len(operands[1]), flags, fresh, w, rule)
    return merged


@cache
def tile_kernel(variant: TileVariant) -> Any:
    """The compiled product; the type of the constants says how wide its lanes are.

    Call    flags = loop(left, right, out, element_flags, random, constants, numbers)
            left: values, exponents, bases of the rows (a multiple of the tile's height), offsets of
            the terms (a multiple of the pass), places (M,) where the rows begin in `out`; right:
            panels' values, exponents, first and last column of the result; out binary32 holds the
            partials and receives the result, its flags stand likewise; panels of n times as many
            rows as there are terms are those of n products, which share the rows equally;
            random: words (rounding places, outputs) if given, step from row to row, seed,
            operation, number of output (0, 0), first rounding place; constants of the stores;
            numbers of the unit calls
    """
    (
        KIND,
        TERMS,
        CALLS,
        GUARD,
        STORE,
        MODE,
        RESIDUAL,
        GIVEN,
        WIDE,
        QUIET,
        ROUNDING,
        FMA,
        ADDERS,
        VECTORS,
        APART,
    ) = variant
    PASS = TERMS * CALLS
    ROUNDED, FLAGGED, WATCHED = (bool(GUARD & x) for x in (PARTIALS, FLAG, SUMS))
    OPEN = not ROUNDED and not FLAGGED
    SHORT = (not STORE or ROUNDED) and (KIND != EXACT or FLAGGED)
    LONG = not OPEN or not SHORT
    TOGETHER = max(1, STRETCH // (8 * PASS)) * 8 * PASS
    CHUNK = max(1, STEPS // TOGETHER) * TOGETHER
    if OPEN:
        TOGETHER = CHUNK

    @compiled
    def loop(left, right, out, element_flags, random, constants, numbers):
        # Plain tuples: numba keeps the numbers in their types, and loops over them are unrolled.
        what, how = (
            (KIND, TERMS, PASS, ROUNDING, QUIET, FMA, ADDERS),
            (MODE, GIVEN, RESIDUAL, QUIET),
        )
        drawn = (GIVEN, WIDE)
        rule = spread_registers(constants)
        terms = (
            splat_register(numbers, 0),
            splat_register(numbers, 1),
            splat_register(numbers, 2),
        )
        none = rule.drop ^ rule.drop
        height = VECTORS * lanes_of(none) // COLUMNS
        if APART:  # a third item says so to the formulas
            a = pointer(left[0]), pointer(left[1]), pointer(left[0])
        else:
            a = pointer(left[0]), pointer(left[1])
        b = pointer(right[0]), pointer(right[1])
        bases, offsets, places = pointer(left[2]), pointer(left[3]), pointer(left[4])
        supplied, stride, seed, operation, origin, place = random
        draw = (
            pointer(supplied.reshape(-1)),
            supplied.shape[0],
            supplied.shape[1],
            stride,
            seed,
            operation,
        )
        po, pf = pointer(out.reshape(-1)), pointer(element_flags.reshape(-1))
        tile, trial, tile_flags = room(out, 128), room(out, 128), room(element_flags, 128)
        fresh, before = room(supplied, 1024), room(constants, 128)
        left_edge, right_edge = right[2], right[3]
        depth = left[3].shape[0]
        products = right[0].shape[1] // depth
        rows = left[4].shape[0] // products
        raised = none
        limit = ordinary_below(rule)
        failures = turns = 0
        blocks, panels = left[2].shape[0] // height, right[0].shape[0]
        per_product = blocks // products
        group = max(1, _GROUP // (min(CHUNK, depth) * height))
        groups = (blocks + group - 1) // group
        for turn in range((depth + CHUNK - 1) // CHUNK * groups * panels):
            panel, top = turn % panels, turn // panels % groups * group
            begin = turn // panels // groups * CHUNK
            for block in range(top, min(top + group, blocks)):
                product, within = block // per_product, block % per_product * height
                column = left_edge + panel * COLUMNS
                if APART:
                    x = lanewise_bases_of(bases, block * height, column, VECTORS, none)
                else:
                    x = row_bases_of(bases, block * height, VECTORS, none)
                j = (panel * products + product) * depth * COLUMNS
                operands, row = (a, x, offsets, b, j), product * rows + within
                quick = (a, read_apart(x, none) if ADDERS and not APART else x, offsets, b, j)
                m, n = min(height, rows - within), min(COLUMNS, right_edge - column)
                at = fresh, origin + row * stride + column, m, n, place
                fetch_rows(tile, po, places, row, column, m, n, height, none)
                merged = none
                if LONG:
                    clear_flags(tile_flags)
                for k0 in range(begin, min(begin + CHUNK, depth), TOGETHER):
                    span = k0, min(k0 + TOGETHER, depth)
                    doubt = True
                    if SHORT:
                        turns += 1
                        if OPEN or failures < 2 or turns % 16 == 0:
                            c, doubt, doubtful = load_tile(tile, x, none), False, none != none
                            if FLAGGED:
                                clear_inexact()
                            if ROUNDED:
                                c, largest = _short_passes(
                                    what, how, drawn, c, quick, span, terms, draw, at, before, rule
                                )
                                doubt = any_lane(largest >= limit)
                            else:
                                c, doubtful = _short_terms(
                                    what, WATCHED, c, quick, span, terms, doubtful
                                )
                            if not STORE:
                                c = positive(c)
                            put_tile(trial, c)
                            if FLAGGED:
                                doubt = doubt or inexact()
                            if WATCHED:
                                raised = select(doubtful, none + 1, raised)
                            failures = failures + 1 if doubt else 0
                            if not doubt:
                                tile, trial = trial, tile
                    if LONG and doubt:
                        if STORE:
                            merged = merged | _long_passes(
                                what, how, drawn, tile, tile_flags, operands, span, terms, draw, at,
                                before, rule,
                            )
                        else:
                            c = load_tile(tile, x, none)
                            put_tile(tile, _long_terms(what, c, operands, span, terms))
                keep_rows(po, tile, places, row, column, m, n, none)
                if LONG and any_lane(merged != 0):
                    raised = raised | merged
                    merge_flags(pf, tile_flags, places, row, column, m, n)
        return np.int64(or_lanes(raised))

    return loop
