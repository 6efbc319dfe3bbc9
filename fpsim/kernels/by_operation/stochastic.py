"""Products rounded stochastically after every operation, in lanes that round toward zero.

A number x between m q and (m + 1) q goes up iff its first r digits under q, plus R, carry: iff
|x| + R q 2**-r, cut to multiples of q, is (m + 1) q. Cutting first what lies under those digits
changes nothing, so a sum that the processor rounds toward zero will do as long as p + r digits
remain. In the integers of the bits that is one addition and one mask; numbers below the smallest
normal, whose q does not shrink, take the same steps in floating point.

The caller guarantees finite operands and exact products (see `fpsim.products.by_operation.bounds`).
Terms are padded to whole counters with products of -0, which change no sum.

Source    docs/semantics.md §1 (SR), §2 (rounding places) and §4.
"""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple

from numba import njit

from fpsim.kernels.by_operation.lane_rounding import not_sum
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
from fpsim.kernels.lanes.arithmetic import fused, spread_item
from fpsim.kernels.lanes.formula import formula
from fpsim.kernels.lanes.memory import load_float, load_word, pointer, room, splat_item, store_float
from fpsim.kernels.lanes.tiles import keep
from fpsim.kernels.lanes.vectors import as_bits, as_float, select, sign_like, umax, umin, width_of
from fpsim.kernels.random.words import place_words
from fpsim.kernels.rounding.direction import ZERO, set_direction

__all__ = ["FIELDS", "RandomRule", "RandomVariant", "random_kernel"]


class RandomRule(NamedTuple):
    """Constants of the roundings, bit patterns of the lanes."""

    shift: int  # from the top of a lane to the top of the dropped digits
    kept: int  # the digits that are not dropped
    digits: int  # the top r bits of a lane
    quantum: int  # the smallest subnormal number
    whole: int  # 2**(digits of the lane - 1) quanta …
    whole_and_one: int  # … and one more
    field: int  # exponent field of the smallest normal number, as a number
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


def _below_normal(more, size, word, random, rule):
    """Magnitudes below the smallest normal number, rounded to whole quanta."""
    wide = width_of(size) == 64
    if more:
        binades = rule.field - umin(rule.field, size >> (52 if wide else 23))
        r = umin(rule.random_bits + binades, rule.random_most)
        random = word & ~(((size ^ size) - 1) >> r)
    # One quantum and R * 2**-r of it; the whole quantum goes away at the end.
    added = as_float(rule.quantum | (random >> (12 if wide else 9)))
    raised = as_float(size) + added
    return as_bits((raised + as_float(rule.whole)) - as_float(rule.whole_and_one))


def _round(small, more, x, word, rule):
    bits = as_bits(x)
    random = word & rule.digits
    rounded = (bits + (random >> rule.shift)) & rule.kept
    if small:
        sign = bits & sign_like(bits)
        size = bits ^ sign
        low = _below_normal(more, size, word, random, rule)
        rounded = select(size < rule.tiny_pos, low | sign, rounded)
    return as_float(rounded)


def _word(words, i, like):
    """Random words of a vector, R at the top of the lanes."""
    word = load_word(words, i, like)
    return word << 32 if width_of(like) == 64 else word


@formula
def _term(what, acc, x, y, words, at, rule, seen):
    """acc and what was seen so far, a term later; its words begin at these two indices."""
    chain, small, more, checked, held, watched, has_fma = what
    product = x * y
    never = product != product
    if chain:
        total = fused(x, y, acc) if has_fma else product + acc
        result = _round(small, more, total, _word(words, at[0], rule.kept), rule)
        if watched == LOOK_FOR_ALL:
            seen = look(total, result, not_sum(total, acc, product), rule, seen)
    else:
        rounded = _round(small, more, product, _word(words, at[0], rule.kept), rule)
        if watched == LOOK_FOR_ALL:
            seen = look(product, rounded, never, rule, seen)
        if checked == ANYWHERE:
            rounded, seen = look_beyond(held, watched, rounded, rounded, rule, seen)
        total = acc + rounded
        # Sums below the smallest normal number are exact.
        result = _round(False, False, total, _word(words, at[1], rule.kept), rule)
        if watched == LOOK_FOR_ALL:
            seen = look(total, result, not_sum(total, acc, rounded), rule, seen)
    if checked:
        result, seen = look_beyond(held, watched, result, result, rule, seen)
    return result, seen


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
    PER_BLOCK = 4 if WIDE else 8
    PLACES = 1 if FUSED else 2  # rounding places of a term

    @compiled
    def loop(a, b, out, words, constants, first, seed, operation):
        rule = _spread(constants)
        none = rule.kept ^ rule.kept
        lanes = 512 // width_of(none)
        # Words of the second vector: those of the next sixteen outputs, or the other eight.
        second = 128 if lanes == 16 else 8
        rows, columns = out.shape
        depth, wide = b.shape[1], b.shape[2]
        pa, pb, po = pointer(a.reshape(-1)), pointer(b.reshape(-1)), pointer(out.reshape(-1))
        tile, results, drawn = room(a, 128), room(out, 128), room(words, 256)
        what = (FUSED, SMALL, MORE, CHECKED, BEYOND, WATCHED, FMA)
        never = none != none
        seen, top = (never, never, none), none
        blocks = (rows + ROWS - 1) // ROWS
        group = max(1, GROUP // (depth * ROWS))
        set_direction(ZERO)
        for turn in range((blocks + group - 1) // group * b.shape[0]):
            panel, begin = turn % b.shape[0], turn // b.shape[0] * group
            for block in range(begin, min(begin + group, blocks)):
                m, n = min(ROWS, rows - block * ROWS), min(wide, columns - panel * wide)
                _start(tile, m, wide, none)
                for k in range(0, depth, PER_BLOCK // PLACES):
                    for r in range(m):
                        i = block * ROWS + r
                        number = first + i * columns + panel * wide
                        counter = k // (PER_BLOCK // PLACES)
                        place_words(drawn, 0, number, counter, seed, operation, WIDE)
                        if lanes == 16:
                            place_words(drawn, 128, number + 16, counter, seed, operation, WIDE)
                        c = load_float(tile, r * wide, none)
                        d = load_float(tile, r * wide + lanes, none)
                        for q in range(PER_BLOCK // PLACES):
                            x = spread_item(pa, i * depth + k + q)
                            j = (panel * depth + k + q) * wide
                            u = load_float(pb, j, none)
                            v = load_float(pb, j + lanes, none)
                            w = q * PLACES * 16
                            c, seen = _term(what, c, x, u, drawn, (w, w + 16), rule, seen)
                            w += second
                            d, seen = _term(what, d, x, v, drawn, (w, w + 16), rule, seen)
                        store_float(tile, r * wide, as_bits(c))
                        store_float(tile, r * wide + lanes, as_bits(d))
                for r in range(2 * m):
                    x = load_float(tile, r * lanes, none)
                    top = umax(top, put_result(results, r * lanes, x, True, rule))
                keep(po, results, block * ROWS * columns + panel * wide, columns, m, n, wide, none)
        return report(seen, top, rule)

    return loop
