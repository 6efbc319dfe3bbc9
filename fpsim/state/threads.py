"""Our own threads over blocks of one array: kernels release the interpreter lock.

Results never depend on the number of threads; only time does. (Numba's default threading layer
aborts when two threads enter it at once, and queues make such calls.)

Cores of a shared machine run at different speeds, and a thread that sleeps starts late, so blocks
are not dealt out in equal shares: each thread takes the next block when it has finished one. Blocks
become smaller toward the end, so that the threads finish together.
"""

from __future__ import annotations

import os
from collections.abc import Callable

from fpsim.state.tasks import Task, idle, keep_helpers, offer

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
    """Threads that large operations use.

    >>> before = get_threads()
    >>> set_threads(2)
    >>> get_threads()
    2
    >>> set_threads(before)
    """
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


def run_blocks(
    work: Callable[[int, int], int], first: int, last: int, smallest: int, step: int = 1, *,
    even: bool = False,
) -> int:
    """Or together work(start, stop) over blocks of range(first, last).

    Blocks are at least `smallest` long and begin at first plus multiples of `step`.

    even    equal blocks, one for each thread: where every block repeats some work of its own.
    """
    parts = min(_threads, (last - first) // smallest)
    if parts > 1:
        keep_helpers(_threads - 1)
        if even:  # a thread that is busy elsewhere would leave its work to be done twice
            parts = min(parts, 1 + idle())
    if parts <= 1:
        return work(first, last)
    blocks = iter(_blocks(first, last, smallest, step, parts, even=even))

    def share() -> int:
        flags = 0
        for begin, end in blocks:  # a list's iterator: each block goes to one thread
            flags |= work(begin, end)
        return flags

    shares = [offer(share) for _ in range(parts - 1)]
    try:
        flags = share()
    finally:
        for _ in blocks:  # none, unless a block has failed
            pass
        raised = _together(shares)
    return flags | raised


def _together(shares: list[Task[int]]) -> int:
    """Wait for those that were begun; their flags together."""
    flags, failure = 0, None
    for task in shares:
        if task.withdraw():
            continue
        try:
            flags |= task.wait()
        except BaseException as error:
            failure = error
    if failure is not None:
        raise failure
    return flags


def _blocks(
    first: int, last: int, smallest: int, step: int, parts: int, *, even: bool
) -> list[tuple[int, int]]:
    """Equal ones, or three quarters of that for each thread and then the quarters."""
    equal = -(-(last - first) // parts)
    sizes = [equal] * parts if even else [equal - equal // 4] * parts + [equal // 4] * parts
    blocks = []
    for size in sizes:
        size = -(-max(size, smallest) // step) * step
        stop = first + size if last - first - size >= smallest else last
        if first < stop:
            blocks.append((first, stop))
            first = stop
    return blocks
