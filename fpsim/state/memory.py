"""Arrays as compiled kernels take them."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["flat_in_memory"]


def flat_in_memory(x: NDArray[Any]) -> NDArray[Any]:
    """All elements in C order, side by side: the same memory if it is that and can be written.

    Kernels are compiled once for arrays that can be written and once more for others.

    >>> x = np.arange(6.0)
    >>> flat_in_memory(x) is x, flat_in_memory(x.reshape(2, 3).T).tolist()
    (True, [0.0, 3.0, 1.0, 4.0, 2.0, 5.0])
    """
    ready = x if x.flags.carray else np.array(x, order="C")
    return ready if ready.ndim == 1 else ready.reshape(-1)
