"""Our own threads over blocks of one array: kernels release the interpreter lock.

Results never depend on the number of threads; only time does. (Numba's default threading layer
aborts when two threads enter it at once, and queues make such calls.)

Cores of a shared machine run at different speeds, and a thread that sleeps starts late, so blocks
are not dealt out in equal shares: each thread takes the next block when it has finished one. Blocks
become smaller toward the end, so that the threads finish together.
"""

from __future__ import annotations

import os
from _thread import allocate_lock
from collections.abc import Callable
from threading import Thread

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


class _Helper:
    """A thread that sleeps until it has work.

    Two bare locks hand over in a third of the time that a `Future` takes.
    """

    def __init__(self) -> None:
        self._begun, self._done = allocate_lock(), allocate_lock()
        self._begun.acquire()
        self._done.acquire()
        self._work: Callable[[], int] = int
        self._flags = 0
        self._error: BaseException | None = None
        Thread(target=self._serve, name="fpsim", daemon=True).start()

    def _serve(self) -> None:
        while True:
            self._begun.acquire()
            try:
                self._flags = self._work()
            except BaseException as error:  # raised again by `finish`
                self._error = error
            self._work = int  # the arrays of the work may be freed
            self._done.release()

    def begin(self, work: Callable[[], int]) -> None:
        """Start the work; `finish` must follow."""
        self._work = work
        self._begun.release()

    def finish(self) -> int:
        """The flags of the work, once it is done; an interruption waits for that too."""
        interruption: BaseException | None = None
        while True:
            try:
                self._done.acquire()
                break
            except BaseException as error:
                interruption = error
        failure, self._error = interruption or self._error, None
        if failure is not None:
            raise failure
        return self._flags


#: Helpers without work: `pop` and `append` of a list are atomic.
_idle: list[_Helper] = []
_helpers = 0

if hasattr(os, "register_at_fork"):  # a forked process has none of the threads

    def _forget() -> None:
        global _helpers
        _idle.clear()
        _helpers = 0

    os.register_at_fork(after_in_child=_forget)


def _take(n: int) -> list[_Helper]:
    """Up to n helpers: another thread may have the others, which is not waited for."""
    global _helpers
    taken: list[_Helper] = []
    while len(taken) < n:
        try:
            taken.append(_idle.pop())
        except IndexError:
            if _helpers >= _threads - 1:
                break
            _helpers += 1
            taken.append(_Helper())
    return taken


def run_blocks(
    work: Callable[[int, int], int], first: int, last: int, smallest: int, step: int = 1, *,
    even: bool = False,
) -> int:  # fmt: skip
    """Or together work(start, stop) over blocks of range(first, last).

    Blocks are at least `smallest` long and begin at first plus multiples of `step`.

    even    equal blocks, one for each thread: where every block repeats some work of its own.
    """
    parts = min(_threads, (last - first) // smallest)
    if parts <= 1:
        return work(first, last)
    blocks = iter(_blocks(first, last, smallest, step, parts, even=even))

    def share() -> int:
        flags = 0
        for begin, end in blocks:  # a list's iterator: each block goes to one thread
            flags |= work(begin, end)
        return flags

    begun: list[_Helper] = []
    try:
        for helper in _take(parts - 1):
            helper.begin(share)
            begun.append(helper)
        flags = share()
    finally:
        for _ in blocks:  # none, unless a block has failed
            pass
        raised = _finish(begun)
    return flags | raised


def _finish(helpers: list[_Helper]) -> int:
    """Wait for all of them; their flags together."""
    flags, failure = 0, None
    for helper in helpers:
        try:
            flags |= helper.finish()
        except BaseException as error:
            failure = error
        _idle.append(helper)
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
