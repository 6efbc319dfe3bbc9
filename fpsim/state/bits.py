"""Sources of the random bits that stochastic rounding takes.

A source hands a kernel either its counter position (`Philox`: the bits are made where they are
used) or an array of integers R, one per element, of which the kernel uses the low r bits
(`Xoroshiro128aox`, `Replay`). The bits of element i of operation n depend on (seed, n, i) alone.

Source    Salmon et al., SC 2011 (Philox4x32-10); Hanlon, arXiv 2203.04058 (xoroshiro128aox);
          docs/semantics.md §2.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fpsim.kernels.random.philox import philox_block
from fpsim.kernels.random.xoroshiro import xoroshiro_lanes

__all__ = ["BitSource", "Philox", "Replay", "Xoroshiro128aox", "check_lane", "check_seed"]


def check_seed(seed: int) -> int:
    """A seed as a plain integer.

    >>> check_seed(-1)
    Traceback (most recent call last):
    ...
    ValueError: seed=-1 is out of range; use 0 to 2**64 - 1
    """
    if isinstance(seed, bool) or not isinstance(seed, (int, np.integer)):
        raise TypeError(f"seed={seed!r} is not an integer; use 0 to 2**64 - 1")
    if not 0 <= seed < 1 << 64:
        raise ValueError(f"seed={seed} is out of range; use 0 to 2**64 - 1")
    return int(seed)


def check_lane(bits: int) -> None:
    """Refuse roundings that take more than the 16 bits of a lane of xoroshiro128aox."""
    if bits > 16:
        raise ValueError(
            f"bits={bits} is more than a lane of this generator owns; use SR(bits=16) or fewer"
        )


class BitSource(Protocol):
    """What `fpsim.state.draws` asks of a source.

    seed   key of the Philox counters that kernels count themselves; None: `draw` gives integers.
    """

    @property
    def seed(self) -> int | None: ...

    def draw(
        self, operation: int, shape: tuple[int, ...], bits: int, places: int = 1
    ) -> NDArray[np.uint32] | None:
        """The integers R of one operation in C order, or None where the kernel makes its own.

        shape holds every rounding place of every element: place by place, where there are several.
        Asking twice for the same operation gives the same bits: only `advance` moves on.
        """

    def advance(self) -> None:
        """The operation was published; the next draw is another one."""

    def spawn(self, k: int) -> BitSource:
        """An independent source, the k-th child."""


class Philox:
    """Philox4x32-10 keyed by the seed; counters say which operation and element.

    >>> Philox(seed=42).spawn(0).seed
    4108515926583640430
    """

    def __init__(self, seed: int = 0) -> None:
        self.seed = check_seed(seed)

    def draw(self, operation: int, shape: tuple[int, ...], bits: int, places: int = 1) -> None:
        """None: kernels count for themselves."""

    def advance(self) -> None:
        """Nothing to do: operations have numbers."""

    def spawn(self, k: int) -> Philox:
        """The k-th child: a source whose key is a block of this one's."""
        k = check_seed(k)
        last = 0xFFFFFFFF
        words = philox_block(k & last, k >> 32, last, last, self.seed & last, self.seed >> 32)
        return Philox(int(words[0]) | int(words[1]) << 32)

    def __repr__(self) -> str:
        return f"Philox(seed={self.seed})"


class Xoroshiro128aox:
    """The generator xoroshiro128aox: one 64-bit draw serves four elements, 16 bits each.

    One stream serves all elements; `fpsim.state.streams` deals them to several. `state` is two
    64-bit words; a 32-bit seed gives the state that writing it to the seed register does. At most
    16 bits per rounding.

    >>> import fpsim as fp
    >>> half = fp.Context("binary16", rounding=fp.SR(13), bits=Xoroshiro128aox(seed=42))
    >>> half.array([2048.5] * 4).values.tolist(), half.array([2048.5] * 4).values.tolist()
    ([2050.0, 2048.0, 2050.0, 2050.0], [2050.0, 2050.0, 2050.0, 2048.0])
    """

    seed = None

    def __init__(self, seed: int = 0, *, state: tuple[int, int] | None = None) -> None:
        if state is None:
            seed = check_seed(seed)
            if seed >> 32:
                raise ValueError(f"seed={seed} is out of range; the seed register holds 32 bits")
            inverse = ~seed & 0xFFFFFFFF
            rolled = (seed << 13 | inverse >> 19) & 0xFFFFFFFF
            inverse_rolled = (inverse << 13 | seed >> 19) & 0xFFFFFFFF
            state = (seed | inverse << 32, rolled | inverse_rolled << 32)
        if not isinstance(state, (tuple, list)) or len(state) != 2:
            raise TypeError(f"state={state!r} is not two words; use a pair of 0 to 2**64 - 1")
        self.state = (check_seed(state[0]), check_seed(state[1]))
        if self.state == (0, 0):
            raise ValueError("state=(0, 0) never leaves itself; use any other pair of words")
        self._next = self.state

    def draw(
        self, operation: int, shape: tuple[int, ...], bits: int, places: int = 1
    ) -> NDArray[np.uint32]:
        """The integers R of one operation; 64 bits of the stream serve four elements."""
        check_lane(bits)
        words, s0, s1 = xoroshiro_lanes(*self.state, int(np.prod(shape, dtype=np.int64)))
        self._next = (s0, s1)
        return words

    def advance(self) -> None:
        """The stream goes on behind what the operation drew."""
        self.state = self._next

    def spawn(self, k: int) -> Xoroshiro128aox:
        """The k-th child: a stream of its own, from both words of the state."""
        child = Philox(self.state[0]).spawn(k).seed, Philox(self.state[1]).spawn(k).seed
        return Xoroshiro128aox(state=child)


class Replay:
    """Given integers R, one array per stochastic operation, in order: for tests.

    >>> Replay([[0, 1]]).draw(0, (2,), 3)
    array([0, 1], dtype=uint32)
    """

    seed = None

    def __init__(self, arrays: Iterable[ArrayLike]) -> None:
        if not isinstance(arrays, Iterable):
            raise TypeError(
                f"arrays={arrays!r} is not a list of arrays; give one for each operation"
            )
        self._arrays = [np.asarray(a) for a in arrays]
        self._position = 0

    def draw(
        self, operation: int, shape: tuple[int, ...], bits: int, places: int = 1
    ) -> NDArray[np.uint32]:
        """The next given array.

        Raises    ValueError for another shape, for numbers of more bits, and behind the last
                  array; TypeError for what are no integers.
        """
        if self._position >= len(self._arrays):
            raise ValueError(
                f"random bits are used up after {self._position} operations; give one array each"
            )
        r = self._arrays[self._position]
        if r.shape != shape:
            raise ValueError(
                f"random bits have shape {r.shape}, the result has shape {shape}; "
                "give one integer per element"
            )
        if r.dtype.kind not in "iu":
            raise TypeError(f"random bits have dtype {r.dtype}; give integers 0 to 2**{bits} - 1")
        if r.size and (int(r.min()) < 0 or int(r.max()) >> bits):
            raise ValueError(f"random bits must lie in 0 to 2**{bits} - 1 for SR with {bits} bits")
        return np.ascontiguousarray(r, dtype=np.uint32).reshape(-1)

    def advance(self) -> None:
        """The next operation gets the next array."""
        self._position += 1

    def spawn(self, k: int) -> Replay:
        """Refused.

        Raises    TypeError always.
        """
        raise TypeError("Replay holds given bits and cannot spawn; use Philox(seed)")
