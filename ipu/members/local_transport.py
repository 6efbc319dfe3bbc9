"""Workers of one process: each is a thread, and a message goes through a queue in memory."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import TypeVar

from ipu.members.transport import LIMIT, Kind, Reason, StoppedError

__all__ = ["LocalTransport", "local_transports", "run_local"]

T = TypeVar("T")


class _Room:
    """What the workers share: a queue for each pair, and why the training stopped."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.changed = threading.Condition()
        self.queues: dict[tuple[int, int], deque[bytes]] = {}
        self.reason: Reason | None = None
        self.closed: set[int] = set()


class LocalTransport:
    """A worker among the threads of one process; `local_transports` makes all of them.

    >>> def work(transport):
    ...     transport.send(1 - transport.rank, bytes([transport.rank]))
    ...     return transport.receive(1 - transport.rank)
    >>> run_local(2, work)
    [b'\\x01', b'\\x00']
    >>> isinstance(local_transports(2)[0], LocalTransport)
    True
    """

    def __init__(self, room: _Room, rank: int) -> None:
        self.rank = rank
        self.size = room.size
        self.limit = LIMIT
        self._room = room

    def describe(self, rank: int) -> str:
        """As of `Transport`: a thread has no address.

        >>> local_transports(2)[0].describe(1)
        'worker 1'
        """
        return f"worker {rank}"

    def send(self, to: int, message: bytes) -> None:
        """As of `Transport`."""
        room = self._room
        with room.changed:
            self._check()
            room.queues.setdefault((self.rank, to), deque()).append(bytes(message))
            room.changed.notify_all()

    def receive(self, sender: int) -> bytes:
        """As of `Transport`."""
        room = self._room
        queue = room.queues.setdefault((sender, self.rank), deque())
        with room.changed:
            while not queue:
                self._check()
                if sender in room.closed:
                    raise StoppedError(Reason(Kind.GONE, sender, f"worker {sender} is gone"))
                room.changed.wait()
            return queue.popleft()

    def abort(self, reason: Reason) -> None:
        """As of `Transport`."""
        with self._room.changed:
            self._room.reason = self._room.reason or reason
            self._room.changed.notify_all()

    def close(self) -> None:
        """As of `Transport`; what waits for a message that was not sent ends."""
        with self._room.changed:
            self._room.closed.add(self.rank)
            self._room.changed.notify_all()

    def _check(self) -> None:
        if self._room.reason is not None:
            raise StoppedError(self._room.reason)


def local_transports(size: int) -> list[LocalTransport]:
    """The transports of all workers of one process.

    >>> first, second = local_transports(2)
    >>> first.send(1, b"codes")
    >>> second.receive(0)
    b'codes'
    """
    if size < 1:
        raise ValueError(f"size={size}: use 1 worker or more")
    room = _Room(size)
    return [LocalTransport(room, rank) for rank in range(size)]


def run_local(size: int, work: Callable[[LocalTransport], T]) -> list[T]:
    """What `work` returns on each of `size` workers, which run as threads.

    Raises    what the first worker that failed has raised; the others are stopped.

    >>> run_local(3, lambda transport: transport.rank)
    [0, 1, 2]
    """
    transports = local_transports(size)
    results: dict[int, T] = {}
    errors: list[BaseException] = []

    def run(transport: LocalTransport) -> None:
        try:
            results[transport.rank] = work(transport)
        except BaseException as error:
            errors.append(error)
            text = f"worker {transport.rank} stopped: {error}"
            transport.abort(Reason(Kind.FAILED, transport.rank, text))
        finally:
            transport.close()

    threads = [threading.Thread(target=run, args=(transport,)) for transport in transports]
    for thread in threads:
        thread.start()
    _join(threads, transports[0])
    if errors:
        # Who hears of a failure may be here before the one that failed.
        raise next((error for error in errors if not isinstance(error, StoppedError)), errors[0])
    return [results[rank] for rank in range(size)]


def _join(threads: Sequence[threading.Thread], transport: LocalTransport) -> None:
    """Wait for the threads; ^C stops them all."""
    try:
        for thread in threads:
            thread.join()
    except KeyboardInterrupt:
        transport.abort(Reason(Kind.INTERRUPTED, transport.rank, "the training was interrupted"))
        for thread in threads:
            thread.join()
        raise
