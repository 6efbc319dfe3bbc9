"""Noise of a unit in the last place of binary32: what no comparison can tell from rounding."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

__all__ = ["moved_apart", "moved_up"]


def moved_apart(values: NDArray[np.float32]) -> NDArray[np.float32]:
    """Each number but zeros moved to its next one, neighbours to opposite sides.

    >>> (moved_apart(np.float32([1, 1, 0])) - np.float32(1)).tolist()
    [-5.960464477539063e-08, 1.1920928955078125e-07, -1.0]
    """
    ends = np.where(np.arange(values.size).reshape(values.shape) % 2, np.inf, -np.inf)
    return _moved(values, ends.astype(np.float32))


def moved_up(values: NDArray[np.float32]) -> NDArray[np.float32]:
    """Each number but zeros moved to the next larger one.

    >>> (moved_up(np.float32([1, 0])) - np.float32(1)).tolist()
    [1.1920928955078125e-07, -1.0]
    """
    return _moved(values, np.float32(np.inf))


def _moved(
    values: NDArray[np.float32], ends: NDArray[np.float32] | np.float32
) -> NDArray[np.float32]:
    return np.where(values == 0, values, np.nextafter(values, ends))
