"""Random words of the rounding places of sums and products.

Output i and place s of operation n have their own bits, whatever the blocking: counters of Philox
are (i, 1 + s div 8, n) with half a word per place, or (i, 1 + s div 4, n) with a whole one. Another
source hands out the integers R of all places at once, place by place.

Source    docs/semantics.md §2.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from fpsim.bits import Philox
from fpsim.kernels.elementwise import NO_WORDS
from fpsim.kernels.store import fill_places

__all__ = ["Places"]

if TYPE_CHECKING:
    from fpsim.context import Context

Words = NDArray[np.uint32]

#: Words that vector code may read beyond the last output.
_SPARE = 32


class Places:
    """The random words that one operation of a context takes.

    `rounding` lists the places that round stochastically, in order: another source than Philox is
    asked for these alone. Nothing moves on before `advance`.
    """

    def __init__(self, context: Context, rounding: range, shape: tuple[int, ...]) -> None:
        self._context = context
        self._rounding = rounding if context.rounding.stochastic else range(0)
        self._wide = context.settings.random_most > 16
        self._given: Words | None = None
        if self.active:
            size = (len(self._rounding), *shape)
            self._given = context.source.draw(context.operation, size, context.settings.random_most)
        self._count = math.prod(shape)

    @property
    def active(self) -> bool:
        """Whether anything is rounded stochastically."""
        return len(self._rounding) > 0

    @property
    def low(self) -> bool:
        """Whether R stands in the low bits of the words, else in the top ones."""
        return self._given is not None

    def words(self, place: int, first: int, n: int, kept: dict[int, Words] | None = None) -> Words:
        """Words of outputs first … first + n - 1 at one place; `kept` remembers what was made."""
        if not self.active:
            return NO_WORDS
        if self._given is not None:
            row = self._rounding.index(place) * self._count + first
            return self._given[row : row + n]
        per_block = 4 if self._wide else 8
        block, row = divmod(place, per_block)
        made = None if kept is None else kept.get(block)
        if made is None:
            made = np.empty((per_block, -(-n // 16) * 16), np.uint32)
            assert isinstance(self._context.source, Philox)
            fill_places(
                made, first, block, np.uint64(self._context.source.seed),
                np.uint64(self._context.operation), self._wide,
            )  # fmt: skip
            if kept is not None:
                kept.clear()
                kept[block] = made
        return made[row, :n]

    def block(self, n_places: int, first: int, n: int) -> Words:
        """Words (places, n and some more) of outputs first … at the places 0 … n_places - 1."""
        wide = -(-(n + _SPARE) // 16) * 16
        if self._given is not None:
            words = np.zeros((n_places, wide), np.uint32)
            given = self._given.reshape(-1, self._count)[:n_places, first : first + n]
            words[:, :n] = given
            return words
        per_block = 4 if self._wide else 8
        words = np.empty((-(-n_places // per_block) * per_block, wide), np.uint32)
        assert isinstance(self._context.source, Philox)
        for i in range(0, n_places, per_block):
            fill_places(
                words[i : i + per_block], first, i // per_block,
                np.uint64(self._context.source.seed), np.uint64(self._context.operation),
                self._wide,
            )  # fmt: skip
        return words

    def advance(self) -> None:
        """The operation was published."""
        if self.active:
            self._context.source.advance()
            self._context.operation += 1
