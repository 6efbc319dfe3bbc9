"""Left operands of many small products, each of which has a right operand of its own."""

from __future__ import annotations

from typing import NamedTuple

from fpsim.records.types import Carrier

__all__ = ["Stack"]


class Stack(NamedTuple):
    """Matrices one upon the other; those of the right operand stand side by side with them.

    Shapes    values (n, M, K), together the matrix (n * M, K); the right operand (n, K, N).

    >>> import numpy as np
    >>> Stack(np.zeros((5, 2, 3))).shape
    (10, 3)
    """

    values: Carrier

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns."""
        n, rows, columns = self.values.shape
        return n * rows, columns
