"""Zeros: flushed ones, those that operands bring, and differences of equal numbers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np

from fpsim.array import Array
from fpsim.records.formats import Format
from ipu.run.births.birth import Birth, oldest
from ipu.run.births.book import Book
from ipu.run.births.elements import fits
from ipu.run.births.kinds import CONSTANT, DIFFERENCE, OF_OPERANDS, ONE, ZERO
from ipu.run.births.result import OperationResult
from ipu.run.births.verbs import ADDITIONS, base_of

__all__ = ["differences", "zero_of", "zeros_before"]

#: Share of the zeros of a result that are flushed there, above which it is none that others bring.
_MOST = 0.9


def zero_of(
    book: Book, operation: str, where: tuple[str, str, int], array: Array, zeros: int,
    flags: Mapping[str, int], brought: Sequence[Birth],
) -> Birth | None:
    """A zero that was flushed here, or that operands brought; of so many in the result."""
    if not zeros:
        return None
    before = oldest(brought)
    if before is not None and before.kind == CONSTANT and not before.causes:
        before.causes = tuple(birth for birth in brought if birth.kind == ZERO)
    fmt, detail, underflows = _where_flushed(book, array.format, zeros, flags.get("UNDERFLOW", 0))
    n = min(underflows, zeros)
    if not n or (before is not None and before.kind == CONSTANT):
        return before
    if before is None or n > _MOST * zeros:
        return book.born(ZERO, where, operation, fmt, n, array.size, (), detail)
    book.born(ZERO, where, operation, fmt, n, array.size, (before,), detail)
    return before  # the earliest of a chain of products is what the later ones follow from


def _where_flushed(
    book: Book, fmt: Format, zeros: int, underflows: int
) -> tuple[Format, str, int]:
    """The format in which most zeros of a result were flushed: its own, or one of its operands.

    A product of operands that were cast to a narrower format is zero where these are; casts that
    left subnormal numbers flushed nothing. Third are the underflows that count.
    """
    in_result = max(underflows - sum(cast.underflows for cast in book.casts), 0)
    most = max(book.casts, key=lambda cast: cast.zeros, default=None)
    if most is None or not most.zeros or in_result > _MOST * zeros:
        return fmt, "", in_result
    return most.format, OF_OPERANDS, underflows


def zeros_before(result: OperationResult) -> list[Birth]:
    """The zeros of operands that results have; that of p is none of 1 - p."""
    if base_of(result.operation) not in ADDITIONS:
        return result.all_before(ZERO)
    zeros = result.values == 0
    return [
        origins[ZERO] for x, origins in zip(result.operands, result.inherited, strict=True)
        if ZERO in origins and (not fits(np.shape(x.carrier), zeros.shape)
                                or (zeros & (np.asarray(x.carrier) == 0)).any())]


def differences(result: OperationResult) -> dict[str, Birth]:
    """Zeros of operands that are none: equal numbers, as 1 - p of a p that is rounded to 1."""
    if not result.n_zeros():
        return {}
    zeros = ones = result.values == 0
    for x in result.operands:
        if fits(np.shape(x.carrier), result.values.shape):
            zeros = zeros & (np.asarray(x.carrier) != 0)
            ones = ones & (np.abs(x.carrier) == 1)
    if not zeros.any():
        return {}
    layer, direction, step = result.where
    return {DIFFERENCE: Birth(
        DIFFERENCE, step, layer, direction, result.operation, result.fmt.name,
        causes=tuple(result.all_before(ONE)[:1]) if ones.any() else (),
        lines=Counter((result.book.line(),)),
    )}
