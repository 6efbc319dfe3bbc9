"""Random words of the rounding places of sums and products.

Output i and place s of operation n have their own bits, whatever the blocking: counters of Philox
are (i, 1 + s div 8, n) with half a word per place, or (i, 1 + s div 4, n) with a whole one. Another
source hands out the integers R of all places at once, place by place.

Source    docs/semantics.md §2.
"""

from __future__ import annotations

import math
from copy import copy
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
    asked for these alone. Nothing moves on before `advance`. Outputs are named by row and column:
    the result is a matrix of as many columns as its last dimension has (see `part`).
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
        self._stride = shape[-1] if shape else 1
        self._first = self._passed = 0

    @property
    def active(self) -> bool:
        """Whether anything is rounded stochastically."""
        return len(self._rounding) > 0

    @property
    def low(self) -> bool:
        """Whether R stands in the low bits of the words, else in the top ones."""
        return self._given is not None

    def part(self, row: int = 0, column: int = 0, place: int = 0) -> Places:
        """The same words where output (0, 0) is the one at this row and column of the result.

        Places are counted from `place` on: they belong to the rest of K.
        """
        moved = copy(self)
        moved._first += row * self._stride + column
        moved._passed += place
        return moved

    def words(
        self, place: int, shape: tuple[int, int], kept: dict[int, Words] | None = None
    ) -> Words:
        """Words of rows and columns of outputs, flat, at one place; `kept` holds what was made."""
        n = math.prod(shape)
        if not self.active:
            return NO_WORDS
        place += self._passed
        if self._given is not None:
            row = self._rounding.index(place) * self._count
            return self._given[row + self._numbers(shape)[:n].astype(np.intp)]
        block, row = divmod(place, self._per_block)
        made = None if kept is None else kept.get(block)
        if made is None:
            made = np.empty((self._per_block, -(-n // 16) * 16), np.uint32)
            self._fill(made, self._numbers(shape), block)
            if kept is not None:
                kept.clear()
                kept[block] = made
        return made[row, :n]

    def block(self, n_places: int, shape: tuple[int, int]) -> Words:
        """Words (places, outputs and some more) of the places 0 … n_places - 1."""
        n = math.prod(shape)
        numbers = self._numbers(shape, _SPARE)
        if self._given is not None:
            words = np.zeros((n_places, len(numbers)), np.uint32)
            begin = self._rounding.index(self._passed)
            given = self._given.reshape(-1, self._count)[begin : begin + n_places]
            words[:, :n] = given[:, numbers[:n]]
            return words
        count = self._per_block
        first, skipped = divmod(self._passed, count)
        words = np.empty((-(-(skipped + n_places) // count) * count, len(numbers)), np.uint32)
        for i in range(0, len(words), count):
            self._fill(words[i : i + count], numbers, first + i // count)
        return words[skipped:]

    @property
    def _per_block(self) -> int:
        """Places that share a counter."""
        return 4 if self._wide else 8

    def _numbers(self, shape: tuple[int, int], spare: int = 0) -> Words:
        """Numbers of the outputs, and some more up to whole vectors."""
        rows, columns = np.arange(shape[0]) * self._stride, np.arange(shape[1])
        numbers = np.add.outer(rows, columns).reshape(-1) + self._first
        made = np.zeros(-(-(numbers.size + spare) // 16) * 16, np.uint32)
        made[: numbers.size] = numbers
        return made

    def _fill(self, words: Words, numbers: Words, block: int) -> None:
        assert isinstance(self._context.source, Philox)
        seed, operation = self._context.source.seed, self._context.operation
        fill_places(words, numbers, block, np.uint64(seed), np.uint64(operation), self._wide)

    def advance(self) -> None:
        """The operation was published."""
        if self.active:
            self._context.source.advance()
            self._context.operation += 1
