"""Left operands that are not written out: a place for each row, an offset for each column.

The unfolded input of a convolution repeats each of its numbers for every tap of the kernel; here it
is the numbers once.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import numpy as np

from fpsim.records.types import Carrier, Offsets

__all__ = ["Rows"]


class Rows(NamedTuple):
    """A matrix whose element (i, k) is values[bases[i] + offsets[k]].

    Shapes    values (n,), bases (M,), offsets (K,): the matrix (M, K).

    >>> windows = Rows(np.arange(5.0), np.array([0, 1, 2]), np.array([0, 2]))
    >>> windows.matrix().tolist()
    [[0.0, 2.0], [1.0, 3.0], [2.0, 4.0]]
    """

    values: Carrier
    bases: Offsets
    offsets: Offsets

    @classmethod
    def of(cls, matrix: Carrier) -> Rows:
        """A matrix that is written out."""
        values = np.ascontiguousarray(matrix).reshape(-1)
        return cls(values, *_steps(*matrix.shape))

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns."""
        return len(self.bases), len(self.offsets)

    def part(self, rows: slice) -> Rows:
        """Some of the rows."""
        return self._replace(bases=self.bases[rows])

    def matrix(self) -> Carrier:
        """The matrix written out."""
        return self.values[np.add.outer(self.bases, self.offsets)]


@lru_cache(maxsize=64)
def _steps(rows: int, columns: int) -> tuple[Offsets, Offsets]:
    """Bases and offsets of a contiguous matrix."""
    return np.arange(rows) * columns, np.arange(columns)
