"""Random bits of operations: the one place that draws them and advances to the next operation.

Elementwise operations have one rounding place for each element. Sums and products have several for
each output: output i and place s of operation n have their own bits, whatever the blocking.
Counters of Philox are (i, 1 + s div 8, n) with half a word for a place, or (i, 1 + s div 4, n) with
a whole word. Another source supplies the integers R of all places at once, place by place.

Source    docs/semantics.md §2.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from fpsim.kernels.random.words import NO_WORDS
from fpsim.records.settings import Settings
from fpsim.records.types import Shape, Words
from fpsim.state.state import State

__all__ = ["NO_DRAW", "NO_PLACES", "NO_RANDOM", "Draw", "Places", "advance", "draw", "draw_places"]

_NO_ROWS = np.zeros((1, 1), np.uint32)


class Draw(NamedTuple):
    """Random bits of one operation: where kernels make them, or the integers themselves.

    seed, number   key and operation of Philox's counter.
    words          integers R in C order of the layout; None: kernels make them.
    first          index of element 0 in the whole operation.
    """

    seed: np.uint64
    number: np.uint64
    words: Words | None
    first: int = 0


#: Of an operation that rounds nothing stochastically.
NO_DRAW = Draw(np.uint64(0), np.uint64(0), None)


def draw(state: State, shape: Shape, settings: Settings | None = None, *, places: int = 1) -> Draw:
    """The bits of the state's next operation, in a layout of this shape.

    Drawing twice gives the same bits: only `advance` moves on.

    settings   those of the rounding, where they are not the state's own.
    places     of each element, if the layout has several: its first axis.
    """
    settings = settings or state.settings
    if not settings.rounding.stochastic:
        return NO_DRAW
    source, clock = state.source, state.clock
    number, seed = clock.operation, source.seed
    first = clock.first if shape else 0  # a number is no part of a tensor
    if first and seed is None:
        raise ValueError(
            f"first={first}: elements of a shard have random bits of their own with Philox alone, "
            f"got {source!r}; compute on the whole tensor, or use Philox"
        )
    if seed is not None:
        return Draw(_word(seed), np.uint64(number), None, first)
    words = source.draw(number, shape, settings.random_most, places)
    return Draw(NO_DRAW.seed, np.uint64(number), words, first)


#: As kernels take it; a step has thousands of operations and one seed.
_word = lru_cache(maxsize=64)(np.uint64)


def advance(state: State) -> None:
    """The operation is published and has used its bits."""
    state.source.advance()
    state.clock.operation += 1


def draw_places(state: State, places: range, shape: Shape) -> Places:
    """The bits of a sum or product with outputs of this shape, rounded at these places."""
    settings = state.settings
    if not settings.rounding.stochastic:
        return NO_PLACES
    if state.clock.first:
        raise ValueError(
            f"first={state.clock.first}: a sum or product of a shard rounds stochastically, and "
            "its bits are those of the whole operation; compute it on the whole tensor"
        )
    if (seed := state.source.seed) is None:
        bits = draw(state, (len(places), *shape), places=len(places))
    else:  # kernels make the words
        bits = Draw(_word(seed), np.uint64(state.clock.operation), None)
    return Places(bits, places, shape, wide=settings.random_most > 16)


class Places:
    """Random words of the rounding places of one operation.

    draw      bits of the operation; integers R lie as (places, outputs).
    places    those that round stochastically, in order.
    shape     of the result; outputs are numbered in C order, and named here by row and column of a
              matrix with as many columns as the last dimension has.
    wide      R takes a whole word.
    """

    __slots__ = (
        "_draw", "_first", "_passed", "_places", "_shape", "_stride", "active", "low", "wide",
    )

    def __init__(self, draw: Draw, places: range, shape: Shape, *, wide: bool) -> None:
        self.wide = wide
        self._draw, self._places = draw, places
        self._shape = shape
        self._stride = shape[-1] if shape else 1
        self._first = self._passed = 0
        #: Whether anything is rounded stochastically.
        self.active = len(places) > 0
        #: Whether R stands in the low bits of the words, else in the top ones.
        self.low = draw.words is not None and self.active

    def part(self, row: int = 0, column: int = 0, place: int = 0) -> Places:
        """The same words where output (0, 0) is the one at this row and column of the result.

        Places are counted from `place` on: they belong to the rest of K.
        """
        if row == column == place == 0 or not self.active:
            return self
        moved = Places.__new__(Places)
        moved.wide, moved.active, moved.low = self.wide, self.active, self.low
        moved._draw, moved._places = self._draw, self._places
        moved._shape, moved._stride = self._shape, self._stride
        moved._first = self._first + row * self._stride + column
        moved._passed = self._passed + place
        return moved

    @property
    def _outputs(self) -> int:
        return math.prod(self._shape)

    def words(self, place: int, shape: tuple[int, int]) -> Words:
        """R of rows and columns of outputs, flat, at one place, as another source supplies them."""
        assert self._draw.words is not None
        place += self._passed
        if place not in self._places:
            return NO_WORDS
        outputs = np.add.outer(np.arange(shape[0]) * self._stride, np.arange(shape[1]))
        first = self._places.index(place) * self._outputs + self._first
        words: Words = self._draw.words[first + outputs.reshape(-1)]
        return words

    @property
    def random(self) -> tuple[Words, int, np.uint64, np.uint64, int, int]:
        """For kernels that make their own words.

        Words (places, outputs) of another source, the step from row to row, seed, operation, the
        number of output (0, 0), and the first place.
        """
        rows, place = _NO_ROWS, self._passed
        if self.low:
            assert self._draw.words is not None
            rows, place = self._draw.words.reshape(-1, self._outputs), place - self._places.start
        return rows, self._stride, self._draw.seed, self._draw.number, self._first, place


#: What kernels get that make no random words.
NO_RANDOM = (_NO_ROWS, 1, NO_DRAW.seed, NO_DRAW.number, 0, 0)

#: Of an operation without stochastic rounding places.
NO_PLACES = Places(NO_DRAW, range(0), (), wide=False)
