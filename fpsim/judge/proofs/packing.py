"""Codes of four bits, two in a byte: the instruction that stores sixteen of them, on terms.

It moves values between lanes, so here every lane is a term of its own.

Source    docs/semantics.md §3 (blocks): the first of two codes stands in the low half.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

import numpy as np
from llvmlite import ir
from numba.core import types

from fpsim.judge.proofs.replay import LaneValue, MemoryPlace, TermBuilder, UnknownInstructionError
from fpsim.judge.proofs.terms import Theory, Word, both
from fpsim.judge.proofs.theorem import Finding, Point, SolverClaim, Theorem
from fpsim.kernels.blocks.lanes import store_nibbles
from fpsim.kernels.compiling import compiled
from fpsim.kernels.lanes.formula import Term
from fpsim.kernels.lanes.memory import load, pointer
from fpsim.kernels.lanes.vectors import Lanes

__all__ = ["theorems"]

_LANES = 16


class _LaneVector:
    """All lanes of a value, the first one first."""

    align = 0

    def __init__(self, words: list[Word]) -> None:
        self.words = words

    @property
    def type(self) -> ir.Type:
        return ir.VectorType(ir.IntType(self.words[0].width), len(self.words))


class _VectorBuilder(TermBuilder):
    """The builder where instructions have all lanes."""

    def _lanes_of(self, value: Any) -> list[Word]:
        if isinstance(value, _LaneVector):
            return value.words
        if not isinstance(value, ir.Constant) or not isinstance(value.type, ir.VectorType):
            raise UnknownInstructionError(f"value={value!r} has no lanes")
        width = value.type.element.width
        return [
            self.theory.word(getattr(number, "constant", number), width)
            for number in value.constant
        ]

    def trunc(self, value: Any, kind: ir.Type) -> Any:
        return _LaneVector([w.cut(kind.element.width - 1, 0) for w in self._lanes_of(value)])

    def or_(self, a: Any, b: Any) -> Any:
        pairs = zip(self._lanes_of(a), self._lanes_of(b), strict=True)
        return _LaneVector([x | y for x, y in pairs])

    def lshr(self, a: Any, b: Any) -> Any:
        pairs = zip(self._lanes_of(a), self._lanes_of(b), strict=True)
        return _LaneVector([x >> self._counted("lshr", y) for x, y in pairs])

    def bitcast(self, value: Any, kind: ir.Type) -> Any:
        """Lanes read as half as many, the first of two in the low half; or a pointer to them."""
        if isinstance(value, MemoryPlace):
            return value
        words = self._lanes_of(value)
        if kind.count * 2 != len(words) or kind.element.width != 2 * words[0].width:
            raise UnknownInstructionError(f"{len(words)} lanes read as {kind}")
        return _LaneVector([
            high.joined(low) for low, high in zip(words[::2], words[1::2], strict=True)
        ])

    def store(self, value: Any, place: MemoryPlace) -> Any:
        for i, word in enumerate(self._lanes_of(value)):
            self.memory[place.name, place.index + i] = LaneValue(word)
        return value


def _claim() -> SolverClaim:
    """Byte k holds code 2 k in its low half and code 2 k + 1 in its high one, and nothing else."""
    theory = Theory()
    builder = _VectorBuilder(theory)
    codes = [theory.variable(f"code{i}", 32) for i in range(_LANES)]
    lanes: Any = Term(Lanes("u", 32, _LANES), _LaneVector(codes), builder.point)
    store_nibbles(builder.pointer("bytes", types.uint8), 0, lanes)
    memory = {at: builder.word(lane) for (_, at), lane in builder.memory.items()}
    assert sorted(memory) == list(range(_LANES // 2))
    goal = both([
        (byte.cut(3, 0) == codes[2 * k].cut(3, 0)) & (byte.cut(7, 4) == codes[2 * k + 1].cut(3, 0))
        & theory.truth(byte.width == 8)
        for k, byte in memory.items()
    ])
    return SolverClaim(theory, goal, [code < 16 for code in codes])


@cache
def _packing() -> Any:
    @compiled
    def loop(codes, packed):  # type: ignore[no-untyped-def]
        store_nibbles(pointer(packed), 0, load(pointer(codes), 0))

    return loop


def _check(point: Point) -> Finding:
    codes = np.array([point[f"code{i}"] for i in range(_LANES)], np.uint32)
    packed = np.zeros(_LANES // 2, np.uint8)
    _packing()(codes, packed)
    expected = [int(codes[2 * k]) + 16 * int(codes[2 * k + 1]) for k in range(_LANES // 2)]
    return Finding(packed.tobytes().hex(), bytes(expected).hex())


def theorems() -> Iterator[Theorem]:
    """Of sixteen codes that are stored at once."""
    yield Theorem(
        "packed codes", "block packing", "sixteen codes of four bits fill eight bytes, in order",
        _claim, _check, quick=True, about="codes of four bits, two in a byte",
    )
