"""Our own threads over blocks of one array: kernels release the interpreter lock.

Results never depend on the number of threads; only time does. (Numba's default threading layer
aborts when two threads enter it at once, and queues make such calls.)
"""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from itertools import pairwise

__all__ = ["get_threads", "run_blocks", "set_threads"]


def _from_environment() -> int:
    text = os.environ.get("FPSIM_THREADS", "")
    if not text:
        return os.cpu_count() or 1
    if not text.isdigit() or int(text) < 1:
        raise ValueError(f"FPSIM_THREADS={text!r} is not a number of threads; use 1 or more")
    return int(text)


_threads = _from_environment()


def get_threads() -> int:
    """Threads that large operations use."""
    return _threads


def set_threads(n: int) -> None:
    """Use n threads from now on (FPSIM_THREADS gives the first value).

    >>> before = get_threads(); set_threads(1); set_threads(before)
    """
    global _threads
    if isinstance(n, bool) or not isinstance(n, int):
        raise TypeError(f"n={n!r} is not a number of threads; use an integer, 1 or more")
    if n < 1:
        raise ValueError(f"n={n} is not a number of threads; use 1 or more")
    _threads = n


@lru_cache(maxsize=1)
def _pool(threads: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(threads, thread_name_prefix="fpsim")


if hasattr(os, "register_at_fork"):  # a forked process inherits the pool, but none of its threads
    os.register_at_fork(after_in_child=_pool.cache_clear)


def run_blocks(
    work: Callable[[int, int], int], first: int, last: int, smallest: int, step: int = 1
) -> int:
    """Or together work(start, stop) over equal blocks of range(first, last).

    Blocks are at least `smallest` long and begin at first plus multiples of `step`.
    """
    n = last - first
    parts = min(_threads, n // smallest)
    if parts <= 1:
        return work(first, last)
    size = -(-n // parts)
    size = -(-size // step) * step
    blocks = list(pairwise([*range(first, last, size), last]))
    pool = _pool(_threads)
    pending = [pool.submit(work, a, b) for a, b in blocks[1:]]
    flags = work(*blocks[0])
    for job in pending:
        flags |= job.result()
    return flags
