"""Shapes and numbers of elements that users ask for, checked before memory is taken for them.

A size beyond the memory of the machine is refused at once: the system would promise it, and end the
process later.
"""

from __future__ import annotations

import math
import os
from functools import cache
from typing import Any

import numpy as np

from fpsim.records.types import Shape

__all__ = ["check_size", "checked_count", "checked_number", "checked_shape"]


@cache
def _memory() -> int:
    """Bytes of memory of this machine; without an answer, what an address can reach."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return 1 << 47


def _integer(value: Any) -> int | None:
    """A whole number as Python has it; None for anything else."""
    if isinstance(value, (bool, np.bool_)) or not isinstance(value, (int, np.integer)):
        return None
    return int(value)


def _readable(size: int) -> str:
    """Bytes in the unit that leaves few digits.

    >>> _readable(1 << 33), _readable(10**13)
    ('8 GiB', '9313 GiB')
    """
    return f"{size >> 30} GiB" if size >> 30 else f"{size >> 20} MiB"


def check_size(name: str, value: Any, n: int, itemsize: int) -> None:
    """Refuse n elements of `itemsize` bytes that no memory holds; `name=value` asks for them.

    >>> check_size("stop", 10**15, 10**15, 4)  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    ...
    ValueError: stop=1000000000000000 makes 1000000000000000 elements of 4 bytes, 3725290 GiB; ...
    """
    if n * itemsize > _memory():
        many = f"{n}" if n < 10**18 else f"more than 2**{n.bit_length() - 1}"
        size = f", {_readable(n * itemsize)}" if n < 10**18 else ""
        raise ValueError(
            f"{name}={value} makes {many} elements of {itemsize} bytes{size}; this machine has "
            f"{_readable(_memory())}. Work on parts"
        )


def checked_count(name: str, value: Any, least: int = 0) -> int:
    """A whole number, `least` or more.

    >>> checked_count("num", 2.5)
    Traceback (most recent call last):
    ...
    TypeError: num=2.5 is not a whole number; use 0 or more
    """
    n = _integer(value)
    if n is None:
        raise TypeError(f"{name}={value!r} is not a whole number; use {least} or more")
    if n < least:
        raise ValueError(f"{name}={n} is too small; use {least} or more")
    return n


def checked_number(name: str, value: Any) -> float:
    """A real number, as it is; NaN and infinities are numbers.

    >>> checked_number("rate", "0.1")
    Traceback (most recent call last):
    ...
    TypeError: rate='0.1' is not a number; give an int or a float
    """
    real = isinstance(value, (int, float, np.integer, np.floating))
    if isinstance(value, bool) or not real:
        raise TypeError(f"{name}={value!r} is not a number; give an int or a float")
    return value  # type: ignore[no-any-return]


def checked_shape(shape: Any, itemsize: int) -> Shape:
    """A shape as a tuple of whole numbers, whose elements of `itemsize` bytes fit into memory.

    >>> checked_shape(3, 4), checked_shape([2, 0], 4)
    ((3,), (2, 0))
    >>> checked_shape((2, -1), 4)
    Traceback (most recent call last):
    ...
    ValueError: shape=(2, -1) has a negative extent; use whole numbers from 0 on
    """
    one = _integer(shape)
    listed = isinstance(shape, (list, tuple, np.ndarray)) and np.ndim(shape) <= 1
    extents = [one] if one is not None else [_integer(n) for n in shape] if listed else [None]
    if None in extents:
        raise TypeError(f"shape={shape!r} is not a shape; use a whole number or a tuple of them")
    result = tuple(n for n in extents if n is not None)
    if any(n < 0 for n in result):
        raise ValueError(f"shape={shape!r} has a negative extent; use whole numbers from 0 on")
    check_size("shape", shape, math.prod(result), itemsize)
    return result
