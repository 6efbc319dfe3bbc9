"""What strangers send to a worker's port: it changes nothing (law), or is told (golden).

The workers are threads with servers of their own, as in `test_grpc_transport`.
"""

from __future__ import annotations

import ast
import os
import pickle
import random
import socket
import ssl
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest

pytest.importorskip("grpc", reason="grpcio is not installed; run: make test-distributed")
pytest.importorskip("grpc_tools", reason="grpcio-tools is missing; run: make test-distributed")

import grpc

from ipu.members.channel import Channel
from ipu.members.connect import connect
from ipu.members.grpc_server import messages, services, to_message
from ipu.members.grpc_transport import GrpcTransport
from ipu.members.handshake import Hello
from ipu.members.local_transport import run_local
from ipu.members.pieces import BYTES, Label, pack
from ipu.members.transport import JoinError, Kind, StoppedError
from tests.ipu.members import certificates
from tests.ipu.members.digesting import digests
from tests.ipu.members.test_grpc_transport import clusters, run

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
#: A frame of HTTP/2 whose header says 16 MiB, and one of settings before it.
LONG_FRAME = bytes(3) + b"\x04\0\0\0\0\0" + b"\xff\xff\xff\0\0\0\0\0\1"


TRAPPED: list[int] = []


def spring():
    """What reading a pickle of `Trap` does."""
    TRAPPED.append(1)


class Trap:
    """Its pickle leaves a trace where it is read."""

    def __reduce__(self):
        return spring, ()


RAW = {
    "garbage": random.Random(5).randbytes(1 << 16),
    "http": b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "long frame": PREFACE + LONG_FRAME + bytes(1 << 16),
    "half a preface": PREFACE[:7],
    "pickle": pickle.dumps(Trap()),
    "pickle in a frame": PREFACE + bytes(9) + pickle.dumps(Trap()),
}


def split(address):
    host, _, port = address.rpartition(":")
    return host, int(port)


def send_raw(address, content):
    """Send bytes and read what comes back, until the worker or a second ends it."""
    with suppress(OSError), socket.create_connection(split(address), timeout=1.0) as stream:
        stream.sendall(content)
        stream.shutdown(socket.SHUT_WR)
        while stream.recv(1 << 16):
            pass


def greet_with_tls(address):
    """The hello of TLS, sent to a port."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with suppress(OSError), socket.create_connection(split(address), timeout=1.0) as stream:
        context.wrap_socket(stream).close()


def call_as_stranger(address):
    """Calls of the protocol without a token, and calls that it has not."""
    long = messages.Hello(rank=1, size=2, plan="x" * (8 << 20))
    calls = []
    with grpc.insecure_channel(address, options=[("grpc.max_send_message_length", -1)]) as channel:
        stub = services.RingStub(channel)
        pieces = iter([messages.Piece(total=1 << 62, data=pickle.dumps(Trap()))])
        calls.append(lambda: stub.Join(long, timeout=5))
        calls.append(lambda: stub.Stream(pieces, metadata=[("token", "x" * 9000)], timeout=5))
        calls.append(lambda: stub.Abort(messages.Reason(kind="failed", text="no"), timeout=5))
        calls.append(lambda: list(stub.Watch(messages.Ack(), timeout=5)))
        join = channel.unary_unary("/fpsim.distributed.Ring/Join")
        calls.append(lambda: join(b"\xff", timeout=5))
        calls.append(lambda: channel.unary_unary("/other/Call")(b"", timeout=5))
        for call in calls:
            with pytest.raises(grpc.RpcError):
                call()


def attack(address):
    """All of it, while a hundred connections stay open."""
    with ExitStack() as held:
        for _ in range(100):
            held.enter_context(socket.create_connection(split(address), timeout=5.0))
        for content in RAW.values():
            send_raw(address, content)
        greet_with_tls(address)
        call_as_stranger(address)


def test_strangers_change_no_digest():
    """They come while the workers wait for each other, and between the trainings."""
    places = clusters(2)
    (complete,) = run_local(1, lambda t: list(digests(t, ["tree", "tf_ring"], 2, 1)))
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(connect, places[0], "seed: 1")
        while True:
            with suppress(OSError), socket.create_connection(split(places[0].addresses[0])):
                break
        attack(places[0].addresses[0])
        assert not first.done()
        second = pool.submit(connect, places[1], "seed: 1")
        transports = [first.result(), second.result()]

        def work(transport):
            rows = []
            for order in ("tree", "tf_ring"):
                if transport.rank == 0:
                    attack(places[0].addresses[0])
                    attack(places[1].addresses[1])
                rows += digests(transport, [order], 2, 1)
            return rows

        assert list(pool.map(work, transports)) == [complete] * 2
        list(pool.map(GrpcTransport.close, transports))
    assert not TRAPPED


def test_plain_bytes_do_not_disturb_workers_with_tls(tmp_path):
    pytest.importorskip("cryptography", reason="cryptography makes the certificates of this test")
    identity = certificates.worker(tmp_path, "worker", certificates.authority(tmp_path, "ca"), "ca")

    def work(transport):
        channel = Channel(transport)
        channel.barrier()
        if transport.rank == 0:
            for address in places[0].addresses:
                for content in RAW.values():
                    send_raw(address, content)
                greet_with_tls(address)
        return channel.gather(b"equal")

    places = clusters(2, tls=identity)
    assert run(places, work) == [[b"equal"] * 2] * 2


def resident():
    """Bytes of this process in memory."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="needs Linux's /proc")
def test_a_declared_length_is_not_allocated():
    """A worker that has joined begins a message of 2 GiB, and nothing more comes."""

    def work(transport):
        channel = Channel(transport)
        channel.barrier()
        if transport.rank == 1:
            transport.receive(0)
        address = places[0].addresses[0]
        (token,) = transport._callers
        transport._entered.clear()
        before = resident()
        pieces = iter([messages.Piece(total=transport.limit, data=b"x")])
        with grpc.insecure_channel(address) as channel_of_sender:
            stub = services.RingStub(channel_of_sender)
            stub.Stream(pieces, metadata=[("token", token)], timeout=20)
            growth = resident() - before
            pieces = iter([messages.Piece(total=1 << 62, data=b"x")])
            transport._entered.clear()
            stub.Stream(pieces, metadata=[("token", token)], timeout=20)
        with pytest.raises(StoppedError, match=f"a message of {1 << 62} bytes, at most {1 << 31}"):
            transport.receive(1)
        return growth

    places = clusters(2)
    growth, _ = run(places, work)
    assert growth < 1 << 26


PIECES = {
    "replayed": (lambda row: [row, row], "collective is 2, expected 3"),
    "of a later step": (lambda row: [_packed(step=5)], "step is 5, expected 0"),
    "of another collective": (lambda row: [_packed(collective=9)], "collective is 9, expected 2"),
    "of another format": (lambda row: [_packed(format="binary16")], "format is binary16, expected"),
    "pickled": (lambda row: [pickle.dumps(Trap())], "bytes are no piece of this protocol"),
    "empty": (lambda row: [b" "], "1 bytes are no piece of this protocol"),
    "cut short": (lambda row: [row[:-1]], "it is damaged"),
    "a bit wrong": (lambda row: [row[:-1] + bytes([row[-1] ^ 1])], "it is damaged"),
}


def _packed(**fields):
    return pack(Label(BYTES, 4, 0, 2)._replace(**fields), b"code")


@pytest.mark.parametrize("name", PIECES)
def test_a_wrong_piece_names_its_sender_everywhere(name):
    change, sentence = PIECES[name]

    def work(transport):
        channel = Channel(transport)
        channel.barrier()
        if transport.rank == 1:
            channel.begin()
            for message in change(_packed()):
                transport.send(0, message)
            while True:
                transport.receive(0)
        for _ in range(2):
            channel.gather(b"code", "the losses")
        return

    places = clusters(2)
    for error in run(places, work):
        assert isinstance(error, StoppedError)
        assert error.reason.kind is Kind.DAMAGED
        start = f"worker 1 at {places[1].addresses[1]} sent a wrong piece of the losses: "
        assert str(error).startswith(start)
        assert sentence in str(error)
    assert not TRAPPED


@pytest.mark.parametrize("protocol", [0, 2, (1 << 32) - 1])
def test_another_protocol_is_told_on_both_sides(protocol):
    first, _ = clusters(2)
    with ThreadPoolExecutor(1) as pool:
        joining = pool.submit(connect, first, "seed: 1")
        with grpc.insecure_channel(first.addresses[0]) as channel:
            hello = to_message(Hello(1, 2, "seed: 1", protocol))
            join = services.RingStub(channel).Join
            welcome = join(hello, timeout=20, wait_for_ready=True)
        error = joining.exception(30)
    assert isinstance(error, JoinError)
    assert f"protocol: {protocol}" in welcome.refusal
    assert f"protocol: {protocol}" in str(error)
    assert not welcome.token


def test_what_a_stranger_says_reaches_no_terminal():
    """A plan with control characters is shown without them."""
    first, _ = clusters(2)
    with ThreadPoolExecutor(1) as pool:
        joining = pool.submit(connect, first, "seed: 1")
        with grpc.insecure_channel(first.addresses[0]) as channel:
            hello = to_message(Hello(1, 2, "seed: \x1b]0;owned\x07\x1b[2J"))
            services.RingStub(channel).Join(hello, timeout=20, wait_for_ready=True)
        error = joining.exception(30)
    assert isinstance(error, JoinError)
    assert str(error).isprintable()


def test_calls_that_never_say_anything_keep_nobody_out():
    """240 calls over four connections, open while the workers join and leave."""
    places, stop = clusters(2, join_timeout=30.0), threading.Event()
    address, options = places[0].addresses[0], [("grpc.use_local_subchannel_pool", 1)]

    def nothing():
        stop.wait()
        yield from ()

    with ThreadPoolExecutor(2) as pool, ExitStack() as held:
        first = GrpcTransport(places[0], "seed: 1")
        joining, calls = pool.submit(first.join), []
        for _ in range(4):
            channel = held.enter_context(grpc.insecure_channel(address, options=options))
            grpc.channel_ready_future(channel).result(30)
            for method in ("Join", "Abort", "Stream") * 20:
                call = channel.stream_unary(f"/fpsim.distributed.Ring/{method}")
                calls.append(call.future(nothing()))  # what nobody holds is cancelled
        try:
            while servers() < 12:
                time.sleep(0.01)
            transports = [first, pool.submit(connect, places[1], "seed: 1").result()]
            joining.result()
            gathered = pool.map(lambda t: Channel(t).gather(b"equal"), transports)
            assert list(gathered) == [[b"equal"] * 2] * 2
            list(pool.map(GrpcTransport.close, transports))
        finally:
            stop.set()


def servers():
    """Threads of servers in this process."""
    return sum(thread.name.startswith("grpc_") for thread in threading.enumerate())


def test_nothing_is_unpickled():
    """No module of the workers knows pickles, nor a function that reads them unasked."""
    room = Path(__file__).parents[3] / "ipu" / "distributed"
    for path in sorted(room.glob("*.py")):
        names = {
            alias.name.partition(".")[0]
            for node in ast.walk(ast.parse(path.read_text()))
            if isinstance(node, ast.Import | ast.ImportFrom)
            for alias in [*node.names, ast.alias(getattr(node, "module", None) or "")]
        }
        assert not names & {"pickle", "cloudpickle", "dill", "marshal", "shelve"}, path
