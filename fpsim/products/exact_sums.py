"""Exact sums of rows, block by block: no memory grows with the number of elements.

Source    docs/semantics.md §4 (order exact); IEEE 754-2019 §6.3 (the sign of a zero sum).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fpsim.elementwise.apply import as_read
from fpsim.kernels.by_operation.sums import LIMBS, add_exactly, odd_codes
from fpsim.records.settings import Settings
from fpsim.records.types import Carrier

__all__ = ["exact_sums"]

#: Rows at a time, and elements of them at a time.
_ROWS, _ELEMENTS = 256, 1 << 16


def exact_sums(rows: Carrier, settings: Settings) -> tuple[NDArray[np.float64], dict[int, Carrier]]:
    """Sums of rows rounded to odd in binary64; of rows that have any, infinities and NaN instead.

    Those of a row are told once each, in the order in which they come: the others change nothing.

    >>> from fpsim.records.formats import BINARY16
    >>> exact_sums(np.float32([[1, 2], [np.inf, 1]]), Settings(BINARY16))
    (array([3., 0.]), {1: array([inf], dtype=float32)})
    """
    sums = np.empty(len(rows), np.float64)
    special: dict[int, Carrier] = {}
    for first in range(0, len(rows), _ROWS):
        block = _Block(rows[first : first + _ROWS], settings)
        sums[first : first + _ROWS] = block.sums
        special |= {first + row: values for row, values in block.special.items()}
    sums[list(special)] = 0  # what is beside an infinity is not rounded
    return sums, special


class _Block:
    """A few rows, some elements of each at a time."""

    def __init__(self, rows: Carrier, settings: Settings) -> None:
        self.special: dict[int, Carrier] = {}
        limbs = np.zeros((len(rows), LIMBS), np.int64)
        # Of each row: whether all are zeros, all negative and any negative.
        zeros, negative = np.ones((2, len(rows)), np.bool_)
        any_negative = np.zeros(len(rows), np.bool_)
        step = max(1, _ELEMENTS // max(1, len(rows)))
        for first in range(0, rows.shape[1], step):
            part = rows[:, first : first + step]
            with np.errstate(invalid="ignore"):  # the processor's flag is not ours
                wide = as_read(part, settings).astype(np.float64)
            codes = wide.view(np.int64)
            if not np.isfinite(wide).all():
                self._note(part, wide)
                codes[~np.isfinite(wide)] = 0
            add_exactly(codes, limbs)
            zeros &= (codes << 1 == 0).all(axis=1)
            negative &= (codes < 0).all(axis=1)
            any_negative |= (codes < 0).any(axis=1)
        codes = np.empty(len(rows), np.int64)
        odd_codes(limbs, codes)
        self.sums = codes.view(np.float64)
        minus = zeros & negative
        if settings.rounding.minus_zero:
            minus |= ~(zeros & ~any_negative)
        if settings.format.has_negative_zero:
            codes[(codes == 0) & minus] = -1 << 63

    def _note(self, part: Carrier, wide: NDArray[np.float64]) -> None:
        """Infinities and NaN that a row has not had before."""
        strange = ~np.isfinite(wide)
        for row in np.flatnonzero(strange.any(axis=1)).tolist():
            values = part[row][strange[row]]
            if row in self.special:
                values = np.concatenate([self.special[row], values])
            bits = np.ascontiguousarray(values).view(f"u{values.itemsize}")
            self.special[row] = values[sorted(np.unique(bits, return_index=True)[1].tolist())]
