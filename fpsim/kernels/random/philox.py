"""The counter-based generator Philox4x32-10, for vectors of counters and for one.

Source    Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011 (Random123).
"""

from __future__ import annotations

import numpy as np
from numba import njit

from fpsim.kernels.compiling import INLINE, compiled
from fpsim.kernels.lanes.formula import formula
from fpsim.kernels.lanes.vectors import pairs_apart, pairs_joined

__all__ = ["philox", "philox_block"]

M0, M1 = 0xD2511F53, 0xCD9E8D57
W0, W1 = 0x9E3779B9, 0xBB67AE85


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
def _philox_one(c0, c1, c2, c3, k0, k1):
    """The same for one counter, in scalars of 64 bits that hold 32."""
    low = np.uint64(0xFFFFFFFF)
    for r in range(10):
        p0, p1 = c0 * np.uint64(M0), c2 * np.uint64(M1)
        c0, c1, c2, c3 = (
            (p1 >> np.uint64(32)) ^ c1 ^ k0, p1 & low, (p0 >> np.uint64(32)) ^ c3 ^ k1, p0 & low,
        )  # fmt: skip
        k0, k1 = (k0 + np.uint64(W0)) & low, (k1 + np.uint64(W1)) & low
    return c0, c1, c2, c3


@compiled
def _philox_block(c0, c1, c2, c3, k0, k1):
    return _philox_one(c0, c1, c2, c3, k0, k1)


def philox_block(c0: int, c1: int, c2: int, c3: int, k0: int, k1: int) -> tuple[int, ...]:
    """The four words of one Philox4x32-10 block."""
    words = _philox_block(*(np.uint64(v) for v in (c0, c1, c2, c3, k0, k1)))
    return tuple(int(w) for w in words)
