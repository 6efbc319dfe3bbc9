"""Memory that a step has freed stays with the process for the next step.

The C library gives large freed blocks back to the system, which hands out and clears new pages at
the next step: a third of the time of a training step of a small network. The limits are those of
glibc's `mallopt`; elsewhere, and where MALLOC_ variables say something else, nothing is changed.
They hold for the process, so programs set them, and nothing in the library does.

What waits through a step has pages of its own (`PAGES`): between arrays that come and go it would
cut the room that they leave into pieces too small for the next ones.

Source    mallopt(3).
"""

from __future__ import annotations

import ctypes
import math
import mmap
import os
import threading
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from fpsim.records.types import Shape

__all__ = ["PAGES", "Pages", "give_back", "keep_freed_memory"]

#: Freed memory that is kept, and arrays that come from it, at most so many bytes.
_KEPT, _FROM_KEPT = 1 << 29, 1 << 25

#: Parameters of mallopt (trim and mmap thresholds), and their values.
_LIMITS = {-1: _KEPT, -3: _FROM_KEPT}

#: Bytes from which on an array has pages of its own.
_LARGE = 1 << 14


class _Lent:
    """Pages in use: numpy holds this as long as an array sees them."""

    __slots__ = ("__array_interface__", "_lender", "_pages")

    def __init__(self, lender: Pages, pages: mmap.mmap) -> None:
        self._lender, self._pages = lender, pages
        first = ctypes.addressof(ctypes.c_char.from_buffer(pages))
        self.__array_interface__ = {
            "version": 3, "typestr": "|u1", "shape": (len(pages),), "data": (first, False)
        }

    def __del__(self) -> None:
        self._lender.take_back(self._pages)


class Pages:
    """Memory for arrays that wait; steps ask for the same sizes again and again.

    limit     bytes of freed pages that are kept; and no more than with those in use have been in
              use at once.

    >>> pages = Pages(limit=1 << 20)
    >>> x = pages.array((100, 100), np.float32)
    >>> first = x.ctypes.data
    >>> del x
    >>> pages.array((200, 100), np.uint16).ctypes.data == first
    True
    """

    def __init__(self, limit: int = 0) -> None:
        self.limit = limit
        # Arrays are freed in any thread, and by the garbage collector also inside these methods.
        self._lock = threading.RLock()
        self._free: list[mmap.mmap] = []
        self._in_use = self._most = 0

    def array(self, shape: Shape, dtype: DTypeLike) -> NDArray[Any]:
        """An array, not initialised."""
        dtype = np.dtype(dtype)
        nbytes = math.prod(shape) * dtype.itemsize
        if nbytes < _LARGE:
            return np.empty(shape, dtype)
        lent = np.asarray(_Lent(self, self._take(-(-nbytes // mmap.PAGESIZE) * mmap.PAGESIZE)))
        return lent[:nbytes].view(dtype).reshape(shape)

    def _take(self, size: int) -> mmap.mmap:
        with self._lock:
            self._in_use += size
            self._most = max(self._most, self._in_use)
            for i, pages in enumerate(self._free):
                if len(pages) == size:
                    return self._free.pop(i)
            self._shrink()
        # Private to the process, as a child's writes are to the child.
        return mmap.mmap(-1, size, access=mmap.ACCESS_COPY)

    def take_back(self, pages: mmap.mmap) -> None:
        """Pages that no array sees any more."""
        with self._lock:
            self._in_use -= len(pages)
            self._free.append(pages)
            self._shrink()

    def _shrink(self) -> None:
        most = min(self.limit, self._most - self._in_use)
        while self._free and sum(map(len, self._free)) > most:
            self._free.pop(0)

    def give_back(self) -> None:
        """Freed pages go to the system."""
        with self._lock:
            self._free.clear()


#: For the codes of arrays that wait in a training step.
PAGES = Pages()


@cache
def keep_freed_memory() -> bool:
    """Up to half a gigabyte of freed memory is kept; returns whether the C library accepts it."""
    PAGES.limit = _KEPT
    if any(name.startswith("MALLOC_") for name in os.environ):
        return False
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):  # no such function, or no such library
        return False
    return all(mallopt(name, limit) for name, limit in _LIMITS.items())


def give_back() -> None:
    """Freed memory that is kept goes to the system.

    Raises    AttributeError, OSError or TypeError where the C library has no `malloc_trim`.
    """
    PAGES.give_back()
    ctypes.CDLL(None).malloc_trim(0)
