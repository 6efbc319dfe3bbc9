"""Operands of products as the engines take them: places in an array, and how far numbers reach.

The unfolded input of a convolution repeats each of its numbers for every tap of the kernel. Here a
left operand is the numbers once, a place for each row and an offset for each column.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fpsim.elementwise.apply import Carrier
from fpsim.kernels.by_unit.panels import extent
from fpsim.products.by_unit.product import Product

__all__ = ["Extent", "Operands", "Rows", "reach"]

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

    @classmethod
    def of(cls, matrix: Carrier) -> Rows:
        """A matrix that is written out."""
        rows, columns = matrix.shape
        values = np.ascontiguousarray(matrix).reshape(-1)
        return cls(values, np.arange(rows) * columns, np.arange(columns))

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


class Extent(NamedTuple):
    """The smallest and the largest magnitude of the numbers of an array.

    `least` is infinity where all are zero, `most` is infinity or NaN where one of them is.
    """

    least: float
    most: float

    def exponents(self, emin: int) -> tuple[int, int]:
        """Of the smallest and the largest number, none below emin; 0 and -1 where all are zero."""
        if not self.most:
            return 0, -1
        low, high = math.frexp(self.least)[1] - 1, math.frexp(self.most)[1] - 1
        return max(low, emin), max(high, emin)


_ZEROS = Extent(np.inf, 0.0)


def reach(values: Carrier) -> Extent:
    """How far the numbers of a binary32 array reach.

    >>> reach(np.float32([[0.0, -3.0], [0.5, 1.0]]))
    Extent(least=0.5, most=3.0)
    """
    flat = values.ravel("K")
    below, most = extent(flat.view(np.uint32))
    least = np.uint32(min(below, 0x7F7FFFFF) + 1)
    return Extent(float(least.view(np.float32)), float(np.uint32(most).view(np.float32)))


class Operands(NamedTuple):
    """What one product adds up: products of a and b, beginning with the partials in start."""

    a: Rows
    b: Carrier
    reach_a: Extent
    reach_b: Extent
    reach_start: Extent

    @classmethod
    def of(cls, a: Carrier | Rows, b: Carrier, start: Carrier | None) -> Operands:
        """Operands with what is known of them; no start is zeros."""
        rows = a if isinstance(a, Rows) else Rows.of(a)
        begun = _ZEROS if start is None else reach(start)
        return cls(rows, b, reach(rows.values), reach(b), begun)

    @property
    def finite(self) -> bool:
        """Whether every operand and partial is a number."""
        return all(part.most < np.inf for part in self[2:])

    def exponents(self, product: Product) -> tuple[int, int]:
        """The smallest and the largest exponent of a product."""
        low_a, high_a = self.reach_a.exponents(product.a.emin)
        low_b, high_b = self.reach_b.exponents(product.b.emin)
        return low_a + low_b + product.scale, high_a + high_b + product.scale
