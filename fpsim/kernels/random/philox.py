"""Philox4x32-10 in lanes, laid out as docs/semantics.md §2 says.

Sixteen neighbouring elements take the same word of sixteen neighbouring counters, so words go
straight from the generator's lanes to the elements' lanes.

Source    Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011 (Random123).
"""

from __future__ import annotations

import numpy as np
from numba import njit

from fpsim.kernels.compiling import INLINE
from fpsim.kernels.lanes.formula import formula
from fpsim.kernels.lanes.memory import store
from fpsim.kernels.lanes.vectors import U32, iota, pairs_apart, pairs_joined, splat

__all__ = ["GROUP_HALF", "GROUP_WORD", "fill_words", "philox", "philox_one"]

M0, M1 = 0xD2511F53, 0xCD9E8D57
W0, W1 = 0x9E3779B9, 0xBB67AE85

#: Elements served by sixteen counters: half a word each, or a word each.
GROUP_HALF, GROUP_WORD = 128, 64


def _product(a, multiplier):
    """High and low words of the 64-bit products of 32-bit lanes with a constant.

    The processor multiplies the even words of a vector; the odd ones are shifted into their place.
    """
    low = 0xFFFFFFFF
    joined = pairs_joined(a)
    even = (joined & low) * multiplier
    odd = (joined >> 32) * multiplier
    return pairs_apart((even >> 32) | (odd & ~low)), a * multiplier


@formula
def philox(c0, c1, c2, c3, k0, k1):
    """Ten rounds on lanes of counters; k0 and k1 are scalars."""
    k0, k1 = (c0 ^ c0) + k0, (c0 ^ c0) + k1
    for _ in range(10):
        high0, low0 = _product(c0, M0)
        high1, low1 = _product(c2, M1)
        c0, c1, c2, c3 = high1 ^ c1 ^ k0, low1, high0 ^ c3 ^ k1, low0
        k0, k1 = k0 + W0, k1 + W1
    return c0, c1, c2, c3


@njit(**INLINE)
def philox_one(c0, c1, c2, c3, k0, k1):
    """The same for one counter, in scalars of 64 bits that hold 32."""
    low = np.uint64(0xFFFFFFFF)
    for r in range(10):
        p0, p1 = c0 * np.uint64(M0), c2 * np.uint64(M1)
        c0, c1, c2, c3 = (
            (p1 >> np.uint64(32)) ^ c1 ^ k0, p1 & low, (p0 >> np.uint64(32)) ^ c3 ^ k1, p0 & low,
        )  # fmt: skip
        k0, k1 = (k0 + np.uint64(W0)) & low, (k1 + np.uint64(W1)) & low
    return c0, c1, c2, c3


@njit(**INLINE)
def fill_words(words, first, n, seed, operation, wide):
    """words[:n] = the random words of elements first … first + n - 1, R in their top bits.

    `first` and n are multiples of the group; `wide` tells whether an element takes a whole word.
    """
    k0, k1 = np.uint32(seed & np.uint64(0xFFFFFFFF)), np.uint32(seed >> np.uint64(32))
    n0, n1 = np.uint32(operation & np.uint64(0xFFFFFFFF)), np.uint32(operation >> np.uint64(32))
    group = GROUP_WORD if wide else GROUP_HALF
    zero = splat(np.uint32(0), U32)
    for i in range(0, n, group):
        block = np.uint32((first + i) // group * 16)
        w0, w1, w2, w3 = philox(iota(U32) + block, zero, zero + n0, zero + n1, k0, k1)
        store(words, i, w0)
        store(words, i + 16, w1)
        store(words, i + 32, w2)
        store(words, i + 48, w3)
        if wide:
            continue
        # The low halves serve the first four rows, the high halves the next four.
        store(words, i + 64, w0)
        store(words, i + 80, w1)
        store(words, i + 96, w2)
        store(words, i + 112, w3)
        store(words, i, w0 << 16)
        store(words, i + 16, w1 << 16)
        store(words, i + 32, w2 << 16)
        store(words, i + 48, w3 << 16)
