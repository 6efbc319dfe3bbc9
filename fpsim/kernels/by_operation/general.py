"""Matrix products rounded after every operation, sixteen columns side by side, four rows in turn.

The arithmetic of a step is that of the elementwise operations, so any format, mode and policy runs.

Source    docs/semantics.md §2 (places) and §4 (order).
"""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple

import numpy as np
from numba import njit

from fpsim.kernels.by_operation.sums import LANES, WORDS_GIVEN, WORDS_WHOLE, place_words
from fpsim.kernels.compiling import INLINE, compiled
from fpsim.kernels.elementwise.loop import FLAGS_EACH, summary, vector_step
from fpsim.kernels.elementwise.special import ADD, FMA, MULTIPLY, SUBTRACT
from fpsim.kernels.lanes.arithmetic import spread_item
from fpsim.kernels.lanes.memory import copy_item, pointer, room, store_float
from fpsim.kernels.lanes.vectors import as_bits, width_of
from fpsim.kernels.rounding.round import SR, SR_EQUAL
from fpsim.kernels.rounding.rule import spread

__all__ = ["CHAINS", "RoundedVariant", "rounded_kernel"]

#: Rows in turn, so that their chains of operations overlap.
ROWS = 4

#: Ways to add a product: their places per term.
CHAINS = {"separate": 2, "fused": 1, "kahan": 5}
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
def _vector(what, op, x, xi, y, yi, z, zi, out, oi, marks, words, wi, rule, seen):
    """One operation on sixteen outputs."""
    for i in range(0, LANES, 512 // width_of(rule.drop)):
        seen = vector_step(
            op, what, x, xi + i, y, yi + i, z, zi + i, out, oi + i, marks, i, words, wi + i,
            rule, seen,
        )  # fmt: skip
    return seen


@cache
def rounded_kernel(variant: RoundedVariant) -> Any:
    """The compiled product.

    Call    flags = loop(a, b, out, marks, words, product_constants, sum_constants, first, stride,
                         seed, operation)
            a (M, K), b (panels, K, 16), out and marks (M, 16 panels) in the carrier; words (places,
            outputs and 16 more) if given; output (i, j) has number first + i * stride + j
    """
    CHAIN, MODE, FLAGS, FLUSH, ONE_ZERO, WORDS, RESIDUAL = variant
    STOCHASTIC, GIVEN, EACH = MODE in (SR, SR_EQUAL), WORDS == WORDS_GIVEN, FLAGS == FLAGS_EACH
    PER_BLOCK = 4 if WORDS == WORDS_WHOLE else 8
    PLACES = (2, 1, 5)[CHAIN]

    @compiled
    def loop(
        a, b, out, marks, words, product_constants, sum_constants, first, stride, seed, operation
    ):
        product_rule, sum_rule = spread(product_constants), spread(sum_constants)
        none, zero = product_rule.drop ^ product_rule.drop, sum_rule.drop ^ sum_rule.drop
        seen_p, seen_s = (none, none, none, none), (zero, zero, zero, zero)
        depth, wide = a.shape[1], out.shape[1]
        pa, pb = pointer(a.reshape(-1)), pointer(b.reshape(-1))
        po, given = pointer(out.reshape(-1)), pointer(words.reshape(-1))
        flat_marks = marks.reshape(-1)
        what = (MODE, FLAGS, FLUSH, ONE_ZERO, GIVEN, RESIDUAL, False)
        x, p = room(a, 16), room(a, 16)
        y, t, lost, c = room(a, 16), room(a, 16), room(a, 16), room(a, 64)
        some_marks, made = room(marks, 16), room(words, 512)
        held = np.empty(ROWS, np.int64)
        lanes = 16 if a.itemsize == 4 else 8
        for panel in range(b.shape[0]):
            for begin in range(0, a.shape[0], ROWS):
                held[:] = -1
                for k in range(depth):
                    j = (panel * depth + k) * LANES
                    for r in range(min(ROWS, a.shape[0] - begin)):
                        i = begin + r
                        o = i * wide + panel * LANES
                        number = first + i * stride + panel * LANES
                        scalar = as_bits(spread_item(pa, i * depth + k))
                        for q in range(0, 16, lanes):
                            store_float(x, q, scalar)
                        for part in range(PLACES if k else 1):
                            place = k * PLACES + part
                            pw, wi = made, np.int64(0)
                            if GIVEN:
                                pw, wi = given, place * words.shape[1] + number
                            elif STOCHASTIC:
                                block = place // PER_BLOCK
                                if block != held[r]:
                                    place_words(
                                        made, r * 128, number, block, seed, operation,
                                        PER_BLOCK == 4,
                                    )  # fmt: skip
                                    held[r] = block
                                wi = r * 128 + (place - block * PER_BLOCK) * LANES
                            if k == 0:
                                seen_p = _vector(
                                    what, MULTIPLY, x, 0, pb, j, x, 0, po, o, some_marks, pw, wi,
                                    product_rule, seen_p,
                                )  # fmt: skip
                                if CHAIN == KAHAN:
                                    for q in range(0, 16, 512 // width_of(none)):
                                        store_float(c, r * 16 + q, none)
                            elif CHAIN == FUSED:
                                seen_s = _vector(
                                    what, FMA, x, 0, pb, j, po, o, po, o, some_marks, pw, wi,
                                    sum_rule, seen_s,
                                )  # fmt: skip
                            elif part == 0:
                                seen_p = _vector(
                                    what, MULTIPLY, x, 0, pb, j, x, 0, p, 0, some_marks, pw, wi,
                                    product_rule, seen_p,
                                )  # fmt: skip
                            elif CHAIN == SEPARATE:
                                seen_s = _vector(
                                    what, ADD, po, o, p, 0, x, 0, po, o, some_marks, pw, wi,
                                    sum_rule, seen_s,
                                )  # fmt: skip
                            elif part == 1:
                                seen_s = _vector(
                                    what, SUBTRACT, p, 0, c, r * 16, x, 0, y, 0, some_marks, pw, wi,
                                    sum_rule, seen_s,
                                )  # fmt: skip
                            elif part == 2:
                                seen_s = _vector(
                                    what, ADD, po, o, y, 0, x, 0, t, 0, some_marks, pw, wi,
                                    sum_rule, seen_s,
                                )  # fmt: skip
                            elif part == 3:
                                seen_s = _vector(
                                    what, SUBTRACT, t, 0, po, o, x, 0, lost, 0, some_marks, pw, wi,
                                    sum_rule, seen_s,
                                )  # fmt: skip
                            else:
                                seen_s = _vector(
                                    what, SUBTRACT, lost, 0, y, 0, x, 0, c, r * 16, some_marks, pw,
                                    wi, sum_rule, seen_s,
                                )  # fmt: skip
                                for q in range(16):
                                    copy_item(po, o + q, t, q)
                            if EACH:
                                for q in range(LANES):
                                    flat_marks[o + q] |= some_marks[q]
        return np.int64(summary(seen_p) | summary(seen_s))

    return loop
