"""Updates of rank one: target - column row, the products rounded and then the differences.

Both are elementwise operations of the whole target, so each has its own number and its words by the
C order of the target. Vectors go along rows; the last one of a row passes through scratch memory in
which its last element is repeated.
"""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple

import numpy as np
from numba import njit

from fpsim.kernels.compiling import INLINE, compiled
from fpsim.kernels.elementwise.loop import BLOCK, ROOM, WORDS_NONE, WORDS_WHOLE, fill_block
from fpsim.kernels.elementwise.special import MULTIPLY, SUBTRACT
from fpsim.kernels.elementwise.step import FLAGS_STICKY, no_events, summary, vector_step
from fpsim.kernels.lanes.memory import copy_item, copy_items, pointer, room
from fpsim.kernels.lanes.vectors import width_of
from fpsim.kernels.rounding.rule import spread

__all__ = ["OuterVariant", "outer_kernel"]

#: Elements of a vector, or of two where lanes have 64 bits.
GROUP = 16


class OuterVariant(NamedTuple):
    """What is compiled in: the mode and policies, words of each operation, how SR cuts its tail."""

    mode: int
    flush: bool
    one_zero: bool
    product_words: int
    words: int
    product_residual: int
    residual: int


@njit(**INLINE)
def _fill(words, i, j, n, seed, operation, kind):
    """The words of a block of row i from column j on, and where they begin."""
    m = min((n - j + GROUP - 1) // GROUP * GROUP, BLOCK)
    return fill_block(words, i * n, j, n, m, seed, operation, kind == WORDS_WHOLE)


@cache
def outer_kernel(variant: OuterVariant) -> Any:
    """flags = loop(target, first, stride, column, row, words, …): the compiled loop.

    target is flat; its rows begin at `first`, `stride` apart, and have as many elements as `row`.
    Rows begin … end - 1 are worked on. Constants and numbers of operations are those of the
    products, then those of the differences.
    """
    # Only numbers are captured, so that the disk cache recognises the loop in another process.
    MODE, FLUSH, ONE_ZERO, PRODUCT_WORDS, WORDS, PRODUCT_RESIDUAL, RESIDUAL = variant
    STOCHASTIC = WORDS != WORDS_NONE

    @compiled
    def loop(
        target, first, stride, column, row, begin, end, words, product_constants, constants, seed,
        product_number, number,
    ):
        n = row.shape[0]
        product_rule, rule = spread(product_constants), spread(constants)
        product_lanes, lanes = 512 // width_of(product_rule.drop), 512 // width_of(rule.drop)
        product_events = no_events(MULTIPLY, product_rule)
        events = no_events(SUBTRACT, rule)
        all_target, all_column, all_row = pointer(target), pointer(column), pointer(row)
        scalar, product = room(column, GROUP), room(target, GROUP)
        last_row, last_target = room(row, GROUP), room(target, GROUP)
        product_words, room_words = room(words, ROOM), room(words, ROOM)
        no_flags = pointer(words)  # none are stored
        for i in range(begin, end):
            copy_items(scalar, all_column, i, i, GROUP)
            start, wp, wi = first + i * stride, np.int64(0), np.int64(0)
            for j in range(0, n, GROUP):
                in_block = j % BLOCK
                if STOCHASTIC and in_block == 0:
                    wp = _fill(product_words, i, j, n, seed, product_number, PRODUCT_WORDS)
                    wi = _fill(room_words, i, j, n, seed, number, WORDS)
                px, xi, pt, ti = all_row, j, all_target, start + j
                few = n - j
                if few < GROUP:
                    copy_items(last_row, all_row, j, n - 1, GROUP)
                    copy_items(last_target, all_target, start + j, start + n - 1, GROUP)
                    px, xi, pt, ti = last_row, 0, last_target, 0
                what = MODE, FLAGS_STICKY, FLUSH, ONE_ZERO, False, PRODUCT_RESIDUAL, False, False
                for k in range(0, GROUP, product_lanes):
                    product_events = vector_step(
                        MULTIPLY, what, scalar, 0, px, xi + k, scalar, 0, product, k, no_flags, 0,
                        product_words, wp + in_block + k, product_rule, product_events,
                    )
                what = MODE, FLAGS_STICKY, FLUSH, ONE_ZERO, False, RESIDUAL, False, False
                for k in range(0, GROUP, lanes):
                    events = vector_step(
                        SUBTRACT, what, pt, ti + k, product, k, scalar, 0, pt, ti + k, no_flags, 0,
                        room_words, wi + in_block + k, rule, events,
                    )
                if few < GROUP:
                    for k in range(few):
                        copy_item(all_target, start + j + k, last_target, k)
        return np.int64(summary(product_events)) | np.int64(summary(events))

    return loop
