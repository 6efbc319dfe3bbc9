"""The right matrix of a product as panels: blocks of columns that kernels hold in vectors."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["column_panels"]


def column_panels(
    b: NDArray[Any], columns: int, depth: int | None = None, dtype: Any = None
) -> NDArray[Any]:
    """b (K, N) as panels of so many columns, terms in order.

    Columns beyond the last one are zeros; terms from K to `depth` are -0, whose products change no
    sum.

    Shapes    (⌈N / columns⌉, depth or K, columns), contiguous, of `dtype` or that of b.

    >>> column_panels(np.array([[1.0, 2.0, 3.0]]), 2, depth=2).tolist()
    [[[1.0, 2.0], [-0.0, -0.0]], [[3.0, 0.0], [-0.0, -0.0]]]
    """
    k, n = b.shape
    depth, count = depth or k, -(-n // columns)
    padded = np.zeros((depth, count * columns), dtype or b.dtype)
    padded[:k, :n] = b
    padded[k:] = -0.0
    return np.ascontiguousarray(padded.reshape(depth, count, columns).swapaxes(0, 1))
