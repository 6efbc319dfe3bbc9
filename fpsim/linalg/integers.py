"""Products of 8-bit integers with 32-bit sums, as units for INT8 compute them.

Source    NVIDIA, PTX ISA, mma with .s8 or .u8 operands and .s32 accumulators: products and sums are
          exact, and without .satfinite an overflow wraps around (DOCUMENTED).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fpsim.linalg.operands import checked_choice
from fpsim.products.jobs.shapes import result_shape

__all__ = ["integer_matmul"]

#: Largest number of terms: their sums are exact in 64 bits.
_MOST_TERMS = 1 << 32


def integer_matmul(a: Any, b: Any, *, overflow: str = "wrap") -> NDArray[np.int32]:
    """The product a @ b of arrays of int8 or uint8, exact in int32.

    overflow   wrap (modulo 2**32, so that the order of the sums does not matter), or refuse.

    Shapes    a (..., M, K), b (..., K, N), leading dimensions broadcast.
    Raises    TypeError for other types; OverflowError for a sum that does not fit, if refused.
    Source    PTX ISA, mma (DOCUMENTED).

    >>> row, column = np.int8([[127, -128]]), np.int8([[127], [-128]])
    >>> integer_matmul(row, column).tolist()
    [[32513]]
    """
    checked_choice("overflow", overflow, ("wrap", "refuse"))
    arrays = [_of_bytes(name, x) for name, x in (("a", a), ("b", b))]
    result_shape(*(x.shape for x in arrays))  # refuses shapes that do not agree
    terms = arrays[0].shape[-1]
    if terms > _MOST_TERMS:
        raise ValueError(f"a has {terms} columns; give at most 2**32")
    # Products of 16 bits: up to 2**37 terms binary64 holds every sum, and its products are fast.
    sums = np.matmul(*(x.astype(np.float64) for x in arrays)).astype(np.int64)
    if overflow == "refuse" and sums.size and not _fits(sums):
        raise OverflowError(
            f"a sum of {terms} products is beyond int32; split K, or take overflow='wrap'"
        )
    return sums.astype(np.int32)


def _of_bytes(name: str, x: Any) -> NDArray[Any]:
    if not isinstance(x, np.ndarray) or x.dtype not in (np.int8, np.uint8):
        kind = getattr(x, "dtype", type(x).__name__)
        raise TypeError(f"{name} is {kind}; give an ndarray of int8 or uint8")
    return x


def _fits(sums: NDArray[np.int64]) -> bool:
    limits = np.iinfo(np.int32)
    return bool(sums.min() >= limits.min and sums.max() <= limits.max)
