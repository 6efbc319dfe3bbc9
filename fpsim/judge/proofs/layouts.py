"""Where random words come from, and which summands a part has.

The loops that ask Philox for words are run on terms: a counter for a lane that may be any, of an
operation that begins anywhere.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from fractions import Fraction
from functools import cache, partial
from types import FunctionType, SimpleNamespace
from typing import Any

import numpy as np
from numba.core import types

from fpsim.judge.oracle import elementwise_word
from fpsim.judge.proofs.replay import TermBuilder
from fpsim.judge.proofs.terms import Theory, Truth, Word, choose
from fpsim.judge.proofs.theorem import Finding, Point, SolverClaim, Theorem
from fpsim.kernels.compiling import compiled
from fpsim.kernels.lanes.formula import Term
from fpsim.kernels.random import words as random_words
from fpsim.products import spread_sums

__all__ = ["theorems"]

#: Words of a block, all of whose halves differ: they say where a random number comes from.
_TAGS = (0x00010005, 0x00020006, 0x00030007, 0x00040008)


class _Asked:
    """What a loop asks Philox for: counters; and where it puts the words."""

    def __init__(self, theory: Theory, lane: Word) -> None:
        self.builder = TermBuilder(theory)
        self.lane = lane
        self.counters: list[tuple[Word, Word]] = []

    def run(self, loop: Any, *arguments: Any) -> None:
        """The Python text of a compiled loop, with lanes, numbers and Philox as terms."""
        names = dict(loop.py_func.__globals__)
        names |= {
            "iota": lambda _: self.builder.bits(self.lane),
            "splat": lambda number, _: self.builder.bits(self._word(number)),
            "np": SimpleNamespace(uint32=self._lanes), "_blocks": self._blocks,
            "_put": lambda *a: self.run(random_words._put, *a),
        }
        FunctionType(loop.py_func.__code__, names)(*arguments)

    def _word(self, number: Any) -> Word:
        if isinstance(number, Term):
            return self.builder.word(number)
        return self.builder.theory.word(int(number), 32)

    def _lanes(self, number: Word | int) -> Term:
        """A number cut to 32 bits, as numpy cuts it."""
        if isinstance(number, Word):
            return self.builder.bits(number.cut(31, 0))
        return self.builder.bits(self.builder.theory.word(number, 32))

    def _blocks(self, c0: Term, c1: Term, _seed: Any, _operation: Any) -> tuple[Term, ...]:
        self.counters.append((self.builder.word(c0), self.builder.word(c1)))
        return tuple(self.builder.bits(self.builder.theory.word(tag, 32)) for tag in _TAGS)

    def sources(self) -> list[int]:
        """What stands in the top digits of every sixteen words, in order."""
        memory = self.builder.memory
        order = sorted(at for name, at in memory if name == "words")
        assert order == list(range(0, 16 * len(order), 16))
        return [self.builder.word(memory["words", at]).value >> 16 for at in order]


def _pointer(asked: _Asked) -> Term:
    return asked.builder.pointer("words", types.uint32)


def _source_of(slot: Word, sources: list[int]) -> Word:
    """The source of a slot's words, the slot being any of them."""
    source_word = slot.theory.word(sources[-1], 16)
    for i, source in enumerate(sources[:-1]):
        source_word = choose(slot == i, slot.theory.word(source, 16), source_word)
    return source_word


def _element(theory: Theory, name: str, wide: bool) -> tuple[Word, Word, Word, Word, list[Truth]]:
    """An element of a call for two groups: number, counter and the source of its random number."""
    lane, slot = theory.variable(f"lane_{name}", 32), theory.variable(f"slot_{name}", 64)
    group = random_words.GROUP_WORD if wide else random_words.GROUP_HALF
    start = theory.variable(f"group_{name}", 64)
    slots = group // 16
    asked = _Asked(theory, lane)
    asked.run(random_words.fill_words, _pointer(asked), 0, start * group, 2 * group, 0, 0, wide)
    (c0, c1), (d0, d1) = asked.counters
    is_first = slot < slots
    number = start * group + slot * 16 + lane.extended(64)
    # 2**32 counters of a lane each; more elements than that no operation has.
    last = choose(is_first, theory.word(1 << 28, 64), theory.word((1 << 28) - 1, 64))
    fits = [lane < 16, slot < 2 * slots, start < last]
    counter = choose(is_first, c0, d0), choose(is_first, c1, d1)
    return number, *counter, _source_of(slot, asked.sources()), fits


def _elements_differ(wide: bool) -> SolverClaim:
    theory = Theory(chances=False)
    i, c0, c1, source, fits_i = _element(theory, "i", wide)
    j, d0, d1, other, fits_j = _element(theory, "j", wide)
    same = (c0 == d0) & (c1 == d1) & (source == other)
    return SolverClaim(theory, same.implies(i == j) & (c1 == 0), [*fits_i, *fits_j])


@cache
def _filling(wide: bool) -> Any:
    WIDE = wide

    @compiled
    def loop(words, first, n, seed):  # type: ignore[no-untyped-def]
        random_words.fill_words(words, 0, first, n, seed, seed, WIDE)

    return loop


def _drawn(wide: bool, point: Point) -> Finding:
    """The compiled words of both elements, and those of the layout's definition."""
    group, r = (random_words.GROUP_WORD, 32) if wide else (random_words.GROUP_HALF, 16)
    compiled_words, defined = [], []
    for name in "ij":
        first = point[f"group_{name}"] * group
        within = point[f"slot_{name}"] * 16 + point[f"lane_{name}"]
        words = np.zeros(2 * group, np.uint32)
        _filling(wide)(words, first, 2 * group, np.uint64(0))
        compiled_words.append(int(words[within]) >> (32 - r))
        defined.append(elementwise_word(0, 0, first + within, r) >> (32 - r))
    return Finding(*(" ".join(map(hex, numbers)) for numbers in (compiled_words, defined)))


def _place(theory: Theory, name: str, wide: bool) -> tuple[Truth, Any, list[Truth], Word]:
    """A rounding place of an output, and where its random number comes from."""
    lane = theory.variable(f"lane_{name}", 32)
    output = theory.variable(f"output_{name}", 64)
    block, slot = theory.variable(f"block_{name}", 64), theory.variable(f"slot_{name}", 64)
    asked = _Asked(theory, lane)
    asked.run(random_words.place_words, _pointer(asked), 0, output, block, 0, 0, wide)
    ((c0, c1),) = asked.counters
    slots = 4 if wide else 8
    fits = [lane < 16, slot < slots, output < (1 << 32) - 16, block < (1 << 32) - 1]
    number = output + lane.extended(64), block * slots + slot
    return c1 != 0, number, fits, c0.joined(c1).joined(_source_of(slot, asked.sources()))


def _places_differ(wide: bool) -> SolverClaim:
    theory = Theory(chances=False)
    apart, (i, s), fits_i, address = _place(theory, "i", wide)
    _, (j, t), fits_j, other = _place(theory, "j", wide)
    goal = (address == other).implies((i == j) & (s == t)) & apart
    return SolverClaim(theory, goal, [*fits_i, *fits_j])


class _Whole:
    """A whole number of either sign, as Python divides it: toward minus infinity."""

    def __init__(self, word: Word) -> None:
        self.word = word

    def __neg__(self) -> _Whole:
        return _Whole((self.word ^ self.word) - self.word)

    def __add__(self, other: int) -> _Whole:
        return _Whole(self.word + other)

    def __floordiv__(self, other: _Whole | int) -> _Whole:
        divisor = self.word.theory.word(other, self.word.width) if isinstance(other, int) \
            else other.word
        negative = self.word.is_negative
        size = choose(negative, (-self).word + (divisor - 1), self.word)
        quotient = size // divisor
        return _Whole(choose(negative, (-_Whole(quotient)).word, quotient))


def _parts_cover(bits: int) -> SolverClaim:
    """The parts of n summands, as `parts_of` counts them, are neighbours and cover all of them."""
    theory = Theory()
    n = theory.variable("n", bits + 2)
    parts_of: Callable[[Any], Any] = spread_sums.parts_of  # of terms as of numbers
    length, whole = (x.word for x in parts_of(_Whole(n)))
    wide = 2 * n.width
    covered = whole.extended(wide) * length.extended(wide)
    rest = n.extended(wide) - covered
    fits = (length >= 1) & (length <= spread_sums.PART) & (covered <= n.extended(wide))
    # No more parts than of 64 summands each.
    parts = whole.extended(wide) + choose(rest == 0, theory.word(0, wide), theory.word(1, wide))
    few = (parts - 1) * spread_sums.PART < n.extended(wide)
    goal = fits & (rest < length.extended(wide)) & few
    return SolverClaim(theory, goal, [n >= 1, n < 1 << bits])


def _counted(point: Point) -> Finding:
    """The parts of n summands as they are counted, and by definition."""
    n = point["n"]
    parts = math.ceil(Fraction(n, 64))
    length = math.ceil(Fraction(n, parts))
    return Finding(str(spread_sums.parts_of(n)), str((length, math.floor(Fraction(n, length)))))


def theorems() -> Iterator[Theorem]:
    """Layouts of random words, parts of sums."""
    about = "no two roundings of an operation share a random number; the loops run on terms"
    claims: tuple[tuple[str, Callable[[bool], SolverClaim], str], ...] = (
        ("elements", _elements_differ, "two elements below 2**35 (2**34) have their own words"),
        ("places", _places_differ, "so have two places of an output, apart from all elements"),
    )
    for name, claim, statement in claims:
        for wide in (False, True):
            yield Theorem(
                f"philox {name} {'whole' if wide else 'half'} words", "random words", statement,
                partial(claim, wide), partial(_drawn, wide) if name == "elements" else None,
                quick=not wide, about=about,
            )
    yield Theorem(
        "parts of a sum", "reduction tree",
        "the parts of up to 2**20 summands are neighbours, at most 64 each, and cover all of them",
        partial(_parts_cover, 20), _counted, quick=True, about="every summand stands in one part",
    )
