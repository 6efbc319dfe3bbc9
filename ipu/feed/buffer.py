"""A bounded buffer between two threads: the side that fills it waits while it is full.

A place is reserved before the element for it is produced, so the producer is never more than
`depth` elements ahead of the consumer. Two queues of the interpreter's own carry the free places
and the elements: handing over takes no lock that is written in Python.

Source    Optimising for performance §4.4.1: the host fills a stream buffer as soon as it is free.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from ipu.feed.counters import QueueWaits

__all__ = ["Buffer", "End"]

T = TypeVar("T")

#: Seconds after which a side that waits looks whether the other side still lives.
_LOOK = 0.5
#: Seconds that a closing side waits for the other thread. One that is inside a user's code ends by
#: itself later, at its next element; ^C must not wait for it.
_JOIN = 1.0


@dataclass(frozen=True)
class End:
    """What comes after the last element: an error, or none."""

    error: BaseException | None = None


class Buffer(Generic[T]):
    """At most `depth` elements between a producer and a consumer.

    >>> buffer = Buffer[int](2)
    >>> for n in range(2):
    ...     assert buffer.reserve()
    ...     buffer.put(n)
    >>> buffer.take(), buffer.take()
    (0, 1)
    """

    def __init__(self, depth: int) -> None:
        self._free: queue.SimpleQueue[bool] = queue.SimpleQueue()
        self._elements: queue.SimpleQueue[T | End] = queue.SimpleQueue()
        self._closed = False
        self._thread: threading.Thread | None = None
        for _ in range(depth):
            self._free.put(True)
        #: Of both sides together; written by the producer alone.
        self.occupancy = 0

    def start(self, work: Callable[..., None], *arguments: Any, name: str) -> None:
        """Run one side in a thread of its own: work(buffer, *arguments)."""
        self._thread = threading.Thread(
            target=work, args=(self, *arguments), name=name, daemon=True
        )
        self._thread.start()

    # The side that fills --------------------------------------------------------------------

    def reserve(self, waits: QueueWaits | None = None) -> bool:
        """Wait for a free place; False once the buffer is closed."""
        free = self._get(self._free, waits)
        return bool(free) and not self._closed

    def put(self, element: T) -> None:
        """Fill the reserved place."""
        self.occupancy = max(self.occupancy, self._elements.qsize() + 1)
        self._elements.put(element)

    def finish(self, error: BaseException | None = None) -> None:
        """No more elements come; needs no place."""
        self._elements.put(End(error))

    # The side that empties ------------------------------------------------------------------

    def take(self, waits: QueueWaits | None = None) -> T | End:
        """Wait for the next element, and free its place."""
        element: T | End = self._get(self._elements, waits)
        self._free.put(True)
        return element

    def close(self) -> None:
        """Nothing is read any more: the side that fills it stops at its next element."""
        self._closed = True
        self._free.put(False)

    def join(self) -> None:
        """Wait until the thread has ended."""
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(_JOIN)

    # Both -----------------------------------------------------------------------------------

    def _get(self, source: queue.SimpleQueue[Any], waits: QueueWaits | None) -> Any:
        try:
            return source.get_nowait()
        except queue.Empty:
            pass
        started = time.perf_counter()
        element = self._wait(source)
        if waits is not None:
            waits.add(time.perf_counter() - started)
        return element

    def _wait(self, source: queue.SimpleQueue[Any]) -> Any:
        while True:
            try:
                return source.get(timeout=_LOOK)
            except queue.Empty:
                self._check_thread(source)

    def _check_thread(self, source: queue.SimpleQueue[Any]) -> None:
        thread = self._thread
        if thread is None or thread.is_alive() or not source.empty():
            return
        raise RuntimeError(
            f"the thread {thread.name!r} is gone, as after a fork; make a queue in the process "
            "that uses it"
        )
