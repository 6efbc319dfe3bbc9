"""Matrix products rounded after every operation, sixteen columns side by side, four rows in turn.

The arithmetic of a step is that of the elementwise operations, so any format, mode and policy runs.
How a product joins the sum is a table of steps on slots of sixteen numbers. It takes 0.96 to 1.12
times the time of branches written out (128 x 128, binary16, RNE, RTN and SR; least of 12 runs in
each of 3 interleaved processes, whose own noise is 1.2 to 1.5).

Source    docs/semantics.md §2 (rounding places) and §4 (order).
"""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple

import numpy as np
from numba import njit

from fpsim.kernels.by_operation.sums import (
    COLUMN_BLOCK,
    WORDS_GIVEN,
    WORDS_WHOLE,
    words_ready,
)
from fpsim.kernels.compiling import INLINE, compiled
from fpsim.kernels.elementwise.special import ADD, FMA, MULTIPLY, SUBTRACT
from fpsim.kernels.elementwise.step import FLAGS_EACH, summary, vector_step
from fpsim.kernels.lanes.arithmetic import spread_item
from fpsim.kernels.lanes.memory import load, pointer, room, store, store_float
from fpsim.kernels.lanes.vectors import as_bits, width_of
from fpsim.kernels.rounding.modes import SR
from fpsim.kernels.rounding.rule import spread

__all__ = ["CHAINS", "RoundedVariant", "rounded_kernel"]

#: Rows in turn, so that their chains of operations overlap.
ROWS = 4

#: Slots of all rows: the factors, the product, the three temporary numbers of a Kahan sum.
LEFT, RIGHT, PRODUCT, ADDEND, TOTAL, GAIN = range(6)
#: Slots that every row has of its own: the sum, and what a Kahan sum has lost.
SUM, LOST, SLOTS = 6, 6 + ROWS, 6 + 2 * ROWS
NUMBERS = SLOTS * COLUMN_BLOCK

#: The first term, and steps (operation, left, right, target) of the others; an FMA adds to its
#: target. Each step is a rounding place.
FIRST = (MULTIPLY, LEFT, RIGHT, SUM)
STEPS = {
    "separate": ((MULTIPLY, LEFT, RIGHT, PRODUCT), (ADD, SUM, PRODUCT, SUM)),
    "fused": ((FMA, LEFT, RIGHT, SUM),),
    "kahan": (
        (MULTIPLY, LEFT, RIGHT, PRODUCT),
        (SUBTRACT, PRODUCT, LOST, ADDEND),
        (ADD, SUM, ADDEND, TOTAL),
        (SUBTRACT, TOTAL, SUM, GAIN),
        (SUBTRACT, GAIN, ADDEND, LOST),
    ),
}

#: Ways to add a product: their rounding places per term.
CHAINS = {chain: len(steps) for chain, steps in STEPS.items()}
SEPARATE, FUSED, KAHAN = range(3)


class RoundedVariant(NamedTuple):
    """What is compiled in."""

    chain: int
    mode: int
    flags: int
    flush: bool
    one_zero: bool
    words: int
    residual: int


@njit(**INLINE)
def _slot(slot, row):
    """Where the sixteen numbers of a row begin."""
    return (slot + (row if slot >= SUM else 0)) * COLUMN_BLOCK


@njit(**INLINE)
def _copy(target, at, source, i):
    """Sixteen numbers, as bits: a signalling NaN stays one."""
    for q in range(0, COLUMN_BLOCK, 512 // width_of(load(source, i))):
        store(target, at + q, load(source, i + q))


@njit(**INLINE)
def _fill(target, at, bits):
    """The same number sixteen times."""
    for q in range(0, COLUMN_BLOCK, 512 // width_of(bits)):
        store_float(target, at + q, bits)


@njit(**INLINE)
def _step(what, op, slots, left, right, target, flags, words, wi, rule, events):
    """One operation on sixteen outputs."""
    for i in range(0, COLUMN_BLOCK, 512 // width_of(rule.drop)):
        events = vector_step(
            op, what, slots, left + i, slots, right + i, slots, target + i, slots, target + i,
            flags, i, words, wi + i, rule, events,
        )
    return events


@cache
def rounded_kernel(variant: RoundedVariant) -> Any:
    """The compiled product.

    Call    flags = loop(a, b, out, element_flags, words, product_rule, sum_rule, first, stride,
                         seed, operation)
            a (M, K), b (panels, K, 16), out and element_flags (M, 16 panels) in the carrier; words
            (rounding places, outputs and 16 more) if given; product_rule and
            sum_rule: constants; output (i, j) has number first + i * stride + j
    """
    CHAIN, MODE, FLAGS, FLUSH, ONE_ZERO, WORDS, RESIDUAL = variant
    STOCHASTIC, GIVEN, EACH = MODE >= SR, WORDS == WORDS_GIVEN, FLAGS == FLAGS_EACH
    PER_BLOCK = 4 if WORDS == WORDS_WHOLE else 8
    CHAIN_STEPS = list(STEPS.values())[CHAIN]
    PLACES = len(CHAIN_STEPS)

    @compiled
    def loop(
        a, b, out, element_flags, words, product_rule, sum_rule, first, stride, seed, operation
    ):
        products, sums = spread(product_rule), spread(sum_rule)
        none, zero = products.drop ^ products.drop, sums.drop ^ sums.drop
        seen_p, seen_s = (none, none, none, none), (zero, zero, zero, zero)
        rows, depth, wide = a.shape[0], a.shape[1], out.shape[1]
        pa, pb, po = pointer(a.reshape(-1)), pointer(b.reshape(-1)), pointer(out.reshape(-1))
        flags, supplied = pointer(element_flags.reshape(-1)), pointer(words.reshape(-1))
        what = (MODE, FLAGS, FLUSH, ONE_ZERO, GIVEN, RESIDUAL, False, False)
        slots, raised, drawn = room(a, NUMBERS), room(element_flags, 16), room(words, 512)
        counters = np.empty(ROWS, np.int64)
        held = pointer(counters)
        blocks = (rows + ROWS - 1) // ROWS
        for turn in range(b.shape[0] * blocks):
            panel, begin = turn // blocks, turn % blocks * ROWS
            end = min(begin + ROWS, rows)
            counters[:] = -1
            for r in range(ROWS):
                _fill(slots, _slot(LOST, r), none)
            for k in range(depth):
                _copy(slots, _slot(RIGHT, 0), pb, (panel * depth + k) * COLUMN_BLOCK)
                for r in range(end - begin):
                    number = first + (begin + r) * stride + panel * COLUMN_BLOCK
                    item = as_bits(spread_item(pa, (begin + r) * depth + k))
                    _fill(slots, _slot(LEFT, 0), item)
                    for part in range(PLACES if k else 1):
                        op, x, y, z = CHAIN_STEPS[part] if k else FIRST
                        x, y, z = _slot(x, r), _slot(y, r), _slot(z, r)
                        pw, wi, place = drawn, np.int64(0), k * PLACES + part
                        if GIVEN:
                            pw, wi = supplied, place * words.shape[1] + number
                        elif STOCHASTIC:
                            wi = words_ready(
                                drawn, held, r, place, number, PER_BLOCK, seed, operation
                            )
                        if op == MULTIPLY:
                            seen_p = _step(
                                what, MULTIPLY, slots, x, y, z, raised, pw, wi, products, seen_p
                            )
                        elif CHAIN == FUSED:
                            seen_s = _step(what, FMA, slots, x, y, z, raised, pw, wi, sums, seen_s)
                        elif CHAIN == SEPARATE or op == ADD:
                            seen_s = _step(what, ADD, slots, x, y, z, raised, pw, wi, sums, seen_s)
                        else:
                            seen_s = _step(
                                what, SUBTRACT, slots, x, y, z, raised, pw, wi, sums, seen_s
                            )
                        if EACH:
                            at = (begin + r) * wide + panel * COLUMN_BLOCK
                            for q in range(COLUMN_BLOCK):
                                flags[at + q] |= raised[q]
                    if CHAIN == KAHAN and k:
                        _copy(slots, _slot(SUM, r), slots, _slot(TOTAL, r))
            for r in range(end - begin):
                at = (begin + r) * wide + panel * COLUMN_BLOCK
                _copy(po, at, slots, _slot(SUM, r))
        return np.int64(summary(seen_p) | summary(seen_s))

    return loop
