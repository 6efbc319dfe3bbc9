"""Streams of xoroshiro128aox that share every operation: a source of random bits.

Groups of streams stand for processors with some elements each, the members of a group for threads
that share its elements. One group with one member is `Xoroshiro128aox`.

Source    docs/semantics.md §2.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from fpsim.kernels.random.xoroshiro import dealt_lanes
from fpsim.state.bits import Philox, check_lane

__all__ = ["XoroshiroStreams"]

States = NDArray[np.uint64]


class XoroshiroStreams:
    """xoroshiro128aox in streams: each element has one stream that its rounding places draw from.

    The N elements of an operation go to T groups in contiguous C-order blocks of 4·ceil(N/(4T)); in
    a block, vectors of four go to the members of the group in turn. A stream takes the elements
    that it gets as `Xoroshiro128aox` would, and every operation starts with a fresh draw.

    Shapes    states (groups, members, 2): two words of 64 bits for each stream, copied.
    Raises    TypeError, ValueError for other states, or one of zeros, which never leaves itself.

    >>> source = XoroshiroStreams(np.array([[[1, 2]], [[4, 8]]], np.uint64))
    >>> source.draw(0, (5,), 16).tolist()  # four elements go to the first group, one to the second
    [3, 0, 0, 0, 12]
    """

    seed = None

    def __init__(self, states: States) -> None:
        self.states = states

    @property
    def states(self) -> States:
        """The words of every stream, copied; assign to go on from others."""
        return self._states.copy()

    @states.setter
    def states(self, states: States) -> None:
        if not isinstance(states, np.ndarray) or states.dtype != np.uint64:
            raise TypeError("states are no array of uint64; give two words for each stream")
        if states.ndim != 3 or states.shape[2] != 2 or not states.size:
            raise ValueError(
                f"states have shape {states.shape}; give (groups, members, 2), none of them 0"
            )
        if not states.any(axis=2).all():
            raise ValueError("a state (0, 0) never leaves itself; use any other pair of words")
        self._states = self._next = states.copy()

    def draw(
        self, operation: int, shape: tuple[int, ...], bits: int, places: int = 1
    ) -> NDArray[np.uint32]:
        check_lane(bits)
        elements = math.prod(shape) // max(places, 1)
        lanes, self._next = dealt_lanes(self._states, elements, places)
        return lanes.reshape(-1)

    def advance(self) -> None:
        self._states = self._next

    def spawn(self, k: int) -> XoroshiroStreams:
        words = [Philox(int(word)).spawn(k).seed for word in self._states.reshape(-1)]
        return XoroshiroStreams(np.array(words, np.uint64).reshape(self._states.shape))

    def __repr__(self) -> str:
        groups, members, _ = self._states.shape
        return f"XoroshiroStreams({groups} x {members})"
