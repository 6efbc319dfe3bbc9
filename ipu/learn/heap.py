"""Memory that a step has freed stays with the process for the next step.

The C library gives large freed blocks back to the system, which hands out and clears new pages at
the next step: a third of the time of a training step of a small network. The limits are those of
glibc's `mallopt`; elsewhere, and where MALLOC_ variables say something else, nothing is changed.
They hold for the process, so programs set them, and nothing in the library does.

Source    mallopt(3).
"""

from __future__ import annotations

import ctypes
import os
from functools import cache

__all__ = ["keep_freed_memory"]

#: Parameters of mallopt, and their values: up to so many bytes stay, blocks below come from them.
_LIMITS = {-1: 1 << 29, -3: 1 << 25}


@cache
def keep_freed_memory() -> bool:
    """Up to half a gigabyte of freed memory is kept; returns whether the C library accepts it."""
    if any(name.startswith("MALLOC_") for name in os.environ):
        return False
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):  # no such function, or no such library
        return False
    return all(mallopt(name, limit) for name, limit in _LIMITS.items())
