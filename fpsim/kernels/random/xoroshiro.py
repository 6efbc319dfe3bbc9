"""The generator xoroshiro128aox: one draw of 64 bits serves four elements, 16 bits each.

Several streams share an operation: groups of streams take contiguous blocks of its elements, and
the members of a group take vectors of four inside the block in turn.

Source    Hanlon, "The hardware pseudorandom number generator of the Graphcore IPU",
          arXiv 2203.04058 (state update 55, 14, 36); docs/semantics.md §2 (which stream).
"""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

from fpsim.kernels.compiling import INLINE, compiled

__all__ = ["VECTOR", "dealt_lanes", "xoroshiro_lanes"]

#: Elements that one draw serves.
VECTOR = 4


@njit(**INLINE)
def _rotate(x, k):
    """x rotated left by k digits."""
    return (x << np.uint64(k)) | (x >> np.uint64(64 - k))


@compiled
def _deal(states, block, places, lanes):
    n = lanes.shape[1]
    groups, members = states.shape[:2]
    for group in range(groups):
        first, end = group * block, min((group + 1) * block, n)
        for member in range(members):
            s0, s1 = states[group, member, 0], states[group, member, 1]
            draw, lane = np.uint64(0), 4
            for place in range(places):
                for vector in range(first + 4 * member, end, 4 * members):
                    for element in range(vector, min(vector + 4, end)):
                        if lane == 4:
                            x, both = s0 ^ s1, s0 & s1
                            draw, lane = x ^ (_rotate(both, 1) | _rotate(both, 2)), 0
                            s0 = _rotate(s0, 55) ^ x ^ (x << np.uint64(14))
                            s1 = _rotate(x, 36)
                        lanes[place, element] = np.uint32(draw & np.uint64(0xFFFF))
                        draw >>= np.uint64(16)
                        lane += 1
            states[group, member, 0], states[group, member, 1] = s0, s1


def dealt_lanes(
    states: NDArray[np.uint64], n: int, places: int = 1
) -> tuple[NDArray[np.uint32], NDArray[np.uint64]]:
    """16-bit lanes for n elements with so many rounding places each, and the states after them.

    Every stream serves its elements in order, each place of all of them before the next place.

    Shapes    states (groups, members, 2); lanes (places, n).
    """
    lanes, after = np.empty((places, n), np.uint32), states.copy()
    _deal(after, VECTOR * -(-n // (VECTOR * len(states))), places, lanes)
    return lanes, after


def xoroshiro_lanes(s0: int, s1: int, n: int) -> tuple[NDArray[np.uint32], int, int]:
    """16-bit lanes for n elements of one stream, and its state after them."""
    lanes, after = dealt_lanes(np.array([[[s0, s1]]], np.uint64), n)
    return lanes[0], int(after[0, 0, 0]), int(after[0, 0, 1])
