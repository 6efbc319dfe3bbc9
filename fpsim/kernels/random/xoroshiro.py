"""The generator xoroshiro128aox: one draw of 64 bits serves four elements, 16 bits each.

Source    Hanlon, "The hardware pseudorandom number generator of the Graphcore IPU",
          arXiv 2203.04058 (state update 55, 14, 36).
"""

from __future__ import annotations

import numpy as np
from numba import njit

from fpsim.kernels.compiling import INLINE, compiled

__all__ = ["xoroshiro_lanes"]


@njit(**INLINE)
def _rotate(x, k):
    """x rotated left by k digits."""
    return (x << np.uint64(k)) | (x >> np.uint64(64 - k))


@compiled
def _xoroshiro(s0, s1, lanes):
    for i in range(0, lanes.shape[0], 4):
        x, both = s0 ^ s1, s0 & s1
        draw = x ^ (_rotate(both, 1) | _rotate(both, 2))
        s0 = _rotate(s0, 55) ^ x ^ (x << np.uint64(14))
        s1 = _rotate(x, 36)
        for lane in range(4):
            if i + lane < lanes.shape[0]:
                lanes[i + lane] = np.uint32((draw >> np.uint64(16 * lane)) & np.uint64(0xFFFF))
    return s0, s1


def xoroshiro_lanes(s0: int, s1: int, n: int) -> tuple[np.ndarray, int, int]:
    """16-bit lanes for n elements, four from each draw, and the state after them."""
    lanes = np.empty(n, np.uint32)
    after0, after1 = _xoroshiro(np.uint64(s0), np.uint64(s1), lanes)
    return lanes, int(after0), int(after1)
