"""The compiled elementwise kernels at a point, alone and beside lanes that take every branch.

Results are bits of binary32, in which narrow formats are held: a faulty kernel may give what is no
value of the format.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from fpsim.elementwise.apply import apply
from fpsim.judge.oracle import decode
from fpsim.judge.oracle.random import philox
from fpsim.records.formats import Format
from fpsim.records.settings import Settings
from fpsim.state.draws import NO_DRAW, Draw

__all__ = ["answers", "bits_of", "drawn_words", "told"]

#: Neighbours of the operand that is looked at: 0, infinity, NaN, a large and a small number.
_BESIDE = (None, 0x00000000, 0x7F800000, 0x7FC00000, 0x7F7FFFFF, 0x00000001)

_SEED = np.uint64(1)


def drawn_words(groups: int, operation: int, wide: bool) -> NDArray[np.uint64]:
    """The random words of the first elements of an operation, R in their top bits.

    A counter serves eight elements with half a word, or four with a whole one, sixteen apart.
    Source    docs/semantics.md §2.
    """
    counters = np.arange(16 * groups, dtype=np.uint64)
    zero = np.uint64(0)
    counter = (counters, zero, np.uint64(operation), zero)
    rows = list(philox(counter, (int(_SEED), 0)))  # type: ignore[arg-type]
    if not wide:
        rows = [(w & 0xFFFF) << 16 for w in rows] + [w >> 16 << 16 for w in rows]
    words = np.stack(rows).reshape(len(rows), groups, 16)
    return words.transpose(1, 0, 2).reshape(-1)


def bits_of(code: int, fmt: Format) -> int:
    """The binary32 number that a code means; NaN is the canonical one."""
    datum = decode(code, fmt)
    if datum.kind == "nan":
        return 0x7FC00000
    magnitude = np.inf if datum.kind == "infinite" else float(datum.magnitude)
    return int(np.float32(magnitude).view(np.uint32)) | datum.sign << 31


def told(results: set[tuple[int, int]]) -> str:
    """Bits, values and flags for people."""
    return " or ".join(
        f"{bits:#010x} ({np.uint32(bits).view(np.float32)!s}) flags {flags:#x}"
        for bits, flags in sorted(results)
    )


def answers(
    operation: str, settings: Settings, operands: Sequence[int], word: int = 0,
    supplied: bool = False,
) -> set[tuple[int, int]]:
    """(bits, flags) of the kernel at binary32 operands; more than one answer is a fault.

    `word` holds the random bits in its top bits. A kernel that draws them is given the operands
    often enough to draw these.
    """
    outcomes: set[tuple[int, int]] = set()
    for beside in _BESIDE:
        for bits, flags, at in _runs(operation, settings, operands, word, supplied, beside):
            outcomes |= {(int(b), int(f)) for b, f in zip(bits[at], flags[at], strict=True)}
    return outcomes


def _runs(
    operation: str, settings: Settings, operands: Sequence[int], word: int, supplied: bool,
    beside: int | None,
) -> Iterator[tuple[NDArray[np.integer], NDArray[np.uint8], NDArray[np.integer]]]:
    """Bits, flags and the places that are looked at."""
    r = settings.random_most
    n, draw, at = 32, NO_DRAW, np.arange(0, 32, 2)
    if settings.rounding.stochastic and supplied:
        draw = Draw(np.uint64(0), np.uint64(0), np.full(n, word >> (32 - r), np.uint32))
    elif settings.rounding.stochastic:
        draw, words = _draw_of(word >> (32 - r), r)
        n, at = words.size, np.flatnonzero((words >> np.uint64(32 - r)) == word >> (32 - r))
        at = at[at % 2 == 0]
    arrays = []
    for code in operands:
        array = np.full(n, code, np.uint32)
        array[1::2] = code if beside is None else beside
        arrays.append(array.view(np.float32))
    flags = np.zeros(n, np.uint8)
    out, _ = apply(operation, arrays, settings, element_flags=flags, bits=draw)
    yield out.view(np.uint32), flags, at


def _draw_of(number: int, r: int) -> tuple[Draw, NDArray[np.uint64]]:
    """An operation whose elements at even places draw this number somewhere, and its words."""
    wide, groups = r > 16, max(4, 1 << max(0, r - 4))
    for operation in range(64):
        words = drawn_words(groups, operation, wide)
        if ((words >> np.uint64(32 - r))[::2] == number).any():
            return Draw(_SEED, np.uint64(operation), None), words
    raise ValueError(f"word={number:#x} is not drawn in {64 * groups} groups; use fewer bits")
