"""Work that another thread does while its owner goes on: a queue of tasks for helpers that sleep.

Whoever is free takes the next task. What nobody has begun when its owner wants the outcome, the
owner does, so nothing waits for a thread that is busy elsewhere; and an owner who waits for begun
work serves the queue meanwhile.
"""

from __future__ import annotations

import os
from _thread import allocate_lock
from collections.abc import Callable
from queue import Empty, SimpleQueue
from threading import Thread
from typing import Any, Generic, TypeVar, cast

from fpsim.state.processor import usual_arithmetic

__all__ = ["Task", "idle", "keep_helpers", "offer"]

T = TypeVar("T")


@usual_arithmetic
def _outcome_of(work: Callable[[], T]) -> T:
    return work()


class Task(Generic[T]):
    """Work without arguments, done once, whatever its thread has set in the processor.

    Bare locks hand over in a third of a `Future`'s time.
    """

    __slots__ = ("_done", "_error", "_outcome", "_turn", "_work")

    def __init__(self, work: Callable[[], T]) -> None:
        self._work: Callable[[], T] | None = work
        self._turn, self._done = allocate_lock(), allocate_lock()
        self._done.acquire()
        self._outcome: T | None = None
        self._error: BaseException | None = None

    @property
    def ended(self) -> bool:
        """Whether `wait` would return at once."""
        return not self._done.locked()

    def withdraw(self) -> bool:
        """Whether nobody has begun the work; then nobody will."""
        withdrawn = self._turn.acquire(blocking=False)
        if withdrawn:
            self._work = None
        return withdrawn

    def run(self, before_it_ends: Callable[[], None] | None = None) -> bool:
        """Do the work, unless somebody has begun it: then False."""
        if not self._turn.acquire(blocking=False):
            return False
        assert self._work is not None
        try:
            self._outcome = _outcome_of(self._work)
        except BaseException as error:  # raised again by `wait`
            self._error = error
        self._work = None  # the arrays of the work may be freed
        if before_it_ends is not None:
            before_it_ends()
        self._done.release()
        return True

    def finish(self) -> T:
        """The outcome: work that nobody has begun is done now, else whatever waits meanwhile."""
        self.run()
        if not self.ended:
            _serve_what_waits()
        return self.wait()

    def wait(self) -> T:
        """The outcome of work that was begun; an interruption waits for that too."""
        interruption: BaseException | None = None
        while True:
            try:
                self._done.acquire()
                break
            except BaseException as error:
                interruption = error
        self._done.release()
        failure = interruption or self._error
        if failure is not None:
            raise failure
        return cast(T, self._outcome)


#: Tasks in the order in which they were offered; None ends a helper.
_queue: SimpleQueue[Task[Any] | None] = SimpleQueue()
#: An entry for each helper that sleeps or is about to: `append` and `pop` of a list are atomic.
_asleep: list[None] = []
_helpers = 0
_starting = allocate_lock()


def keep_helpers(most: int) -> None:
    """Start helpers until there are so many, or end those beyond."""
    global _helpers
    if _helpers == most:
        return
    with _starting:
        while _helpers < most:
            _helpers += 1
            _fall_asleep()  # from now on it takes what is offered
            Thread(target=_serve, args=(_queue,), name="fpsim", daemon=True).start()
        while _helpers > most:
            _helpers -= 1
            _queue.put(None)


def offer(work: Callable[[], T]) -> Task[T]:
    """A task for whoever is free; its `finish`, or `withdraw` and else `wait`, must follow."""
    task = Task(work)
    _queue.put(task)
    return task


def idle() -> int:
    """Helpers that sleep."""
    return len(_asleep)


def _fall_asleep() -> None:
    _asleep.append(None)


def _serve(queue: SimpleQueue[Task[Any] | None]) -> None:
    while True:
        task = queue.get()
        _asleep.pop()
        if task is None:
            return
        # It is idle again before its owner goes on, who may look for idle helpers at once.
        if not task.run(_fall_asleep):
            _fall_asleep()
        del task


def _serve_what_waits() -> None:
    """Do the tasks that nobody has begun."""
    while True:
        try:
            task = _queue.get_nowait()
        except Empty:
            return
        if task is None:  # a helper's end, not ours
            _queue.put(None)
            return
        task.run()


if hasattr(os, "register_at_fork"):  # a forked process has none of the threads

    def _forget() -> None:
        global _queue, _helpers, _starting
        _queue, _helpers, _starting = SimpleQueue(), 0, allocate_lock()
        _asleep.clear()

    os.register_at_fork(after_in_child=_forget)
