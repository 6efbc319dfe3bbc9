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

from fpsim.kernels.elementwise.loop import NO_WORDS
from fpsim.kernels.random.words import fill_places
from fpsim.state.bits import Philox

__all__ = ["Places"]

if TYPE_CHECKING:
    from fpsim.context import Context

Words = NDArray[np.uint32]

_NONE = np.zeros((1, 1), np.uint32)


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
    def wide(self) -> bool:
        """Whether R takes a whole word."""
        return self._wide

    @property
    def low(self) -> bool:
        """Whether R stands in the low bits of the words, else in the top ones."""
        return self._given is not None

    def part(self, row: int = 0, column: int = 0, place: int = 0) -> Places:
        """The same words where output (0, 0) is the one at this row and column of the result.

        Places are counted from `place` on: they belong to the rest of K.
        """
        if row == column == place == 0:
            return self
        moved = copy(self)
        moved._first += row * self._stride + column
        moved._passed += place
        return moved

    def words(
        self, place: int, shape: tuple[int, int], kept: dict[int, Words] | None = None
    ) -> Words:
        """Words of rows and columns of outputs, flat, at one place; `kept` holds what was made."""
        n = math.prod(shape)
        place += self._passed
        if place not in self._rounding:
            return NO_WORDS
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

    @property
    def random(self) -> tuple[Words, int, np.uint64, np.uint64, int, int]:
        """For kernels that make their own words: words (places, outputs) of another source, the
        step from row to row, seed, operation, the number of output (0, 0), and the first place.
        """
        given, place = _NONE, self._passed
        if self._given is not None:
            given, place = self._given.reshape(-1, self._count), place - self._rounding.start
        source = self._context.source
        seed = np.uint64(source.seed if isinstance(source, Philox) else 0)
        number = np.uint64(self._context.operation)
        return given, self._stride, seed, number, self._first, place

    @property
    def _per_block(self) -> int:
        """Places that share a counter."""
        return 4 if self._wide else 8

    def _numbers(self, shape: tuple[int, int]) -> Words:
        """Numbers of the outputs, and some more up to whole vectors."""
        rows, columns = np.arange(shape[0]) * self._stride, np.arange(shape[1])
        numbers = np.add.outer(rows, columns).reshape(-1) + self._first
        made = np.zeros(-(-numbers.size // 16) * 16, np.uint32)
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
