"""Operands as kernels read them: whether an array can be written makes no second kernel."""

from __future__ import annotations

from typing import Any, TypeVar

from numpy.typing import NDArray

__all__ = ["read_only"]

Values = TypeVar("Values", bound=NDArray[Any])


def read_only(values: Values) -> Values:
    """The same memory, which cannot be written through the result.

    Numba compiles a kernel once for arrays that can be written and once more for those that
    cannot, such as views that an `Array` hands out, memory maps and constants of a graph.

    >>> values = np.zeros(3)
    >>> read_only(values).flags.writeable, values.flags.writeable
    (False, True)
    """
    if values.flags.writeable:
        values = values.view()
        values.flags.writeable = False
    return values
