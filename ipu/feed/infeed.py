"""Infeed: a data set that a thread reads ahead of the device.

The thread fills a bounded buffer and waits while it is full. It starts at the first element that is
asked for and ends with the data set, with an error on either side, with `close`, or when the infeed
is no longer used. What it has read ahead is then forgotten and read again from `position` on.

Source    TensorFlow user guide §6.1, §6.2; graphcore/tensorflow ipu_infeed_queue.py.
"""

from __future__ import annotations

import weakref
from contextlib import closing
from types import TracebackType
from typing import Any, NoReturn

from ipu.feed.buffer import Buffer, End
from ipu.feed.counters import current_launch
from ipu.feed.layout import Element
from ipu.feed.source import Source

__all__ = ["EndOfDataError", "Infeed"]

#: More would be refused by the vendor's queue.
_MOST = 255


class EndOfDataError(RuntimeError):
    """The data set has no further element, and the device asked for one.

    >>> from ipu.feed import repeat
    >>> with Infeed([1.0, 2.0]) as infeed:
    ...     try:
    ...         n = repeat(3, lambda n, x: n + 1, 0, infeed=infeed)
    ...     except EndOfDataError as error:
    ...         print("after", infeed.position, "elements")
    after 2 elements
    """


class Infeed:
    """A queue into the device: elements of a data set, in order, at most `prefetch` read ahead.

    data        anything that can be read again: see `ipu.feed.source`. A pass ends with an error
                where the device asks for more, so a training needs a set without end or enough.
    prefetch    elements that are read ahead, 1 to 255.

    One thread takes elements. Use it as a context manager to end its thread at once.

    >>> def numbers():
    ...     n = 0.0
    ...     while True:
    ...         yield n
    ...         n += 1
    >>> with Infeed(numbers) as infeed:
    ...     first = [float(infeed.dequeue()) for _ in range(3)]
    ...     infeed.position = 10
    ...     first, float(infeed.dequeue()), infeed.position
    ([0.0, 1.0, 2.0], 10.0, 11)
    """

    def __init__(self, data: Any, prefetch: int = 3) -> None:
        whole = isinstance(prefetch, int) and not isinstance(prefetch, bool)
        if not whole or not 1 <= prefetch <= _MOST:
            raise ValueError(f"prefetch={prefetch!r} is not a depth; use 1 to {_MOST}, 3 is usual")
        self.prefetch = prefetch
        self._source = Source(data)
        self._position = self._source.position
        self._buffer: Buffer[Element] | None = None
        self._stop: weakref.finalize[..., Infeed] | None = None

    @property
    def position(self) -> int:
        """Elements that were consumed; a training that is resumed sets it.

        An element whose iteration ended with an error does not count: it comes again.
        """
        return self._position

    @position.setter
    def position(self, position: int) -> None:
        if isinstance(position, bool) or not isinstance(position, int) or position < 0:
            raise ValueError(f"position={position!r} is not a number of elements; use 0 or more")
        self.close()
        self._position = position

    def dequeue(self) -> Any:
        """The next element, in the structure of the data set.

        Raises    EndOfDataError after the last one; what the data set raised, at its place.
        """
        return self.take()[0]

    def take(self) -> tuple[Any, int]:
        """The next element and its bytes."""
        launch = current_launch()
        buffer = self._buffer or self._start()
        try:
            element = buffer.take(launch.waits.infeed if launch else None)
        except BaseException:  # ^C: an element that was on its way comes again
            self.close()
            raise
        if isinstance(element, End):
            self._end(element.error)
        self._position += 1
        if launch is not None:
            launch.counters.elements_in += 1
            launch.counters.bytes_in += element.nbytes
            launch.waits.infeed.see(buffer.occupancy)
        assert self._source.layout is not None
        return self._source.layout.value(element.leaves), element.nbytes

    def _start(self) -> Buffer[Element]:
        buffer = self._buffer = Buffer[Element](self.prefetch)
        self._stop = weakref.finalize(self, buffer.close)
        buffer.start(_fill, self._source, self._position, name="infeed")
        return buffer

    def _end(self, error: BaseException | None) -> NoReturn:
        self.close()
        if error is not None:
            raise error
        if self._position == 0:
            raise EndOfDataError("the data set of the infeed is empty; pass one with elements")
        raise EndOfDataError(
            f"the data set of the infeed ends after {self._position} elements; use a longer one, "
            "one without end, or fewer iterations"
        )

    def close(self) -> None:
        """End the thread; what it has read ahead comes again when the next element is asked for."""
        buffer, self._buffer = self._buffer, None
        if buffer is None or self._stop is None:
            return
        self._stop()
        buffer.join()

    def __enter__(self) -> Infeed:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def _fill(buffer: Buffer[Element], source: Source, position: int) -> None:
    """The thread's work. It holds no infeed, so that one that is no longer used can end it."""
    number = position
    try:
        with closing(source.elements(position)) as elements:
            while buffer.reserve():
                buffer.put(next(elements))
                number += 1
        buffer.finish(RuntimeError("the infeed was closed while the device waited for it"))
    except StopIteration:
        buffer.finish()
    except BaseException as error:
        error.add_note(f"in the thread that reads the data set of an infeed, at element {number}")
        buffer.finish(error)
