"""Signs of life between the workers of mpirun, which MPI itself does not give.

A thread sends an empty message to every worker that watches this one, and hears those of the
workers that this one watches; so a worker that computes is not silent. A worker that does not take
its messages gets one only: the next waits until the last has gone.

Source    MPI 4.1, §11.6 (MPI_THREAD_MULTIPLE).
"""

from __future__ import annotations

import threading
import time
from typing import Any

from ipu.members.health import Health, watched
from ipu.members.transport import Reason

__all__ = ["Beats", "can_beat"]

_ALIVE, _LEFT = 1, 2
#: Times that a worker listens from one of its own beats to the next.
_LISTENS = 5


def can_beat(mpi: Any) -> bool:
    """Whether MPI may be called by two threads at a time."""
    return bool(mpi.Query_thread() >= mpi.THREAD_MULTIPLE)


class Beats:
    """Beats of this worker, and of those that it watches, told to `health`.

    communicator    of MPI, used by nothing else.
    interval        seconds between two beats.
    """

    def __init__(self, mpi: Any, communicator: Any, health: Health, interval: float) -> None:
        rank, size = communicator.Get_rank(), communicator.Get_size()
        self._mpi, self._communicator, self._health = mpi, communicator, health
        self._interval = interval
        self._watchers = [other for other in range(size) if rank in watched(other, size)]
        #: Watched workers that have not left.
        self._awaited = set(watched(rank, size))
        self._requests: dict[int, Any] = {}
        self._leaving = threading.Event()
        self._thread = threading.Thread(target=self._run, name="beats", daemon=True)

    def start(self) -> None:
        """Beat, and expect beats, from now on."""
        self._health.start(self._awaited)
        self._thread.start()

    def leave(self) -> None:
        """Say that no more beats follow."""
        self._leaving.set()

    def join(self) -> Reason | None:
        """Wait until all others have left too; the reason where one of them falls silent."""
        while self._thread.is_alive() and self._health.reason is None:
            self._thread.join(self._interval / _LISTENS)
        return self._health.reason

    def _run(self) -> None:
        until = time.monotonic()
        while not self._leaving.wait(self._interval / _LISTENS) and not self._mpi.Is_finalized():
            if time.monotonic() >= until:
                until = time.monotonic() + self._interval
                for other in self._watchers:
                    self._send(other, _ALIVE)
            self._listen()
        untold = set(self._watchers)
        while (untold or self._awaited) and not self._mpi.Is_finalized():
            untold = {other for other in untold if not self._send(other, _LEFT)}
            self._listen()
            time.sleep(self._interval / _LISTENS if not untold else 0.001)

    def _send(self, other: int, tag: int) -> bool:
        """Whether the message is on its way: the one before it has gone."""
        request = self._requests.get(other)
        if request is not None and not request.Test():
            return False
        self._requests[other] = self._communicator.Isend([b"", self._mpi.BYTE], other, tag)
        return True

    def _listen(self) -> None:
        status = self._mpi.Status()
        any_source, any_tag = self._mpi.ANY_SOURCE, self._mpi.ANY_TAG
        while message := self._communicator.Improbe(any_source, any_tag, status):
            message.Recv([bytearray(), self._mpi.BYTE])
            other = status.Get_source()
            if status.Get_tag() == _LEFT:
                self._awaited.discard(other)
                self._health.left(other)
            else:
                self._health.beat(other)
