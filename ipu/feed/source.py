"""Data sets as queues read them: from an element on, in copies of one layout.

Whatever can be read again will do: a list, `ipu.feed.batches.Batches`, a PyTorch `DataLoader`, a
`tf.data.Dataset`, or a function without arguments that returns an iterator, such as a generator
function. None of the frameworks is imported.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from itertools import islice
from typing import Any

from ipu.feed.layout import Element, Layout

__all__ = ["Source"]


class Source:
    """A data set and the layout of its elements.

    Raises    TypeError for what cannot be read a second time.

    >>> source = Source([1.0, 2.0, 4.0])
    >>> [element.leaves for element in source.elements(1)]
    [[array(2.)], [array(4.)]]
    >>> Source(iter([1.0]))
    Traceback (most recent call last):
    ...
    TypeError: the data set is a list_iterator, which can be read once only; pass what it iterates
    over, or a function that returns a new iterator
    """

    def __init__(self, data: Any) -> None:
        #: Such a source is set to its position; it need not be passed over element by element.
        self._is_positioned = hasattr(data, "position") and hasattr(data, "__next__")
        self._open = _opener(data, self._is_positioned)
        self.data = data
        self.layout: Layout | None = None

    @property
    def position(self) -> int:
        """The position of a source that has one, else 0."""
        return int(self.data.position) if self._is_positioned else 0

    def elements(self, position: int) -> Generator[Element, None, None]:
        """The elements from `position` on.

        Raises    TypeError, ValueError with the number of an element that has no or another layout.
        """
        iterator = self._at(position)
        try:
            for number, value in enumerate(iterator, position):
                yield self._read(value, number)
        finally:
            close = getattr(iterator, "close", None)
            if callable(close):
                close()

    def _at(self, position: int) -> Iterator[Any]:
        if self._is_positioned:
            self.data.position = position
            return self._open()
        iterator = self._open()
        for _ in islice(iterator, position):
            pass
        return iterator

    def _read(self, value: Any, number: int) -> Element:
        try:
            if self.layout is None:
                self.layout = Layout(value)
            return self.layout.read(value)
        except (TypeError, ValueError) as error:
            raise type(error)(
                f"element {number} of the data set cannot be fed: {error}. Elements need one "
                "structure, type and shape; drop a smaller last batch (drop_remainder=True, "
                "drop_last=True) or fill it up"
            ) from None


def _opener(data: Any, is_positioned: bool) -> Callable[[], Iterator[Any]]:
    """A function that begins to read the data set."""
    if hasattr(data, "__next__") and not is_positioned:
        raise TypeError(
            f"the data set is a {type(data).__name__}, which can be read once only; pass what it "
            "iterates over, or a function that returns a new iterator"
        )
    if hasattr(data, "__iter__") or hasattr(data, "__getitem__"):
        return lambda: iter(data)
    if callable(data):
        return lambda: iter(data())
    raise TypeError(
        f"the data set is a {type(data).__name__}, which has no elements; pass a list, an "
        "iterable, or a function that returns an iterator"
    )
