"""Outfeed: results that leave the device while it runs.

The device side puts elements into a bounded buffer and waits while it is full; a thread of the host
moves them into a store without bounds, from which any thread takes them. So a program may enqueue
more than `depth` elements before the same thread dequeues.

Source    TensorFlow user guide §6.1 to §6.3; graphcore/tensorflow ipu_outfeed_queue.py.
"""

from __future__ import annotations

import threading
import weakref
from collections import deque
from collections.abc import Iterator
from types import TracebackType
from typing import Any, Final

from ipu.feed.buffer import Buffer, End
from ipu.feed.counters import QueueWaits, current_launch
from ipu.feed.layout import Layout, Leaf

__all__ = ["ALL", "LAST", "Outfeed"]

ALL: Final = "all"
LAST: Final = "last"

#: Seconds that a thread waits for an element before an empty queue is reported: one that polls must
#: not keep the interpreter from the thread of the device.
_POLL = 0.01


class Outfeed:
    """A queue out of the device.

    mode     ALL: every element is kept until it is taken; LAST: the latest one.
    depth    elements on their way from the device to the host; a further one has to wait.

    The body of a loop enqueues; any thread dequeues or iterates. Use it as a context manager to end
    its thread at once.

    >>> from ipu.feed.loops import repeat
    >>> with Outfeed() as outfeed:
    ...     def body(n):
    ...         outfeed.enqueue({"n": n, "square": n * n})
    ...         return n + 1
    ...     last = repeat(4, body, 0)
    ...     outfeed.dequeue()
    {'n': array([0, 1, 2, 3]), 'square': array([0, 1, 4, 9])}
    """

    def __init__(self, mode: str = ALL, depth: int = 3) -> None:
        if mode not in (ALL, LAST):
            raise ValueError(f"mode={mode!r} is not a mode of an outfeed; use ALL or LAST")
        if isinstance(depth, bool) or not isinstance(depth, int) or depth < 1:
            raise ValueError(f"depth={depth!r} is not a depth; use 1 or more, 3 is usual")
        self.mode = mode
        self.depth = depth
        self._store = _Store(None if mode == ALL else 1)
        self._layout: Layout | None = None
        self._buffer: Buffer[list[Leaf]] | None = None
        self._stop: weakref.finalize[..., Outfeed] | None = None
        self._enqueued = 0
        self._device_thread: int | None = None
        #: Held while an element is put and while the thread is started or ended, so that a thread
        #: that closes the outfeed during a run loses and reorders nothing.
        self._changing = threading.RLock()

    # Device side ----------------------------------------------------------------------------

    def enqueue(self, value: Any) -> None:
        """Send a copy of a value out: an array, a number, or a structure of them.

        Raises    TypeError, ValueError for a value that is unlike the first one.
        """
        launch = current_launch()
        if launch is not None:
            launch.queues[id(self)] = self
        element = self._read(value)
        buffer = self._put(element.leaves, launch.waits.outfeed if launch else None)
        if launch is not None:
            launch.counters.elements_out += 1
            launch.counters.bytes_out += element.nbytes
            launch.waits.outfeed.see(buffer.occupancy)

    def _read(self, value: Any) -> Any:
        try:
            if self._layout is None:
                self._layout = Layout(value)
            return self._layout.read(value)
        except (TypeError, ValueError) as error:
            raise type(error)(
                f"the value cannot be enqueued: {error}. An outfeed takes values of one structure, "
                "type and shape; use another one for other values"
            ) from None

    def _put(self, leaves: list[Leaf], waits: QueueWaits | None) -> Buffer[list[Leaf]]:
        while True:
            with self._changing:
                buffer = self._buffer or self._start()
            buffer.reserve(waits)
            with self._changing:
                if buffer is self._buffer:
                    buffer.put(leaves)
                    self._enqueued += 1
                    return buffer

    def _start(self) -> Buffer[list[Leaf]]:
        buffer = self._buffer = Buffer[list[Leaf]](self.depth)
        self._device_thread = threading.get_ident()
        self._store.error = None
        self._stop = weakref.finalize(self, buffer.finish)
        buffer.start(_drain, self._store, name="outfeed")
        return buffer

    def launch_failed(self, error: BaseException) -> None:
        """The launch that filled this ended with an error: other threads learn of it."""
        self.close()
        self._store.fail(error)

    # Host side ------------------------------------------------------------------------------

    def dequeue(self) -> Any:
        """What was enqueued so far and not yet taken; from another thread, of a run under way.

        Shapes    ALL: (n, …) for each leaf, n = 0 where nothing is new; an empty list before the
                  first element, whose structure nobody knows. LAST: those of the element.
        Raises    RuntimeError in mode LAST where nothing was enqueued; in another thread than the
                  device's after a run that failed, once its elements are taken.
        """
        elements = self._store.take_all(self._enqueued, self._patience())
        if not elements:
            self._check_run()
        if self.mode == LAST:
            if not elements:
                raise RuntimeError(
                    "mode=LAST: nothing was enqueued since the last dequeue; run the loop first"
                )
            return self._value(elements[-1])
        return [] if self._layout is None else self._layout.stack(elements)

    def __iter__(self) -> Iterator[Any]:
        """The elements that were enqueued so far, one by one; each is taken as it comes.

        Raises    RuntimeError in mode LAST.
        """
        if self.mode == LAST:
            raise RuntimeError("mode=LAST keeps one element, dequeue() gives it; iterate over ALL")
        return self._elements()

    def _elements(self) -> Iterator[Any]:
        while element := self._store.take_one(self._enqueued, self._patience()):
            yield self._value(element[0])
        self._check_run()

    def _value(self, leaves: list[Leaf]) -> Any:
        assert self._layout is not None
        return self._layout.value(leaves)

    def _patience(self) -> float:
        """Seconds to wait for an element: none in the thread that would have to enqueue it."""
        return 0.0 if self._device_thread == threading.get_ident() else _POLL

    def _check_run(self) -> None:
        error = self._store.error
        if error is not None and self._device_thread != threading.get_ident():
            raise RuntimeError(f"the run that filled the outfeed ended: {error!r}") from error

    def close(self) -> None:
        """End the thread once it has stored what was enqueued, which can still be dequeued."""
        with self._changing:
            buffer, self._buffer = self._buffer, None
            if buffer is None or self._stop is None:
                return
            self._stop()
            buffer.join()

    def __enter__(self) -> Outfeed:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
        if error is not None:
            self._store.fail(error)


class _Store:
    """Elements on the host, without bounds, or the latest `keep`."""

    def __init__(self, keep: int | None) -> None:
        self._elements: deque[list[Leaf]] = deque(maxlen=keep)
        self._changed = threading.Condition()
        self._arrived = 0
        #: How the last run ended, where it failed.
        self.error: BaseException | None = None

    def add(self, element: list[Leaf]) -> None:
        with self._changed:
            self._elements.append(element)
            self._arrived += 1
            self._changed.notify_all()

    def fail(self, error: BaseException) -> None:
        with self._changed:
            self.error = error
            self._changed.notify_all()

    def take_all(self, enqueued: int, patience: float) -> list[list[Leaf]]:
        """Everything, once what was enqueued has arrived."""
        with self._changed:
            self._wait(enqueued, patience)
            elements = list(self._elements)
            self._elements.clear()
        return elements

    def take_one(self, enqueued: int, patience: float) -> list[list[Leaf]]:
        """A list with the earliest element, or an empty one."""
        with self._changed:
            self._wait(enqueued, patience)
            return [self._elements.popleft()] if self._elements else []

    def _wait(self, enqueued: int, patience: float) -> None:
        self._changed.wait_for(lambda: self._arrived >= enqueued or self.error is not None)
        if patience and not self._elements and self.error is None:
            self._changed.wait(patience)


def _drain(buffer: Buffer[list[Leaf]], store: _Store) -> None:
    """The thread's work. It holds no outfeed, so that one that is no longer used can end it."""
    try:
        while not isinstance(element := buffer.take(), End):
            store.add(element)
    except BaseException as error:
        store.fail(error)
