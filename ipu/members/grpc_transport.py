"""Transport over gRPC: a server and a client in every worker.

Messages are cut into pieces of at most 1 MiB; one stream for each pair of workers keeps their
order. A worker that joins says Hello, which both sides compare; what comes later carries the token
that Join has given. With mutual TLS (`Cluster.tls`) only holders of a certificate of the same
authority are heard. Nothing is pickled.
"""

from __future__ import annotations

import queue
import secrets
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from typing import Any

import grpc

from ipu.members.arrival import joining
from ipu.members.certificates import trouble
from ipu.members.cluster import Cluster
from ipu.members.grpc_server import (
    OPTIONS,
    PIECE,
    from_message,
    from_reason,
    messages,
    serve,
    services,
    to_message,
    to_reason,
)
from ipu.members.handshake import Hello
from ipu.members.health import Health, watched
from ipu.members.transport import LIMIT, JoinError, Kind, Reason, StoppedError, heard

__all__ = ["GrpcTransport", "connect", "hello_of"]

#: Seconds for which a leaving worker waits until the others know; the same after a stop.
GRACE, HURRY = 30.0, 0.2
#: Seconds for which a worker that cannot begin waits for the others' answers.
LINGER = 0.5
#: Seconds between looks at certificates, and for which others may look at those of this worker.
LOOK, SHOWN = 0.5, 3.0
#: What a worker that has another one in the caller's place answers.
_NOT_TAKEN = (grpc.StatusCode.ALREADY_EXISTS, grpc.StatusCode.PERMISSION_DENIED)


def connect(cluster: Cluster, plan: str = "") -> GrpcTransport:
    """Join the other workers; returns when all have answered.

    plan     what must be equal on all workers, as lines "name: value".

    Raises   JoinError for a port that is taken, a worker that does not answer in time, and a
             worker of another training.
    """
    transport = GrpcTransport(cluster, plan)
    try:
        with joining():
            transport.join()
    except BaseException as error:
        # ^C has no sentence of its own.
        text = str(error) or f"{transport.describe(cluster.rank)} ended before all had joined"
        transport.leave(Reason(Kind.REFUSED, cluster.rank, text))
        raise
    return transport


def hello_of(cluster: Cluster, plan: str) -> Hello:
    """What a worker says when it joins: the list of addresses, too, must be that of all."""
    lines = [f"address of worker {r}: {a}" for r, a in enumerate(cluster.addresses)]
    return Hello(cluster.rank, cluster.size, "\n".join([*lines, plan]))


class GrpcTransport:
    """A worker of a cluster, with its server; `connect` makes one that has joined."""

    def __init__(self, cluster: Cluster, plan: str = "") -> None:
        self.rank, self.size, self.limit = cluster.rank, cluster.size, LIMIT
        self._cluster = cluster
        self._others = [rank for rank in range(self.size) if rank != self.rank]
        self.hello = hello_of(cluster, plan)
        self.health = Health(self.describe, cluster.silence, self._tell)
        #: Others' ranks by the tokens that they call with; own tokens by the rank that is called.
        self._callers: dict[str, int] = {}
        self._tokens: dict[int, str] = {}
        self._inboxes: dict[int, deque[bytes]] = {rank: deque() for rank in self._others}
        self._outboxes: dict[int, queue.SimpleQueue[bytes | None]] = {}
        self._streams: dict[int, Any] = {}
        self._watches: list[Any] = []
        self._followers: list[threading.Thread] = []
        #: Watches of this worker by others that have not ended.
        self._watchers = 0
        self._leaving = threading.Event()
        self._left: set[int] = set()
        #: Workers whose messages come; nobody else joins in their place.
        self._entered: set[int] = set()
        self._is_closed = False
        self._server = serve(cluster, self)
        self._channels = {rank: _channel(cluster, rank) for rank in self._others}
        self._stubs = {r: services.RingStub(channel) for r, channel in self._channels.items()}

    def describe(self, rank: int) -> str:
        """As of `Transport`."""
        return f"worker {rank} at {self._cluster.addresses[rank]}"

    # Joining ----------------------------------------------------------------------------------

    def join(self) -> None:
        """Say Hello to every other worker; who answers is watched from then on.

        Raises    JoinError.
        """
        timeout = self._cluster.join_timeout
        deadline = time.monotonic() + timeout
        waiting = {
            rank: stub.Join.future(to_message(self.hello), timeout=timeout, wait_for_ready=True)
            for rank, stub in self._stubs.items()
        }
        look = _Look(self._cluster, self.describe, waiting)
        try:
            while waiting:
                self._check_join()
                for rank in [rank for rank, call in waiting.items() if call.done()]:
                    self._welcomed(rank, waiting.pop(rank))
                if waiting and (sentence := look.trouble()):
                    raise JoinError(sentence)
                if waiting and time.monotonic() > deadline:
                    sentence = look.trouble(shown=0)
                    raise JoinError(sentence) if sentence else self._missing(min(waiting))
                time.sleep(0.01)
        except BaseException:
            self._linger(waiting)
            raise
        finally:
            look.end()
        for rank in self._others:
            self._open(rank)

    def _linger(self, waiting: dict[int, Any]) -> None:
        """Wait a moment for those who are about to answer, so that they can be told."""
        deadline = time.monotonic() + LINGER
        while waiting and time.monotonic() < deadline:
            for rank in [rank for rank, call in waiting.items() if call.done()]:
                with suppress(grpc.RpcError, JoinError):
                    self._welcomed(rank, waiting.pop(rank))
            time.sleep(0.01)
        for call in waiting.values():
            call.cancel()
        waiting.clear()

    def leave(self, reason: Reason) -> None:
        """Tell those who have answered why the training does not begin, and close."""
        self.health.stop(reason, tell=False)
        self._tell(self.health.reason or reason)
        self.close()

    def _welcomed(self, rank: int, call: Any) -> None:
        try:
            welcome = call.result()
        except grpc.RpcError as error:
            if error.code() is grpc.StatusCode.DEADLINE_EXCEEDED:
                raise self._missing(rank) from None
            raise JoinError(f"{self.describe(rank)} refused: {error.details()}") from None
        refusal = welcome.refusal or self._difference(from_message(welcome.hello))
        if refusal:
            raise JoinError(refusal)
        self._tokens[rank] = welcome.token
        if rank in watched(self.rank, self.size):
            self.health.start([rank])
            follower = threading.Thread(target=self._follow, args=(rank,), daemon=True)
            self._followers.append(follower)
            follower.start()

    def _difference(self, other: Hello) -> str | None:
        """Why a worker cannot take part, from this worker's side."""
        names = self.describe(self.rank), f"worker {other.rank}"
        return self.hello.difference(other, *names)

    def _missing(self, rank: int) -> JoinError:
        return JoinError(
            f"{self.describe(rank)} did not answer within {self._cluster.join_timeout:g} s; "
            "start it, or correct TF_CONFIG"
        )

    def _check_join(self) -> None:
        """A stop that comes while workers join is honoured at once."""
        reason = self.health.reason
        if reason is not None:
            is_lost = reason.kind in (Kind.GONE, Kind.SILENT)
            raise JoinError(reason.text + " before all workers had joined" * is_lost)

    def greet(self, other: Hello) -> tuple[str, str]:
        """Token and refusal for a worker that joins; one of them is empty."""
        if self.health.reason is not None:
            return "", self.health.reason.text
        if other.rank not in self._others:
            return "", f"worker {other.rank} is not one of the {self.size - 1} others here"
        if other.rank in self._entered:
            return "", self._begun(other.rank)
        difference = self._difference(other)
        if difference is None:
            return self._token(other.rank), ""
        # Told on both sides: here as well, before anybody waits for the other worker.
        self.health.stop(Reason(Kind.REFUSED, other.rank, difference), tell=False)
        names = f"worker {other.rank}", self.describe(self.rank)
        return "", other.difference(self.hello, *names) or difference

    def _begun(self, rank: int) -> str:
        return (
            f"{self.describe(self.rank)} trains with another worker {rank} already; end that "
            "training first, or use other ports"
        )

    def _token(self, rank: int) -> str:
        """A new token for a worker; one that asks again was started again."""
        with self.health.changed:
            for token in [token for token, other in self._callers.items() if other == rank]:
                del self._callers[token]
            token = secrets.token_hex(16)
            self._callers[token] = rank
        return token

    def enters(self, sender: int, context: Any) -> None:
        """The one stream of a worker begins; a second one is refused, and changes nothing."""
        with self.health.changed:
            has_entered = sender in self._entered
            self._entered.add(sender)
        if has_entered:
            context.abort(grpc.StatusCode.ALREADY_EXISTS, self._begun(sender))

    def caller(self, context: Any) -> int:
        """The rank of the worker that calls, by its token; a stranger is refused."""
        token = str(dict(context.invocation_metadata()).get("token", ""))
        rank = self._callers.get(token)
        if rank is None:
            context.abort(grpc.StatusCode.PERMISSION_DENIED, "call Join first")
            raise AssertionError
        return rank

    def _metadata(self, rank: int) -> tuple[tuple[str, str], ...]:
        return (("token", self._tokens[rank]),)

    # Messages ---------------------------------------------------------------------------------

    def _open(self, rank: int) -> None:
        self._outboxes[rank] = queue.SimpleQueue()
        pieces = _pieces(self._outboxes[rank])
        stream = self._stubs[rank].Stream.future(pieces, metadata=self._metadata(rank))
        stream.add_done_callback(lambda call: self._check_entered(rank, call))
        self._streams[rank] = stream

    def _check_entered(self, rank: int, call: Any) -> None:
        """A worker that has another one in the place of this one does not take its calls.

        The others go on with that one, so they are not told.
        """
        if not self._is_closed and call.code() in _NOT_TAKEN:
            text = (
                f"{self.describe(rank)} has another worker {self.rank} already; start each worker "
                "once, with one list of all workers"
            )
            self.health.stop(Reason(Kind.REFUSED, rank, text), tell=False)

    def send(self, to: int, message: bytes) -> None:
        """As of `Transport`."""
        self.health.check()
        self._outboxes[to].put(message)

    def receive(self, sender: int) -> bytes:
        """As of `Transport`."""
        inbox, changed = self._inboxes[sender], self.health.changed
        with changed:
            while not inbox:
                self.health.check()
                if sender in self._left:
                    text = f"{self.describe(sender)} has finished, and is not awaited here"
                    raise StoppedError(Reason(Kind.GONE, sender, text))
                changed.wait(1.0)
            return inbox.popleft()

    def arrived(self, sender: int, message: bytes) -> None:
        """A whole message of another worker is here."""
        with self.health.changed:
            self._inboxes[sender].append(message)
            self.health.changed.notify_all()

    # Signs of life ----------------------------------------------------------------------------

    def watched_by(self, rank: int, context: Any) -> None:
        """Another worker follows the beats of this one, until its call ends."""
        with self.health.changed:
            self._watchers += 1
        if not context.add_callback(lambda: self._unwatched(rank)):
            self._unwatched(rank)

    def _unwatched(self, rank: int) -> None:
        with self.health.changed:
            self._watchers -= 1
            self.health.changed.notify_all()
        # A worker that ends before it has answered is not watched from here.
        if rank not in self._tokens and not self._leaving.is_set():
            self.health.gone(rank)

    def beats(self) -> Iterator[Any]:
        """A beat every second, the last one when this worker leaves or has stopped."""
        while not self._leaving.wait(self._cluster.beat):
            yield messages.Beat()
        reason = self.health.reason
        if reason is None:
            yield messages.Beat(leaving=True)
        else:
            yield messages.Beat(stopped=from_reason(reason))

    def _follow(self, rank: int) -> None:
        try:
            call = self._stubs[rank].Watch(messages.Ack(), metadata=self._metadata(rank))
        except ValueError:  # this worker leaves, and its channels are closed
            return
        self._watches.append(call)
        try:
            for beat in call:
                self.health.beat(rank)
                if beat.HasField("stopped"):
                    self.heard(to_reason(beat.stopped))
                    return
                if beat.leaving:
                    # Its last message came before: a stream is answered when all of it is here.
                    self.health.left(rank)
                    with self.health.changed:
                        self._left.add(rank)
                        self.health.changed.notify_all()
                    return
        except grpc.RpcError:
            self._check_entered(rank, call)
        if not self._is_closed:
            self.health.gone(rank)

    def heard(self, reason: Reason) -> None:
        """Another worker tells why the training stopped."""
        self.health.stop(heard(reason, self.rank, self.describe), tell=False)

    def abort(self, reason: Reason) -> None:
        """As of `Transport`."""
        self.health.stop(reason)

    def _tell(self, reason: Reason) -> None:
        """Tell a reason to all who have answered; who is gone or silent does not hear it."""
        deaf = reason.rank if reason.kind in (Kind.GONE, Kind.SILENT) else None
        message = from_reason(reason)
        calls = []
        for rank in [rank for rank in list(self._tokens) if rank != deaf]:
            with suppress(ValueError):  # this worker leaves, and its channels are closed
                abort = self._stubs[rank].Abort
                calls.append(abort.future(message, timeout=1.0, metadata=self._metadata(rank)))
        for call in calls:
            with suppress(grpc.RpcError, grpc.FutureTimeoutError):
                call.result(timeout=1.5)

    # The end ----------------------------------------------------------------------------------

    def close(self) -> None:
        """As of `Transport`."""
        if self._is_closed:
            return
        for outbox in self._outboxes.values():
            outbox.put(None)
        for stream in self._streams.values():
            self._flush(stream)
        stopped = self.health.reason is not None and bool(self._streams)
        self._is_closed = True
        self.health.close()
        self._leaving.set()
        with self.health.changed:
            self.health.changed.wait_for(lambda: not self._watchers, HURRY if stopped else GRACE)
        self._server.stop(HURRY).wait()
        for watch in self._watches:
            watch.cancel()
        for channel in self._channels.values():
            channel.close()
        self._forget_calls()

    def _forget_calls(self) -> None:
        """Leave no call to the end of the interpreter.

        A call takes its lock when it is deleted. A thread that the interpreter's end has stopped
        with this lock would never return it, and the process would not end.
        """
        for follower in self._followers:
            follower.join()
        for call in (*self._watches, *self._streams.values()):
            # A call is also the error that it raises, whose traceback holds the call.
            call.__traceback__ = None
        self._watches.clear()
        self._streams.clear()

    def _flush(self, stream: Any) -> None:
        """Wait until the receiver has all messages, for as long as it lives.

        After a stop streams do not end by themselves.
        """
        waiting = True
        while waiting:
            waiting = self.health.reason is None
            with suppress(grpc.RpcError, grpc.FutureCancelledError):
                try:
                    stream.result(timeout=HURRY)
                except grpc.FutureTimeoutError:
                    continue
            return


class _Look:
    """A look at the certificates of workers that have an address and do not answer.

    waiting    by rank; who has answered is removed.
    """

    def __init__(
        self, cluster: Cluster, describe: Callable[[int], str], waiting: Mapping[int, Any]
    ) -> None:
        self._cluster, self._describe, self._waiting = cluster, describe, waiting
        #: By rank, why a worker does not answer, and when that was seen first and last.
        self._reasons: dict[int, tuple[str, float, float]] = {}
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="certificates", daemon=True)
        self._thread.start()

    def trouble(self, shown: float = SHOWN) -> str | None:
        """A sentence about a worker that still does not answer.

        shown    seconds for which it is known: the others have the same look at this worker.
        """
        now = time.monotonic()
        # Once may be a worker that was about to leave.
        late = {rank: reason for rank, (reason, first, last) in list(self._reasons.items())
                if rank in self._waiting and now - first >= shown and last > first}
        return late[min(late)] if late else None

    def end(self) -> None:
        """Look no more."""
        self._ended.set()

    def _run(self) -> None:
        while not self._ended.wait(LOOK):
            for rank in list(self._waiting):
                name, address = self._describe(rank), self._cluster.addresses[rank]
                reason = trouble(address, name, self._cluster.tls)
                if reason is not None:
                    now = time.monotonic()
                    first = self._reasons.get(rank, ("", now, now))[1]
                    self._reasons[rank] = reason, first, now


def _pieces(outbox: queue.SimpleQueue[bytes | None]) -> Iterator[Any]:
    """The pieces of every message that is put into the outbox; None ends them."""
    while True:
        message = outbox.get()
        if message is None:
            return
        view = memoryview(message)
        for start in range(0, len(view), PIECE):
            data = bytes(view[start : start + PIECE])
            yield messages.Piece(total=len(view) if start == 0 else 0, data=data)


def _channel(cluster: Cluster, rank: int) -> Any:
    address = cluster.addresses[rank]
    if cluster.tls is None:
        return grpc.insecure_channel(address, options=OPTIONS)
    tls = cluster.tls
    credentials = grpc.ssl_channel_credentials(
        tls.ca.read_bytes(), tls.key.read_bytes(), tls.cert.read_bytes()
    )
    return grpc.secure_channel(address, credentials, options=OPTIONS)
