"""The server of a worker over gRPC: what others call, and the port that it listens on.

Stubs are built from ring.proto when this module is imported, so no generated code ties the tree to
versions of grpcio and protobuf.
"""

from __future__ import annotations

import errno
import socket
from collections.abc import Iterator
from concurrent import futures
from typing import Any, Protocol

import grpc

from ipu.members.cluster import Cluster, split_address
from ipu.members.handshake import Hello
from ipu.members.health import Health
from ipu.members.transport import JoinError, Kind, Reason

__all__ = [
    "OPTIONS", "PIECE", "Served", "from_message", "from_reason", "messages", "serve", "services",
    "to_message", "to_reason",
]

messages, services = grpc.protos_and_services("ipu/members/ring.proto")

#: Bytes of a piece, and of a gRPC message with what is around it.
PIECE, MESSAGE = 1 << 20, (1 << 20) + (4 << 10)
#: Streams that one connection may open.
STREAMS = 64
#: Threads, started as they are needed, beside those of the workers: a stranger that calls and says
#: nothing holds one until it hangs up.
SPARE = 512
OPTIONS = [
    ("grpc.max_receive_message_length", MESSAGE),
    ("grpc.max_send_message_length", MESSAGE),
    ("grpc.enable_http_proxy", 0),
    ("grpc.initial_reconnect_backoff_ms", 50),
    ("grpc.min_reconnect_backoff_ms", 50),
    ("grpc.max_reconnect_backoff_ms", 250),
]
_SERVER_OPTIONS = [
    *OPTIONS[:2],
    ("grpc.so_reuseport", 0),
    ("grpc.max_concurrent_streams", STREAMS),
]


class Served(Protocol):
    """What the server calls: `GrpcTransport` is one."""

    limit: int
    hello: Hello
    health: Health

    def describe(self, rank: int) -> str: ...

    def greet(self, other: Hello) -> tuple[str, str]: ...

    def caller(self, context: Any) -> int: ...

    def enters(self, sender: int, context: Any) -> None: ...

    def arrived(self, sender: int, message: bytes) -> None: ...

    def watched_by(self, rank: int, context: Any) -> None: ...

    def beats(self) -> Iterator[Any]: ...

    def heard(self, reason: Reason) -> None: ...

    def abort(self, reason: Reason) -> None: ...


class _Servicer(services.RingServicer):  # type: ignore[misc, name-defined]
    """What others call."""

    def __init__(self, transport: Served) -> None:
        self.transport = transport

    def Join(self, hello: Any, context: Any) -> Any:
        """See ring.proto."""
        token, refusal = self.transport.greet(from_message(hello))
        hello_here = to_message(self.transport.hello)
        return messages.Welcome(hello=hello_here, token=token, refusal=refusal)

    def Stream(self, pieces: Iterator[Any], context: Any) -> Any:
        """See ring.proto."""
        transport, sender = self.transport, self.transport.caller(context)
        transport.enters(sender, context)
        buffer, total = bytearray(), 0
        try:
            for piece in pieces:
                if not buffer and not total:
                    total = piece.total
                    if total > transport.limit:
                        raise _TooLongError(total)
                buffer += piece.data
                if len(buffer) > total:
                    raise _TooLongError(len(buffer))
                if len(buffer) == total:
                    transport.arrived(sender, bytes(buffer))
                    buffer, total = bytearray(), 0
        except _TooLongError as error:
            text = (
                f"{transport.describe(sender)} sent a message of {error} bytes, at most "
                f"{total if len(buffer) > total else transport.limit} are expected"
            )
            transport.abort(Reason(Kind.DAMAGED, sender, text))
        return messages.Ack()

    def Abort(self, reason: Any, context: Any) -> Any:
        """See ring.proto."""
        self.transport.caller(context)
        self.transport.heard(to_reason(reason))
        return messages.Ack()

    def Watch(self, request: Any, context: Any) -> Iterator[Any]:
        """See ring.proto."""
        self.transport.watched_by(self.transport.caller(context), context)
        yield from self.transport.beats()


class _TooLongError(ValueError):
    """A message is longer than it may be."""


def to_message(hello: Hello) -> Any:
    return messages.Hello(
        protocol=hello.protocol, version=hello.version, rank=hello.rank, size=hello.size,
        plan=hello.plan,
    )


def from_message(hello: Any) -> Hello:
    return Hello(hello.rank, hello.size, hello.plan, hello.protocol, hello.version)


def from_reason(reason: Reason) -> Any:
    """A reason as a message."""
    return messages.Reason(kind=reason.kind.value, rank=reason.rank, text=reason.text)


def to_reason(message: Any) -> Reason:
    """The reason in a message; of a kind that is not known, it is a failure."""
    is_known = message.kind in [kind.value for kind in Kind]
    return Reason(Kind(message.kind) if is_known else Kind.FAILED, message.rank, message.text)


def serve(cluster: Cluster, transport: Served) -> Any:
    """A server that listens on this worker's address.

    Raises    JoinError where it cannot.
    """
    # A stream and a watch of every other worker last as long as the training.
    pool = futures.ThreadPoolExecutor(2 * cluster.size + SPARE, "grpc")
    server = grpc.server(pool, options=_SERVER_OPTIONS)
    services.add_RingServicer_to_server(_Servicer(transport), server)
    address = cluster.addresses[cluster.rank]
    _check_port(cluster.rank, address)
    try:
        if cluster.tls is None:
            bound = server.add_insecure_port(address)
        else:
            tls = cluster.tls
            pair = (tls.key.read_bytes(), tls.cert.read_bytes())
            credentials = grpc.ssl_server_credentials(
                [pair], tls.ca.read_bytes(), require_client_auth=True
            )
            bound = server.add_secure_port(address, credentials)
    except RuntimeError:
        bound = 0
    if not bound:
        # The port was free a moment ago.
        cause = "use another port on all workers"
        if cluster.tls is not None:
            cause = (
                "FPSIM_TLS_CA, FPSIM_TLS_CERT and FPSIM_TLS_KEY must be PEM files, the key that "
                "of the certificate; or its port is taken"
            )
        raise JoinError(f"worker {cluster.rank} cannot listen on {address}: {cause}")
    server.start()
    return server


def _check_port(rank: int, address: str) -> None:
    """Say why nobody can listen on an address, which gRPC does not."""
    host, port = split_address(address)
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            reason = (error.strerror or str(error)).lower()
            advice = "name an address of this machine for this worker, in the list of all workers"
            if error.errno == errno.EADDRINUSE:
                reason = "the address is in use"
                advice = "end the process that listens there, or use another port on all workers"
            elif error.errno == errno.EACCES:
                advice = "use a port of 1024 or above on all workers"
            raise JoinError(
                f"worker {rank} cannot listen on {address}: {reason}; {advice}"
            ) from None
        except (TypeError, ValueError) as error:  # a name that has no encoding
            raise JoinError(f"worker {rank} cannot listen on {address}: {error}") from None
