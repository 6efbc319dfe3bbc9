"""Launches of the device, counted: what the documents' advice on loops and queues is about.

A launch is one call from the host: a loop of n iterations is one, n calls of a step are n. What a
launch does (`Counters`) is the same in every run; how long it waits for the host (`Waits`) is not,
so the two never share a record.

Source    TensorFlow user guide §6 ("the overhead of calling the hardware for each batch"), §6.10;
          Optimising for performance §4.4.1, §4.5.3.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

__all__ = [
    "Counters", "Launch", "LaunchRecord", "QueueWaits", "Waits", "current_launch", "launch",
    "launching",
    "record_launches",
]

T = TypeVar("T")


@dataclass
class Counters:
    """What launches did: the same numbers in every run.

    iterations    of all loops inside.
    elements      of infeeds that were taken in, of outfeeds that were sent out; their bytes in
                  packed storage.

    >>> Counters(launches=1, iterations=10) + Counters(launches=1, iterations=5, elements_in=5)
    Counters(launches=2, iterations=15, elements_in=5, bytes_in=0, elements_out=0, bytes_out=0)
    """

    launches: int = 0
    iterations: int = 0
    elements_in: int = 0
    bytes_in: int = 0
    elements_out: int = 0
    bytes_out: int = 0

    def __add__(self, other: Counters) -> Counters:
        sums = {name: n + getattr(other, name) for name, n in vars(self).items()}
        return Counters(**sums)


@dataclass
class QueueWaits:
    """How often and how long the device side waited for a queue; the queue's largest filling."""

    times: int = 0
    seconds: float = 0.0
    occupancy: int = 0

    def add(self, seconds: float) -> None:
        """One more wait."""
        self.times += 1
        self.seconds += seconds

    def see(self, occupancy: int) -> None:
        """So many elements were in the queue at once."""
        self.occupancy = max(self.occupancy, occupancy)

    def __add__(self, other: QueueWaits) -> QueueWaits:
        return QueueWaits(
            self.times + other.times,
            self.seconds + other.seconds,
            max(self.occupancy, other.occupancy),
        )


@dataclass
class Waits:
    """Waits for infeeds that were empty and for outfeeds that were full: they differ by run.

    >>> record = LaunchRecord([Launch(waits=Waits(QueueWaits(2, 0.5, 3))), Launch()])
    >>> record.waits.infeed.times, record.waits.infeed.seconds, record.waits.outfeed.times
    (2, 0.5, 0)
    """

    infeed: QueueWaits = field(default_factory=QueueWaits)
    outfeed: QueueWaits = field(default_factory=QueueWaits)

    def __add__(self, other: Waits) -> Waits:
        return Waits(self.infeed + other.infeed, self.outfeed + other.outfeed)


class Interrupted(Protocol):
    """What wants to know that the launch it took part in ended with an error."""

    def launch_failed(self, error: BaseException) -> None: ...


@dataclass
class Launch:
    """One call of the device.

    >>> with record_launches() as record:
    ...     largest = launch(max, 1, 2)
    >>> isinstance(record.launches[0], Launch), record.launches[0].counters.launches
    (True, 1)
    """

    counters: Counters = field(default_factory=lambda: Counters(launches=1))
    waits: Waits = field(default_factory=Waits)
    #: Queues to be told of an error, by their identity: a queue need not be hashable.
    queues: dict[int, Interrupted] = field(default_factory=dict, repr=False)


@dataclass
class LaunchRecord:
    """The launches of a stretch of a program, in order, and their sums.

    >>> with record_launches() as record:
    ...     results = [launch(max, n, 2) for n in range(3)]
    >>> isinstance(record, LaunchRecord), len(record.launches), record.counters.launches
    (True, 3, 3)
    """

    launches: list[Launch] = field(default_factory=list)

    @property
    def counters(self) -> Counters:
        """What all launches counted, together."""
        return sum((one.counters for one in self.launches), Counters())

    @property
    def waits(self) -> Waits:
        """What all launches waited for, together."""
        return sum((one.waits for one in self.launches), Waits())


_current: ContextVar[Launch | None] = ContextVar("launch", default=None)
_records: ContextVar[tuple[LaunchRecord, ...]] = ContextVar("records", default=())


def current_launch() -> Launch | None:
    """The launch that this thread is in."""
    return _current.get()


@contextmanager
def record_launches() -> Iterator[LaunchRecord]:
    """The launches of this thread inside, those that end with an error too.

    >>> from ipu.feed.loops import repeat
    >>> with record_launches() as record:
    ...     total = repeat(10, lambda total: total + 1, 0)
    >>> total, record.counters.launches, record.counters.iterations
    (10, 1, 10)
    """
    record = LaunchRecord()
    token = _records.set((*_records.get(), record))
    try:
        yield record
    finally:
        _records.reset(token)


@contextmanager
def launching() -> Iterator[Launch]:
    """A launch; inside another one it is that one, since the device is called once."""
    outer = _current.get()
    if outer is not None:
        yield outer
        return
    launch = Launch()
    for record in _records.get():
        record.launches.append(launch)
    token = _current.set(launch)
    try:
        yield launch
    except BaseException as error:
        for queue in launch.queues.values():
            queue.launch_failed(error)
        raise
    finally:
        _current.reset(token)


def launch(program: Callable[..., T], *arguments: Any) -> T:
    """Call the device once: whatever operations, loops and queues the program has inside.

    >>> with record_launches() as record:
    ...     results = [launch(max, n, 2) for n in range(4)]
    >>> results, record.counters.launches
    ([2, 2, 2, 3], 4)
    """
    with launching():
        return program(*arguments)
