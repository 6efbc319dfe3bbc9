"""Products of numpy's BLAS on one thread.

Threads of OpenBLAS wait for each other by spinning: where other programs run too, many short
products take several times their work.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import cache
from importlib import import_module
from typing import Any, NamedTuple

__all__ = ["OneBlasThread"]

#: What OpenBLAS is called in numpy's wheels, and in distributions.
_NAMES = [
    f"{prefix}openblas_{{}}_num_threads{suffix}"
    for prefix in ("scipy_", "") for suffix in ("64_", "")
]


class _Control(NamedTuple):
    """Functions of the library that numpy multiplies matrices by."""

    get: Callable[[], int]
    set: Callable[[int], Any]


@cache
def _control() -> _Control | None:
    """None where numpy has another BLAS, which keeps its threads."""
    try:
        library = ctypes.CDLL(import_module("numpy._core._multiarray_umath").__file__)
    except (ImportError, OSError):
        return None
    for name in _NAMES:
        if hasattr(library, name.format("set")):
            return _Control(*(getattr(library, name.format(verb)) for verb in ("get", "set")))
    return None


class OneBlasThread:
    """Inside, numpy's BLAS computes on one thread, for all threads of the process.

    >>> import numpy as np
    >>> with OneBlasThread():
    ...     float(np.ones(3) @ np.ones(3))
    3.0
    """

    __slots__ = ("_before",)

    def __enter__(self) -> None:
        control = _control()
        self._before = 1 if control is None else control.get()
        if self._before > 1:
            assert control is not None
            control.set(1)

    def __exit__(self, *problem: object) -> None:
        if self._before > 1:
            control = _control()
            assert control is not None
            control.set(self._before)
