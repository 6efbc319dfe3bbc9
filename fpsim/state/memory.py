"""Arrays as compiled kernels take them."""

from __future__ import annotations

from collections.abc import Iterable
from ctypes import addressof, c_char
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["flat_in_memory", "memory_address", "memory_addresses"]


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


def memory_addresses(arrays: Iterable[NDArray[Any]]) -> list[int]:
    """Where the first element of each lies; numpy's own ways to tell take several times as long.

    >>> x = np.zeros((3, 2))
    >>> [address - x.ctypes.data for address in memory_addresses([x, x.T[1:]])]
    [0, 8]
    """
    addresses: list[int] = []
    for x in arrays:
        if x.flags.carray and x.size:
            addresses.append(addressof(_first_byte(x.data)))
        else:
            addresses.append(x.__array_interface__["data"][0])
    return addresses


def memory_address(x: NDArray[Any]) -> int:
    """The same of one array."""
    return memory_addresses((x,))[0]
