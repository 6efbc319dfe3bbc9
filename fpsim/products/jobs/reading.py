"""Operands as kernels read them: whether an array can be written makes no second kernel."""

from __future__ import annotations

from typing import Any, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

__all__ = ["to_read"]

Values = TypeVar("Values", bound=NDArray[Any])


class _Memory:
    """The memory of an array, which lives as long as this."""

    def __init__(self, owner: NDArray[Any]) -> None:
        self.owner = owner
        address, _ = owner.__array_interface__["data"]
        self.__array_interface__ = owner.__array_interface__ | {"data": (address, False)}


def to_read(values: Values) -> Values:
    """The same memory for a kernel that reads it, of the type of arrays that can be written.

    Numba compiles a kernel once for arrays that can be written and once more for those that
    cannot, such as views that an `Array` hands out, memory maps and constants of a graph. An array
    that can be written is returned as it is: the check is all that small products pay.

    >>> values = np.zeros(3)
    >>> values.flags.writeable = False
    >>> to_read(values).flags.writeable, np.shares_memory(to_read(values), values)
    (True, True)
    """
    if values.flags.writeable:
        return values
    return cast(Values, np.asarray(_Memory(values)))
