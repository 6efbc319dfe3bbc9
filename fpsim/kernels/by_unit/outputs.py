"""The rounding of a product's outputs after its passes: words, roundings and flags in one go.

Words of random bits are made for a block of outputs that stays in the first-level cache. Flags are
raised one by one only where a vector has some.

Source    docs/semantics.md §2 (layout of sums and products).
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
from numba import njit

from fpsim.kernels.compiling import INLINE, compiled
from fpsim.kernels.lanes.memory import (
    copy_item,
    load_float,
    load_word,
    pointer,
    room,
    store_float,
    store_low,
)
from fpsim.kernels.lanes.vectors import any_lane, as_bits, or_lanes, width_of
from fpsim.kernels.random.words import RUN, words_of_place
from fpsim.kernels.rounding.modes import SR, is_stochastic
from fpsim.kernels.rounding.rule import spread
from fpsim.kernels.rounding.store import is_rare, store_lanes, store_normal

__all__ = ["output_kernel"]

#: Outputs whose words are made before they are rounded.
_BLOCK = 8 * RUN


@njit(**INLINE)
def _rounded(what, values, at, words, w, block_flags, rule):
    """Sixteen values in place, their words from `w` on; their flags, of each and together."""
    lanes = 512 // width_of(rule.drop)
    raised = rule.drop ^ rule.drop
    for q in range(0, 16, lanes):
        bits = as_bits(load_float(values, at + q, rule.drop))
        word = load_word(words, w + q, bits)
        if what[0] >= SR and what[2] == 0 and not any_lane(is_rare(bits, rule)):
            bits, flags = store_normal(what, bits, word, rule), rule.drop ^ rule.drop
        else:
            bits, flags = store_lanes(what, bits, word, rule)
        store_float(values, at + q, bits)
        store_low(block_flags, q, flags)
        raised = raised | flags
    return raised


@njit(**INLINE)
def _rounded_few(what, values, at, n, room_for_values, words, w, block_flags, rule):
    """The same of n values, in room for sixteen."""
    for q in range(16):
        room_for_values[q] = values[at + q] if q < n else 0
    flags = _rounded(what, room_for_values, 0, words, w, block_flags, rule)
    for q in range(n):
        copy_item(values, at + q, room_for_values, q)
    return flags


@cache
def output_kernel(mode: int, low: bool, residual: int, wide: bool) -> Any:
    """Compiled: rounds values (n,) in place and raises the flags of each element.

    Call    flags = loop(values, element_flags, shape, words, random, constants)
            shape: rows and columns of the values; words (n,) where the mode takes them and R stands
            in the `low` bits, else they are made here, of outputs numbered as `random` says: step
            from row to row, seed, operation, number of output (0, 0), rounding place
    """
    WHAT, MADE, WIDE = (mode, low, residual), is_stochastic(mode) and not low, wide
    GIVEN = is_stochastic(mode) and low
    PLACES = 4 if wide else 8

    @compiled
    def loop(values, element_flags, shape, words, random, constants):
        rule = spread(constants)
        rows, columns = shape
        step, seed, operation, origin, place = random
        block, number = place // PLACES, place % PLACES
        source, target, raised_at = pointer(words), pointer(values), pointer(element_flags)
        few, drawn, block_flags = room(values, 16), room(words, _BLOCK), room(element_flags, 16)
        raised = rule.drop ^ rule.drop
        if GIVEN:
            for q in range(_BLOCK):
                drawn[q] = 0
        for i in range(rows):
            for b in range(0, columns, _BLOCK):
                m = min(_BLOCK, columns - b)
                if MADE:
                    first = origin + i * step + b
                    words_of_place(drawn, first, m, block, number, seed, operation, WIDE)
                for j in range(0, m, 16):
                    at, n = i * columns + b + j, min(16, m - j)
                    if GIVEN:
                        for q in range(n):
                            copy_item(drawn, j + q, source, at + q)
                    if n == 16:
                        flags = _rounded(WHAT, target, at, drawn, j, block_flags, rule)
                    else:
                        flags = _rounded_few(WHAT, target, at, n, few, drawn, j, block_flags, rule)
                    if any_lane(flags != 0):
                        raised = raised | flags
                        for q in range(n):
                            raised_at[at + q] = raised_at[at + q] | block_flags[q]
        return np.int64(or_lanes(raised))

    return loop
