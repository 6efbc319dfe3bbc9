"""Products rounded stochastically after every operation, in lanes that round toward zero.

A number x between m q and (m + 1) q goes up iff its first r digits under q, plus R, carry: iff
|x| + R q 2**-r, cut to multiples of q, is (m + 1) q. Cutting first what lies under those digits
changes nothing, so a sum that the processor rounds toward zero will do as long as p + r digits
remain. In the integers of the bits that is one addition and one mask; where numbers below the
smallest normal may occur, whose q does not shrink, it is done in floating point.

The caller guarantees finite operands and exact products (see `fpsim.products.by_operation.bounds`).
Terms are padded to whole counters with products of -0, which change no sum.

Source    docs/semantics.md §1 (SR), §2 (rounding places) and §4.
"""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple

from numba import njit

from fpsim.kernels.by_operation.lane_rounding import not_sum, signed_like
from fpsim.kernels.by_operation.results import (
    ANYWHERE,
    GROUP,
    LOOK_FOR_ALL,
    ROWS,
    look,
    look_beyond,
    put_result,
    report,
)
from fpsim.kernels.compiling import INLINE, compiled
from fpsim.kernels.lanes.arithmetic import fused, plus, spread_item
from fpsim.kernels.lanes.formula import formula
from fpsim.kernels.lanes.memory import load_float, load_word, pointer, room, splat_item, store_float
from fpsim.kernels.lanes.tiles import keep
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
from fpsim.kernels.random.words import output_words, outputs_ready
from fpsim.kernels.rounding.direction import set_modes
from fpsim.kernels.status_register import TOWARD_ZERO

__all__ = ["FIELDS", "RandomRule", "RandomVariant", "random_kernel"]


class RandomRule(NamedTuple):
    """Constants of the roundings, bit patterns of the lanes."""

    shift: int  # from the top of a lane to the top of the dropped digits
    mask: int  # the digits that are not dropped
    digits: int  # the top r bits of a lane
    floor: int  # exponent field of the smallest normal number
    quantum: int  # 2**(1 - p)
    lift: int  # 1.5 * 2**(digits of the lane - p) …
    sink: int  # … and 2**(1 - p) more, with a minus
    random_bits: int  # r of normal results …
    random_most: int  # … and at most, below them
    over_pos: int  # above the largest number
    over_neg: int
    value_pos: int  # what that becomes
    value_neg: int
    tiny_pos: int  # the smallest normal number, …
    tiny_neg: int  # … and the largest negative one
    nan: int  # the NaN of results
    zero: int  # bits kept of a zero result


FIELDS = RandomRule._fields


class RandomVariant(NamedTuple):
    """What is compiled in."""

    fused: bool
    wide: bool  # R takes a whole word
    small: bool  # inexact results below the smallest normal number may occur
    more: bool  # … and look at more digits than others
    checked: int  # where something may overflow
    beyond: int  # what that becomes
    watched: int  # which flags are looked for
    has_fma: bool


@formula
def _spread(k):
    return RandomRule(*(splat_item(k, i) for i in range(len(FIELDS))))


def _top(word, low):
    """Random words with R at the top of the lanes; `low`: R is in the lower half of its word."""
    shift = width_of(word) - (16 if low else 32)
    return word << shift if shift else word


def _fraction(word, low):
    """Random words with R at the top of the digits of a float, and anything above."""
    shift = (52 if width_of(word) == 64 else 23) - (16 if low else 32)
    return word << shift if shift > 0 else word >> -shift


def _round(small, more, has_fma, x, word, low, rule):
    if small:
        return _round_to_grid(more, has_fma, x, word, low, rule)
    random = _top(word, low) & rule.digits
    return as_float((as_bits(x) + (random >> rule.shift)) & rule.mask)


def _round_to_grid(more, has_fma, x, word, low, rule):
    """x rounded to quanta of its exponent, or of the smallest normal one.

    x + (1 + R 2**-r) q is cut to multiples of q by a far larger number that is added, and taken
    away with the q.
    """
    bits = as_bits(x)
    field, sign = bits & infinity_like(bits), bits & sign_like(bits)
    grid = umax(field, rule.floor)
    unit, stored = as_float(grid | sign), 52 if width_of(bits) == 64 else 23
    digits = rule.digits >> (width_of(bits) - stored)
    if more:
        binades = (grid - field) >> stored
        r = umin(rule.random_bits + binades, rule.random_most)
        everything = ~(bits ^ bits) >> (width_of(bits) - stored)
        digits = everything & ~(everything >> r)
    random = as_float((_fraction(word, low) & digits) | rule.quantum)
    for factor in (random, as_float(rule.lift), as_float(rule.sink)):
        x = fused(unit, factor, x) if has_fma else unit * factor + x  # exact products
    return signed_like(x, as_float(sign))


def _term(what, acc, x, y, words, lows, rule, events):
    """acc and the events so far, a term later, by the words of its rounding places."""
    chain, _wide, small, more, checked, held, watched, has_fma = what
    product = x * y
    never = product != product
    if chain:
        total = fused(x, y, acc) if has_fma else product + acc
        result = _round(small, more, has_fma, total, words[0], lows[0], rule)
        if watched == LOOK_FOR_ALL:
            events = look(total, result, not_sum(total, acc, product), rule, events)
        if checked:  # an infinity has no quanta
            result = select(total - total == 0, result, total)
    else:
        rounded = _round(small, more, has_fma, product, words[0], lows[0], rule)
        if watched == LOOK_FOR_ALL:
            events = look(product, rounded, never, rule, events)
        if checked == ANYWHERE:
            rounded, events = look_beyond(held, watched, rounded, rounded, rule, events)
        total = acc + rounded
        # Sums below the smallest normal number are exact.
        result = _round(False, False, has_fma, total, words[1], lows[1], rule)
        if watched == LOOK_FOR_ALL:
            events = look(total, result, not_sum(total, acc, rounded), rule, events)
    if checked:
        result, events = look_beyond(held, watched, result, result, rule, events)
    return result, events


@formula
def _terms(what, c, d, a, i, b, j, step, words, rule, events):
    """The terms of one counter of two vectors: factors from i in a, from j in b, `step` apart.

    The second vector has the words of the next sixteen outputs, or of the other eight.
    """
    chain, wide = what[:2]
    lanes = 512 // width_of(rule.mask)
    places = range(4 if wide else 8)
    per_term = 1 if chain else 2
    for s in places[::per_term]:
        x = spread_item(a, plus(i, s // per_term))
        term_places = places[s : s + per_term]
        lows = [not wide and place < 4 for place in term_places]
        sums = []
        for acc, first, at in ((c, 0, 0), (d, lanes, 64 if lanes == 16 else 8)):
            y = load_float(b, plus(j, first), rule.mask)
            drawn = [load_word(words, at + place % 4 * 16, rule.mask) for place in term_places]
            acc, events = _term(what, acc, x, y, drawn, lows, rule, events)
            sums.append(acc)
        c, d = sums
        j = plus(j, step)
    return c, d, events


@njit(**INLINE)
def _start(tile, m, wide, none):
    """m rows of -0, which changes no sum."""
    for i in range(0, m * wide, 512 // width_of(none)):
        store_float(tile, i, sign_like(none))


@cache
def random_kernel(variant: RandomVariant) -> Any:
    """flags = loop(a, b, out, words, constants, first, seed, operation): the compiled product.

    Shapes  a (M, K), b (panels, K, two vectors), out (M, N), K whole counters; words uint32 of any
            shape; constants as wide as a. Output (i, j) has number first + i * N + j.
    """
    FUSED, WIDE, SMALL, MORE, CHECKED, BEYOND, WATCHED, FMA = variant
    TERMS = (4 if WIDE else 8) // (1 if FUSED else 2)  # terms of a counter

    @compiled
    def loop(a, b, out, words, constants, first, seed, operation):
        rule = _spread(constants)
        none = rule.mask ^ rule.mask
        lanes = 512 // width_of(none)
        rows, columns = out.shape
        depth, wide = b.shape[1], b.shape[2]
        pa, pb, po = pointer(a.reshape(-1)), pointer(b.reshape(-1)), pointer(out.reshape(-1))
        tile, results = room(a, 128), room(out, 128)
        drawn, common = room(words, 128), room(words, 1024)
        what = (FUSED, WIDE, SMALL, MORE, CHECKED, BEYOND, WATCHED, FMA)
        never = none != none
        events, top = (never, never, none), none
        blocks = (rows + ROWS - 1) // ROWS
        group = max(1, GROUP // (depth * ROWS))
        set_modes(TOWARD_ZERO)
        for turn in range((blocks + group - 1) // group * b.shape[0]):
            panel, begin = turn % b.shape[0], turn // b.shape[0] * group
            for block in range(begin, min(begin + group, blocks)):
                m, n = min(ROWS, rows - block * ROWS), min(wide, columns - panel * wide)
                _start(tile, m, wide, none)
                for r in range(m):
                    number = first + (block * ROWS + r) * columns + panel * wide
                    outputs_ready(common, r * 256, number, seed, operation)
                    if lanes == 16:
                        outputs_ready(common, r * 256 + 128, number + 16, seed, operation)
                for k in range(0, depth, TERMS):
                    j = (panel * depth + k) * wide
                    for r in range(m):
                        i = (block * ROWS + r) * depth + k
                        output_words(drawn, 0, common, r * 256, k // TERMS, seed, operation)
                        if lanes == 16:
                            output_words(
                                drawn, 64, common, r * 256 + 128, k // TERMS, seed, operation
                            )
                        c = load_float(tile, r * wide, none)
                        d = load_float(tile, r * wide + lanes, none)
                        c, d, events = _terms(what, c, d, pa, i, pb, j, wide, drawn, rule, events)
                        store_float(tile, r * wide, as_bits(c))
                        store_float(tile, r * wide + lanes, as_bits(d))
                for r in range(2 * m):
                    x = load_float(tile, r * lanes, none)
                    top = umax(top, put_result(results, r * lanes, x, True, rule))
                keep(po, results, block * ROWS * columns + panel * wide, columns, m, n, wide, none)
        return report(events, top, rule)

    return loop
