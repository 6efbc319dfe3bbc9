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


def _rounds(c0, c1, c2, c3, k0, k1):
    """Ten rounds in lanes of 64 bits, whose upper halves take no part and hold anything."""
    low = 0xFFFFFFFF
    for _ in range(10):
        p0, p1 = (c0 & low) * M0, (c2 & low) * M1
        c0, c1, c2, c3 = (p1 >> 32) ^ c1 ^ k0, p1, (p0 >> 32) ^ c3 ^ k1, p0
        k0, k1 = k0 + W0, k1 + W1
    return c0, c1, c2, c3


@formula
def philox(c0, c1, c2, c3, k0, k1):
    """Ten rounds on lanes of counters; k0 and k1 are scalars.

    The processor multiplies the even words of a vector. The odd ones are shifted into their place
    once, before the first round, and back after the last.
    """
    even = [pairs_joined(c) for c in (c0, c1, c2, c3)]
    keys = [(even[0] ^ even[0]) + k for k in (k0, k1)]
    first = _rounds(*even, *keys)
    second = _rounds(*(c >> 32 for c in even), *keys)
    return tuple(
        pairs_apart((x & 0xFFFFFFFF) | (y << 32)) for x, y in zip(first, second, strict=True)
    )


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
