"""Right operands as panels: some columns side by side, filled up to whole panels."""

from __future__ import annotations

import numpy as np
from numpy.typing import DTypeLike

from fpsim.records.types import Carrier

__all__ = ["panels"]


def panels(
    b: Carrier, columns: int, *, depth: int | None = None, dtype: DTypeLike | None = None
) -> Carrier:
    """A matrix (K, N) as panels (panels, depth, columns).

    Columns beyond the last are +0; terms beyond K are -0, which change no sum.

    >>> panels(np.float32([[1, 2, 3]]), 2, depth=2).tolist()
    [[[1.0, 2.0], [-0.0, -0.0]], [[3.0, 0.0], [-0.0, -0.0]]]
    """
    k, n = b.shape
    count = -(-n // columns)
    padded = np.zeros((depth or k, count * columns), dtype or b.dtype)
    padded[:k, :n] = b
    padded[k:] = -0.0
    return np.ascontiguousarray(padded.reshape(len(padded), count, columns).swapaxes(0, 1))
