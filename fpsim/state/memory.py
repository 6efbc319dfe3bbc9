"""Arrays as compiled kernels take them."""

from __future__ import annotations

from ctypes import addressof, c_char
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["flat_in_memory", "memory_address"]


def flat_in_memory(x: NDArray[Any]) -> NDArray[Any]:
    """All elements in C order, side by side: the same memory if it is that and can be written.

    Kernels are compiled once for arrays that can be written and once more for others.

    >>> x = np.arange(6.0)
    >>> flat_in_memory(x) is x, flat_in_memory(x.reshape(2, 3).T).tolist()
    (True, [0.0, 3.0, 1.0, 4.0, 2.0, 5.0])
    """
    ready = x if x.flags.carray else np.array(x, order="C")
    return ready if ready.ndim == 1 else ready.reshape(-1)


#: A view of the first byte of memory that can be written.
_first_byte = c_char.from_buffer


def memory_address(x: NDArray[Any]) -> int:
    """Where the first element lies; numpy's own ways to tell take several times as long.

    >>> x = np.zeros((3, 2))
    >>> memory_address(x) == x.ctypes.data, memory_address(x.T[1:]) - memory_address(x)
    (True, 8)
    """
    if x.flags.carray and x.size:
        return addressof(_first_byte(x.data))
    address: int = x.__array_interface__["data"][0]
    return address
