"""Workers that mpirun started: messages are bytes of MPI, and nothing is added there.

A message is sent by Isend and received by a matched probe and Irecv, on a communicator of this
transport's own, polled against a timeout; MPI's own reductions are not used. What MPI cannot say
itself, the transport does:

- MPI has no signs of life. A worker that ends without its last message is noticed by mpirun, which
  ends all others at once; one that is frozen, by its beats (`ipu.members.mpi_beats`). An MPI
  that only one thread may call has no beats, and a worker is given up after `PATIENCE` times the
  cluster's silence without the message that is awaited: a worker that computes is silent too.
- A worker that stops the training sends the reason to all others, waits a moment until they have
  left, and ends the run by Abort: MPI_Finalize would wait for workers that never come.

MPI trusts its network: nothing is encrypted, and whoever takes part can send anything.

Source    MPI 4.1, chapter 3 (Isend, Improbe, Irecv), §9.2 (Abort).
"""

from __future__ import annotations

import atexit
import json
import math
import os
import socket
import sys
import time
from collections.abc import Callable
from dataclasses import asdict
from typing import Any, NoReturn

from ipu.installation import how_to_install
from ipu.members.arrival import ArrivalStage, joining, tell
from ipu.members.cluster import Cluster
from ipu.members.handshake import Hello
from ipu.members.health import Health
from ipu.members.mpi_beats import Beats, can_beat
from ipu.members.transport import LIMIT, JoinError, Kind, Reason, StoppedError, heard

__all__ = ["PATIENCE", "MpiTransport", "connect", "import_mpi", "mpi_world"]

#: The silence that a worker without beats may keep while it computes, in units of the cluster's.
PATIENCE = 60.0
#: Bytes of one message of MPI: its counts have 31 bits. One of this length has a continuation.
_LONGEST = 1 << 30
#: Seconds that others have to save and leave after the training was stopped.
_FAREWELL = 10.0
#: Seconds between polls: first none, then up to the last.
_POLL_FIRST, _POLL_LAST = 20e-6, 1e-3
_MESSAGE, _STOPPED, _LEAVING = 1, 2, 3
#: Of a message on the communicator of all, which the program may use as well.
_MEETING = 32_767
#: Status of a run before its first step, in training, and after ^C.
_REFUSED, _FAILED, _INTERRUPTED = 2, 3, 130


def import_mpi() -> Any:
    """mpi4py's MPI; importing it starts MPI.

    Raises    ImportError where mpi4py or an MPI library is not installed.
    """
    if "mpi4py.MPI" not in sys.modules:
        tell(ArrivalStage.STARTS_MPI)
    try:
        from mpi4py import MPI
    except (ImportError, RuntimeError) as error:
        raise ImportError(
            "transport='mpi' needs an MPI library and mpi4py and found none; install Open MPI with "
            f"your system's package manager, or: {how_to_install('mpi')}"
        ) from error
    finally:
        tell(ArrivalStage.HAS_MPI)
    return MPI


def mpi_world() -> tuple[int, int]:
    """Number of this process and of all processes that mpirun started."""
    world = import_mpi().COMM_WORLD
    return world.Get_rank(), world.Get_size()


class MpiTransport:
    """This worker among the processes of mpirun.

    communicator    of MPI, used by nothing else.
    timeout         seconds that `receive` waits for a message.
    silence         seconds without a beat after which a worker is given up.
    """

    def __init__(self, communicator: Any, timeout: float, silence: float) -> None:
        self._mpi = import_mpi()
        self._communicator, self._timeout = communicator, timeout
        self.rank: int = communicator.Get_rank()
        self.size: int = communicator.Get_size()
        self.limit = LIMIT
        self._hosts = [""] * self.size
        #: Sends under way: request, receiver, and the bytes, which must stay where they are.
        self._sending: list[tuple[Any, int, bytes | memoryview]] = []
        self._has_joined = False
        self._reason: Reason | None = None
        self._is_closed = False
        # What a beat tells is told to others by the thread that waits for messages.
        self.health = Health(self.describe, silence, lambda reason: None)
        self._beats: Beats | None = None
        atexit.register(self._leave)

    def describe(self, rank: int) -> str:
        """As of `Transport`."""
        host = self._hosts[rank]
        return f"worker {rank} at {host}" if host else f"worker {rank}"

    # Messages -------------------------------------------------------------------------------

    def send(self, to: int, message: bytes) -> None:
        """As of `Transport`."""
        self._check()
        self._progress()
        view = memoryview(message)
        for start in range(0, len(view) + 1, _LONGEST):
            self._start(view[start : start + _LONGEST], to, _MESSAGE)

    def receive(self, sender: int) -> bytes:
        """As of `Transport`."""
        first = self._receive(sender)
        if len(first) < _LONGEST:
            return first
        parts = [first]
        while len(parts[-1]) == _LONGEST:
            if len(parts) * _LONGEST > self.limit:
                self.abort(self._too_long(sender, len(parts) * _LONGEST))
                self._check()
            parts.append(self._receive(sender))
        return b"".join(parts)

    def _receive(self, sender: int) -> bytes:
        status = self._mpi.Status()
        message = self._wait(
            lambda: self._communicator.Improbe(sender, _MESSAGE, status), self._timeout, sender
        )
        count = status.Get_count(self._mpi.BYTE)
        if count > self.limit:
            self.abort(self._too_long(sender, count))
            self._check()
        data = bytearray(count)
        request = message.Irecv([data, self._mpi.BYTE])
        self._wait(request.Test, self._timeout, sender, is_moving=True)
        return bytes(data)

    def _too_long(self, sender: int, count: int) -> Reason:
        return Reason(
            Kind.DAMAGED, sender,
            f"{self.describe(sender)} sent a message of {count} bytes, and the longest of this "
            f"training has {self.limit}",
        )

    def _start(self, message: bytes | memoryview, to: int, tag: int) -> None:
        request = self._communicator.Isend([message, self._mpi.BYTE], to, tag)
        self._sending.append((request, to, message))

    def _progress(self) -> None:
        """Forget what was sent."""
        self._sending = [row for row in self._sending if not row[0].Test()]

    # Waiting --------------------------------------------------------------------------------

    def _wait(
        self, poll: Callable[[], Any], timeout: float, sender: int, *, is_moving: bool = False
    ) -> Any:
        """What `poll` returns when it is true.

        is_moving    bytes are under way: MPI moves them in its calls alone, so there is no pause.

        Raises    StoppedError when the training is stopped, and after the timeout.
        """
        until, pause = time.monotonic() + timeout, 0.0
        while not (result := poll()):
            self._progress()
            self._listen()
            self._check()
            if time.monotonic() > until:
                who = self.describe(sender)
                self.abort(Reason(Kind.SILENT, sender, f"{who} has been silent for {timeout:g} s"))
                self._check()
            time.sleep(0 if is_moving or self._sending else pause)
            pause = min(max(_POLL_FIRST, 2 * pause), _POLL_LAST)
        return result

    def _listen(self) -> None:
        """Take the reason of another worker that stopped the training."""
        status = self._mpi.Status()
        any_source = self._mpi.ANY_SOURCE
        message = self._communicator.Improbe(any_source, _STOPPED, status)
        if message is None:
            return
        data = bytearray(status.Get_count(self._mpi.BYTE))
        message.Recv([data, self._mpi.BYTE])
        kind, rank, text = json.loads(data)
        told = heard(Reason(Kind(kind), rank, text), self.rank, self.describe)
        self._reason = self._reason or told

    def _check(self) -> None:
        if self.health.reason is not None:
            self.abort(self.health.reason)
        if self._reason is not None:
            raise StoppedError(self._reason)

    # The end --------------------------------------------------------------------------------

    def abort(self, reason: Reason) -> None:
        """As of `Transport`."""
        if self._reason is None and not self._is_closed:
            self._reason = reason
            self._tell(_STOPPED, json.dumps([reason.kind.value, *reason[1:]]).encode())

    def _tell(self, tag: int, message: bytes) -> None:
        for other in range(self.size):
            if other != self.rank:
                self._start(message, other, tag)

    def close(self) -> None:
        """As of `Transport`."""
        if self._is_closed or self._reason is not None:
            return
        for request, to, _ in self._sending:
            self._wait(request.Test, self._timeout, to)
        self._is_closed = True
        if self._beats is not None:
            self._beats.leave()

    def _leave(self) -> None:
        """At the end of the process: a worker that did not come to its last message ends the run.

        Others get the time to say the reason and to leave by themselves.
        """
        if self._mpi.Is_finalized():
            return
        if self._is_closed:
            # MPI_Finalize waits for all others; here a frozen one is noticed.
            silent = None if self._beats is None else self._beats.join()
            if silent is None:
                return
            print(silent.text, file=sys.stderr)
            self._reason = silent
        if self._reason is None:
            interrupted = getattr(sys, "last_type", None) is KeyboardInterrupt
            text = f"{self.describe(self.rank)} ended before the training did"
            kind = Kind.INTERRUPTED if interrupted else Kind.GONE
            self.abort(Reason(kind, self.rank, text))
        assert self._reason is not None
        self._tell(_LEAVING, b"")
        until = time.monotonic() + _FAREWELL
        lost = self._reason.rank if self._reason.kind in (Kind.GONE, Kind.SILENT) else None
        awaited = [rank for rank in range(self.size) if rank not in (self.rank, lost)]
        while awaited and time.monotonic() < until:
            self._progress()
            awaited = [r for r in awaited if not self._communicator.Iprobe(r, _LEAVING)]
            time.sleep(_POLL_LAST)
        failed = _FAILED if self._has_joined else _REFUSED
        _abort(self._mpi, _INTERRUPTED if self._reason.kind is Kind.INTERRUPTED else failed)

    # Joining --------------------------------------------------------------------------------

    def join(self, cluster: Cluster, plan: str) -> None:
        """Compare what must be equal on all workers.

        Raises    JoinError for workers that differ, or do not answer.
        """
        hello_here = Hello(self.rank, self.size, plan)
        host = socket.gethostname()
        text = json.dumps([host, asdict(hello_here)]).encode()
        for other in range(self.size):
            if other != self.rank:
                self.send(other, text)
        self._hosts[self.rank] = host
        hellos = {}
        for other in range(self.size):
            if other != self.rank:
                self._hosts[other], fields = json.loads(self._answer(other, cluster.join_timeout))
                hellos[other] = Hello(**fields)
        for other, hello in hellos.items():
            sentence = hello_here.difference(hello, self.describe(self.rank), self.describe(other))
            if sentence is not None:
                self._refuse(other, sentence)
        self._has_joined = True

    def watch(self, communicator: Any, interval: float) -> None:
        """Beat, and expect beats, from now on.

        communicator    of MPI, used by nothing else.
        """
        self._beats = Beats(self._mpi, communicator, self.health, interval)
        self._beats.start()

    def _answer(self, other: int, timeout: float) -> bytes:
        regular, self._timeout = self._timeout, timeout
        try:
            return self.receive(other)
        except StoppedError as error:
            if error.reason.kind is not Kind.SILENT:
                raise JoinError(str(error)) from None
            raise _no_answer(other, timeout) from None
        finally:
            self._timeout = regular

    def _refuse(self, other: int, sentence: str) -> NoReturn:
        self.abort(Reason(Kind.REFUSED, other, sentence))
        raise JoinError(sentence)


def _abort(mpi: Any, status: int) -> None:
    """End the run with a status; what was printed comes first."""
    sys.stdout.flush()
    sys.stderr.flush()
    mpi.COMM_WORLD.Abort(status)
    os._exit(status)


def _meet(mpi: Any, world: Any, timeout: float) -> None:
    """Return when all workers have come here: MPI's calls that wait for all know no time limit.

    Raises    JoinError for one that does not come in time; this process then ends the run.
    """
    awaited = set(range(world.Get_size())) - {world.Get_rank()}
    sent = [world.Isend([b"", mpi.BYTE], other, _MEETING) for other in awaited]
    until = time.monotonic() + timeout
    while awaited:
        for other in sorted(awaited):
            message = world.Improbe(other, _MEETING)
            if message is not None:
                message.Recv([bytearray(), mpi.BYTE])
                awaited.discard(other)
        if awaited and time.monotonic() > until:
            # MPI_Finalize would wait for those that have not come.
            atexit.register(_abort, mpi, _REFUSED)
            raise _no_answer(min(awaited), timeout)
        time.sleep(_POLL_LAST)
    for request in sent:
        request.Wait()


def _no_answer(rank: int, timeout: float) -> JoinError:
    return JoinError(f"worker {rank} did not answer within {timeout:g} s; start it")


def connect(cluster: Cluster, plan: str = "") -> MpiTransport:
    """Join the other processes of mpirun.

    Raises    JoinError where MPI has another number of processes, or a worker differs; ImportError
              where MPI is not installed.
    """
    mpi = import_mpi()
    world = mpi.COMM_WORLD
    if (world.Get_rank(), world.Get_size()) != (cluster.rank, cluster.size):
        raise JoinError(
            f"MPI says that this is process {world.Get_rank()} of {world.Get_size()}, the "
            f"environment that it is worker {cluster.rank} of {cluster.size}; start the program by "
            "the mpirun of the library that mpi4py uses: "
            f"{mpi.Get_library_version().splitlines()[0].rstrip(chr(0))}"
        )
    with joining():
        return _joined(mpi, cluster, plan)


def _joined(mpi: Any, cluster: Cluster, plan: str) -> MpiTransport:
    """The transport of a worker that all others have answered."""
    world = mpi.COMM_WORLD
    _meet(mpi, world, cluster.join_timeout)
    beating = cluster.size > 1 and can_beat(mpi)
    patience = math.inf if beating else PATIENCE * cluster.silence
    transport = MpiTransport(world.Dup(), patience, cluster.silence)
    transport.join(cluster, plan)
    if beating:
        # Dup waits for all; who has joined has heard the same of all others, and comes here too.
        transport.watch(world.Dup(), cluster.beat)
    elif cluster.size > 1 and cluster.rank == 0:
        print(
            "mpi: this MPI library may be called by one thread only, so workers give no beats; a "
            f"frozen one is given up after {patience:g} s (60 times FPSIM_SILENCE)",
            file=sys.stderr,
        )
    return transport
