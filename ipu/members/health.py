"""Health: which workers give signs of life, and why the training stopped.

A worker whose connection ends is gone, one without a beat for `silence` seconds is silent. The
first reason holds, is told to all others, and ends every wait.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable

from ipu.members.transport import Kind, Reason, StoppedError

__all__ = ["Health", "watched"]

#: Workers up to which each one watches every other.
_ALL = 16


def watched(rank: int, size: int) -> list[int]:
    """The workers that a worker watches: all others; of many, its neighbours and the first.

    >>> watched(1, 3), watched(7, 20)
    ([0, 2], [0, 6, 8])
    """
    if size <= _ALL:
        return [other for other in range(size) if other != rank]
    return sorted({(rank - 1) % size, (rank + 1) % size, 0} - {rank})


class Health:
    """Signs of life of other workers, and the reason why the training stopped.

    describe   a worker in a sentence.
    silence    seconds without a beat after which a worker is given up.
    told       called once with a reason that this worker has noticed itself.
    """

    def __init__(
        self, describe: Callable[[int], str], silence: float, told: Callable[[Reason], None]
    ) -> None:
        self.reason: Reason | None = None
        #: Notified of every stop; what waits for messages waits for it.
        self.changed = threading.Condition()
        self._describe, self._silence, self._told = describe, silence, told
        #: When each worker gave its last sign of life; changed under `changed`.
        self._last: dict[int, float] = {}
        self._closed = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self, ranks: Iterable[int]) -> None:
        """Expect beats of these workers too from now on."""
        with self.changed:
            self._last |= dict.fromkeys(ranks, time.monotonic())
            if self._thread is None:
                self._thread = threading.Thread(target=self._watch, name="health", daemon=True)
                self._thread.start()

    def beat(self, rank: int) -> None:
        """A worker gave a sign of life."""
        with self.changed:
            if rank in self._last:
                self._last[rank] = time.monotonic()

    def left(self, rank: int) -> None:
        """A worker has finished; no more beats are expected of it."""
        with self.changed:
            self._last.pop(rank, None)

    def gone(self, rank: int) -> None:
        """The connection to a worker has ended without a word."""
        if not self._closed.is_set():
            self.stop(Reason(Kind.GONE, rank, f"{self._describe(rank)} is gone"))

    def stop(self, reason: Reason, *, tell: bool = True) -> None:
        """The training stops; the first reason holds.

        tell    whether this worker noticed it, and the others have to be told.
        """
        with self.changed:
            if self.reason is not None:
                return
            self.reason = reason
            self.changed.notify_all()
        if tell:
            self._told(reason)

    def check(self) -> None:
        """Raise StoppedError after a stop."""
        if self.reason is not None:
            raise StoppedError(self.reason)

    def close(self) -> None:
        """Watch nobody any more."""
        self._closed.set()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join()

    def _watch(self) -> None:
        interval = min(0.1, self._silence / 4)
        before = time.monotonic()
        while not self._closed.wait(interval):
            now = time.monotonic()
            with self.changed:
                if now - before > self._silence / 2:
                    # This process itself stood still, and knows nothing of the others.
                    self._last = dict.fromkeys(self._last, now)
                silent = [rank for rank, last in self._last.items() if now - last > self._silence]
            before = now
            if silent:
                who = self._describe(silent[0])
                text = f"{who} has been silent for {self._silence:g} s"
                self.stop(Reason(Kind.SILENT, silent[0], text))
                return
