"""Random words of elements and of outputs, laid out as docs/semantics.md §2 says.

Sixteen neighbours take the same word of sixteen neighbouring counters, so words go straight from
the generator's vectors to those of the elements. A counter serves eight elements (or rounding
places) by halves of its four words, or four by whole words where `wide`. R stands in the top bits.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from fpsim.kernels.compiling import INLINE
from fpsim.kernels.lanes.arithmetic import plus
from fpsim.kernels.lanes.formula import formula
from fpsim.kernels.lanes.memory import load, store
from fpsim.kernels.lanes.vectors import U32, VECTOR_WIDTH, iota, splat
from fpsim.kernels.random.philox import (
    AT_ONCE,
    M0,
    M1,
    philox,
    philox_common,
    philox_end,
    philox_others,
    philox_start,
)

__all__ = [
    "GROUP_HALF", "GROUP_WORD", "NO_WORDS", "RUN", "fill_words", "lane_words", "output_words",
    "outputs_ready", "place_words", "words_of_place",
]

#: Elements served by sixteen counters: half a word each, or a word each.
GROUP_HALF, GROUP_WORD = 8 * VECTOR_WIDTH, 4 * VECTOR_WIDTH

#: Outputs whose words of one place are made at a time.
RUN = AT_ONCE * VECTOR_WIDTH

#: What kernels get in the place of words that they make themselves or do not need.
NO_WORDS = np.zeros(1, np.uint32)


@njit(**INLINE)
def _counter(c0, c1, seed, operation):
    """The counters (c0, c1, operation), and their key."""
    low = np.uint64(0xFFFFFFFF)
    k0, k1 = np.uint32(seed & low), np.uint32(seed >> np.uint64(32))
    n0, n1 = np.uint32(operation & low), np.uint32(operation >> np.uint64(32))
    zero = c0 ^ c0
    return c0, c1, zero + n0, zero + n1, k0, k1


@njit(**INLINE)
def _blocks(c0, c1, seed, operation):
    """The four words of sixteen counters (c0, c1, operation)."""
    c0, c1, c2, c3, k0, k1 = _counter(c0, c1, seed, operation)
    return philox(c0, c1, c2, c3, k0, k1)


@njit(**INLINE)
def _put(words, at, step, w, wide):
    """Store the vectors of whole words, or of the low halves and then the high ones."""
    w0, w1, w2, w3 = w
    if not wide:
        store(words, at + 4 * step, w0)
        store(words, at + 5 * step, w1)
        store(words, at + 6 * step, w2)
        store(words, at + 7 * step, w3)
        w0, w1, w2, w3 = w0 << 16, w1 << 16, w2 << 16, w3 << 16
    store(words, at, w0)
    store(words, at + step, w1)
    store(words, at + 2 * step, w2)
    store(words, at + 3 * step, w3)


@njit(**INLINE)
def fill_words(words, at, first, n, seed, operation, wide):
    """words[at:at + n] = the random words of elements first … first + n - 1.

    `first` and n are multiples of the group.
    """
    group = GROUP_WORD if wide else GROUP_HALF
    zero = splat(np.uint32(0), U32)
    for i in range(0, n, group):
        counter = iota(U32) + np.uint32((first + i) // group * VECTOR_WIDTH)
        _put(words, at + i, VECTOR_WIDTH, _blocks(counter, zero, seed, operation), wide)


@njit(**INLINE)
def place_words(words, at, first, block, seed, operation, wide):
    """words[at:] = those of sixteen outputs from `first` on, at all rounding places of one counter.

    `block` is the rounding place div 8 (or 4 where `wide`).
    """
    c0 = iota(U32) + np.uint32(first)
    c1 = splat(np.uint32(block + 1), U32)
    _put(words, at, VECTOR_WIDTH, _blocks(c0, c1, seed, operation), wide)


@njit(**INLINE)
def lane_words(words, at, numbers, counters, block, seed, operation, wide):
    """As `place_words` of any sixteen outputs, by vectors of their numbers and first counters."""
    c1 = counters + np.uint32(block + 1)
    _put(words, at, VECTOR_WIDTH, _blocks(numbers, c1, seed, operation), wide)


@njit(**INLINE)
def outputs_ready(states, at, first, seed, operation):
    """states[at:at + 128] = what all words of sixteen outputs from `first` on have in common."""
    low, half = np.uint64(0xFFFFFFFF), np.uint64(32)
    c0 = iota(U32) + np.uint32(first)
    a1 = (operation & low) * np.uint64(M1)
    state = philox_common(c0, operation >> half, a1, seed & low, seed >> half)
    s0, s1, s2, s3, s4, s5, s6, s7 = state
    store(states, at, s0)
    store(states, at + 16, s1)
    store(states, at + 32, s2)
    store(states, at + 48, s3)
    store(states, at + 64, s4)
    store(states, at + 80, s5)
    store(states, at + 96, s6)
    store(states, at + 112, s7)


@njit(**INLINE)
def output_words(words, at, states, i, block, seed, operation):
    """words[at:at + 64] = the four words of sixteen outputs for one counter.

    The outputs are those that `outputs_ready` has put at i; `block` is as for `place_words`.
    """
    low, half = np.uint64(0xFFFFFFFF), np.uint64(32)
    k0 = seed & low
    first = ((operation & low) * np.uint64(M1) >> half) ^ np.uint64(block + 1) ^ k0
    product = (first & low) * np.uint64(M0)
    state = (
        load(states, i), load(states, i + 16), load(states, i + 32), load(states, i + 48),
        load(states, i + 64), load(states, i + 80), load(states, i + 96), load(states, i + 112),
    )
    w0, w1, w2, w3 = philox_others(state, product >> half, product & low, k0, seed >> half)
    store(words, at, w0)
    store(words, at + VECTOR_WIDTH, w1)
    store(words, at + 2 * VECTOR_WIDTH, w2)
    store(words, at + 3 * VECTOR_WIDTH, w3)


@formula
def _put_all(words, at, vectors, shift):
    """Vectors side by side from words[at] on, their words shifted up."""
    for i, x in enumerate(vectors):
        store(words, plus(at, i * VECTOR_WIDTH), x << shift)
    return at


@njit(**INLINE)
def words_of_place(words, first, n, block, number, seed, operation, wide):
    """words[:n] = those of outputs from `first` on at one rounding place, R in their top bits.

    `number` is that of the place in its counter. Of four words one is made. The room for words is
    a multiple of `RUN`: those of the last run may go beyond n.
    """
    c1 = splat(np.uint32(block + 1), U32)
    _, _, c2, c3, k0, k1 = _counter(c1, c1, seed, operation)
    word, shift = number & 3, 0 if wide or number >= 4 else 16
    for i in range(0, n, RUN):
        c0 = iota(U32) + np.uint32(first + i)
        states = philox_start(c0, c1, c2, c3, k0, k1)
        if word == 0:
            value = philox_end(states, k0, k1, 0)
        elif word == 1:
            value = philox_end(states, k0, k1, 1)
        elif word == 2:
            value = philox_end(states, k0, k1, 2)
        else:
            value = philox_end(states, k0, k1, 3)
        _put_all(words, i, value, shift)
