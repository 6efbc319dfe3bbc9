"""What numbers from outside lose on their way in."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fpsim.array import Array
from fpsim.records.formats import BINARY32, Format
from ipu.run.account import fit
from ipu.run.births.birth import Birth
from ipu.run.births.book import Book
from ipu.run.births.kinds import (
    DATA_BEYOND,
    DATA_DIGITS,
    DATA_ZERO,
    INFINITY,
    INTEGERS,
    ONE,
    SATURATED,
    ZERO,
)
from ipu.run.births.verbs import ENTERING

__all__ = ["entering_origins"]

#: Rows of data by which a column is judged, at least; its deviation is lost where the rounding's is
#: such a part of it.
_ROWS, _LOST = 4, 0.1
#: Share of the data that is flushed to zero where that is told.
_FLUSHED = 0.5


def entering_origins(book: Book, values: NDArray[Any], array: Array) -> dict[str, Birth] | None:
    """What numbers come from that are in a format now; None where they bring nothing."""
    fmt = array.format
    if array.size < 2 or fmt.precision >= BINARY32.precision:
        return _number(book, np.reshape(values, ()), array) if array.size == 1 else None
    wide, rounded = np.asarray(values, np.float64), np.asarray(array.carrier, np.float64)
    sizes, is_finite = np.abs(wide), np.isfinite(wide)
    origins: dict[str, Birth] = {}
    is_beyond = is_finite & (sizes > fmt.max) & (np.abs(rounded) >= fmt.max)
    n = int(np.count_nonzero(is_beyond))
    if n:
        kind = INFINITY if np.isinf(rounded[is_beyond]).any() else SATURATED
        origins[kind] = _of_data(
            book, DATA_BEYOND, fmt, n, wide, f"up to {sizes[is_beyond].max():.3g}")
    is_flushed = (rounded == 0) & (sizes > 0)
    n = int(np.count_nonzero(is_flushed))
    if n > _FLUSHED * np.count_nonzero(sizes):
        origins[ZERO] = _of_data(
            book, DATA_ZERO, fmt, n, wide, f"down to {sizes[is_flushed].min():.3g}")
    lost = _integers(book, sizes[is_finite], fmt)
    if not (lost or n):
        lost = _lost_digits(book, wide, rounded, is_finite & ~is_beyond, fmt)
    origins |= {DATA_DIGITS: lost} if lost else {}
    return origins


def _number(book: Book, value: NDArray[Any], array: Array) -> dict[str, Birth] | None:
    """A number of the program that is 1 now and was none may be a bound, as a constant."""
    if fit(float(value), float(np.reshape(array.carrier, ())), array.format) == ONE:
        as_written = float(str(value))
        return {ONE: book.constant(book.where(), array.format, as_written, ONE, book.line())}
    return None


def _of_data(
    book: Book, kind: str, fmt: Format, n: int, values: NDArray[Any], detail: str
) -> Birth:
    return book.born(kind, book.where(), ENTERING, fmt, n, int(values.size), (), detail)


def _integers(book: Book, sizes: NDArray[Any], fmt: Format) -> Birth | None:
    """Whole numbers that the format rounds to others are no positions any more."""
    if not sizes.size or not 2.0**fmt.precision < sizes.max() <= fmt.max:
        return None
    if (sizes != np.floor(sizes)).any():
        return None
    ulp = np.exp2(np.floor(np.log2(np.maximum(sizes, 1))) + 1 - fmt.precision)
    n = int(np.count_nonzero(np.remainder(sizes, np.maximum(ulp, 1))))
    return _of_data(book, INTEGERS, fmt, n, sizes, f"{float(sizes.max()):g}") if n else None


def _lost_digits(
    book: Book, wide: NDArray[Any], rounded: NDArray[Any], is_held: NDArray[np.bool_], fmt: Format
) -> Birth | None:
    """Columns of data whose numbers differ by little more than neighbours of the format."""
    columns = wide.shape[-1] if wide.ndim > 1 else 1
    if wide.size < _ROWS * columns or not is_held.all():
        return None
    table = wide.reshape(-1, columns)
    error = np.sqrt(np.mean((rounded.reshape(-1, columns) - table) ** 2, axis=0))
    deviation = np.std(table, axis=0)
    is_lost = (error > _LOST * deviation) & (np.ptp(table, axis=0) > 0)
    if not is_lost.any():
        return None
    worst = int(np.argmax(np.where(is_lost, error, 0)))
    return _of_data(
        book, DATA_DIGITS, fmt, int(np.count_nonzero(is_lost)) * len(table), wide,
        f"{np.mean(table[:, worst]):.4g} ± {deviation[worst]:.2g}")
