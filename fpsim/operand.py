"""Left operands that are never written out: element (i, k) of the matrix stands at two offsets.

The unfolded input of a convolution repeats each of its numbers for every tap of the kernel. Here a
matrix is the numbers once, a place for each row and an offset for each column.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fpsim.arithmetic import Carrier

__all__ = ["Rows"]

Offsets = NDArray[np.int64]


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
