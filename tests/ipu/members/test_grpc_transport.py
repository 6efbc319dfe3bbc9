"""Workers over gRPC on loopback (law: messages arrive in order; joining is checked on both sides).

Here the workers are threads, each with a server of its own; `test_failures` has processes.
"""

from __future__ import annotations

import gc
import re
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

pytest.importorskip("grpc", reason="grpcio is not installed; run: make test-distributed")
pytest.importorskip("grpc_tools", reason="grpcio-tools is missing; run: make test-distributed")

import grpc

from ipu.members import grpc_transport
from ipu.members.channel import Channel
from ipu.members.cluster import Cluster
from ipu.members.connect import connect, leaving
from ipu.members.grpc_server import PIECE
from ipu.members.grpc_transport import GrpcTransport, hello_of
from ipu.members.handshake import Hello
from ipu.members.transport import JoinError, Kind, Reason, StoppedError
from tests.ipu.members import certificates
from tests.ipu.members.processes import free_addresses


def clusters(size, **choices):
    addresses = tuple(free_addresses(size))
    settings = {"join_timeout": 20.0} | choices
    return [Cluster(r, size, size, addresses, "grpc", **settings) for r in range(size)]


def run(places, work, plans=None):
    """What work returns, or the error it ends with, on every worker."""
    plans = plans or ["seed: 1"] * len(places)

    def one(cluster):
        try:
            transport = connect(cluster, plans[cluster.rank])
        except JoinError as error:
            return error
        try:
            return work(transport)
        except StoppedError as error:
            return error
        finally:
            transport.close()

    with ThreadPoolExecutor(len(places)) as pool:
        return list(pool.map(one, places))


@pytest.mark.parametrize("size", [1, 3])
def test_messages_of_any_length_arrive_in_order(size):
    lengths = [1, 0 + PIECE, PIECE + 1, 3 * PIECE - 1, 7]

    def work(transport):
        channel = Channel(transport)
        return [channel.gather(bytes([transport.rank]) * length) for length in lengths]

    wanted = [[bytes([rank]) * length for rank in range(size)] for length in lengths]
    assert run(clusters(size), work) == [wanted] * size


def test_a_worker_of_another_plan_is_told_with_both_values_on_both_sides():
    first, second = run(clusters(2), Channel.barrier, ["seed: 1", "seed: 2"])
    for error, (mine, other) in ((first, "12"), (second, "21")):
        assert isinstance(error, JoinError)
        assert f"has seed: {mine}, " in str(error)
        assert f" has seed: {other}; start all workers alike" in str(error)


def test_a_refusal_ends_the_wait_of_those_who_are_equal():
    """The third worker has nothing to do with the difference, and hears of it at once."""
    start = time.monotonic()
    errors = run(clusters(3, join_timeout=60.0), Channel.barrier, ["a: 1", "a: 2", "a: 1"])
    assert time.monotonic() - start < 30
    assert all(isinstance(error, JoinError) for error in errors)
    assert all("has a: " in str(error) for error in errors)


def test_a_worker_of_another_version_is_told_with_both_values(monkeypatch):
    places = clusters(2)

    def hello(rank, size, plan):
        return Hello(rank, size, plan, version="9.9" if rank else "1.0")

    monkeypatch.setattr(grpc_transport, "Hello", hello)
    for error in run(places, Channel.barrier):
        assert isinstance(error, JoinError)
        assert "fpsim version: 9.9" in str(error)
        assert "fpsim version: 1.0" in str(error)


def test_a_worker_of_another_size_is_told_with_both_values():
    first, second = clusters(2)
    more = replace(second, size=3, replicas=3, rank=1, addresses=(*second.addresses, "[::1]:9"))
    for error in run([first, more], Channel.barrier):
        assert isinstance(error, JoinError)
        assert "number of workers: 2" in str(error)
        assert "number of workers: 3" in str(error)


def test_a_missing_worker_is_named_after_the_timeout():
    first, second = clusters(2, join_timeout=0.5)
    start = time.monotonic()
    (error,) = run([first], Channel.barrier)
    assert time.monotonic() - start < 0.5 + 1
    assert str(error) == (
        f"worker 1 at {second.addresses[1]} did not answer within 0.5 s; start it, or correct "
        "TF_CONFIG"
    )


def test_a_late_worker_is_waited_for():
    first, second = clusters(2)
    late = threading.Event()

    def work(transport):
        return Channel(transport).gather(bytes([transport.rank]))

    with ThreadPoolExecutor(2) as pool:
        early = pool.submit(run, [first], work)
        late.wait(0.7)
        assert not early.done()
        assert run([second], work, ["", "seed: 1"]) == early.result() == [[b"\0", b"\1"]]


def test_a_port_that_is_taken_is_named():
    (cluster,) = clusters(1)
    transport = grpc_transport.GrpcTransport(cluster)
    try:
        sentence = f"cannot listen on {cluster.addresses[0]}: the address is in use; end the"
        with pytest.raises(JoinError, match=f"^worker 0 {sentence} process"):
            connect(cluster)
    finally:
        transport.close()


def aborts(transport):
    Channel(transport).barrier()
    if transport.rank == 1:
        transport.abort(Reason(Kind.FAILED, 1, "worker 1 has a reason"))
    transport.receive(0 if transport.rank else 2)


def test_an_abort_ends_the_wait_of_everybody():
    for error in run(clusters(3), aborts):
        assert isinstance(error, StoppedError)
        assert error.reason == (Kind.FAILED, 1, "worker 1 has a reason")


def test_a_message_beyond_the_limit_is_refused():
    def work(transport):
        transport.limit = 1000
        Channel(transport).barrier()
        if transport.rank == 0:
            transport.send(1, bytes(1001))
        transport.receive(1 - transport.rank)

    for error in run(clusters(2), work):
        assert error.reason[:2] == (Kind.DAMAGED, 0)
        assert "sent a message of 1001 bytes, at most 1000 are expected" in error.reason.text


def test_strangers_are_refused():
    from ipu.members.grpc_server import messages, services, to_message

    def refused(call, *arguments, **choices):
        with pytest.raises(grpc.RpcError) as error:
            list(call(*arguments, **choices, timeout=5))
        return error.value.code() is grpc.StatusCode.PERMISSION_DENIED

    def work(transport):
        if transport.rank:
            return Channel(transport).barrier()
        address = transport.describe(0).rpartition(" ")[2]
        with grpc.insecure_channel(address) as channel:
            stub = services.RingStub(channel)
            welcome = stub.Join(to_message(Hello(7, 2, "seed: 1")))
            assert (welcome.token, welcome.refusal) == (
                "", "worker 7 is not one of the 1 others here"
            )
            assert refused(stub.Watch, messages.Ack())
            assert refused(stub.Watch, messages.Ack(), metadata=[("token", "0" * 32)])
            reason = messages.Reason(kind="failed", rank=0, text="a stranger's")
            with pytest.raises(grpc.RpcError):
                stub.Abort(reason, timeout=5)
            with pytest.raises(grpc.RpcError):
                stub.Stream(iter([messages.Piece(total=1, data=b"x")]), timeout=5)
        return Channel(transport).barrier()

    assert run(clusters(2), work) == [None, None]


def test_an_interrupt_while_workers_join_is_told_in_a_sentence(monkeypatch):
    """Worker 0 waits for a third one; the second, interrupted, leaves."""
    places, check = clusters(3), GrpcTransport._check_join

    def interrupted(transport):
        if transport.rank == 1 and 0 in transport._tokens:
            raise KeyboardInterrupt
        check(transport)

    monkeypatch.setattr(GrpcTransport, "_check_join", interrupted)
    with ThreadPoolExecutor(2) as pool:
        first, second = (pool.submit(connect, cluster, "seed: 1") for cluster in places[:2])
        assert isinstance(second.exception(30), KeyboardInterrupt)
        error = first.exception(30)
    assert str(error) == f"worker 1 at {places[1].addresses[1]} ended before all had joined"


def test_a_second_training_does_not_disturb_one_that_has_begun():
    """A worker of other settings, or of equal ones, that comes in the place of one that trains."""
    from ipu.members.grpc_server import messages, services, to_message

    def work(transport):
        channel = Channel(transport)
        channel.barrier()
        if not transport.rank:
            address = transport.describe(0).rpartition(" ")[2]
            with grpc.insecure_channel(address) as stranger:
                stub = services.RingStub(stranger)
                for plan in ("seed: 1", "seed: 2"):
                    welcome = stub.Join(to_message(Hello(1, 2, plan)), timeout=5)
                    assert not welcome.token
                    assert " trains with another worker 1 already; end " in welcome.refusal
                (peer_token,) = (token for token, rank in transport._callers.items() if rank == 1)
                token = [("token", peer_token)]
                with pytest.raises(grpc.RpcError) as error:
                    stub.Stream(iter([messages.Piece()]), metadata=token, timeout=5)
                assert error.value.code() is grpc.StatusCode.ALREADY_EXISTS
        return channel.barrier()

    assert run(clusters(2), work) == [None, None]


def test_a_worker_that_ends_while_others_join_is_named_at_once():
    """Worker 2 never comes; the join timeout is far away."""
    places = clusters(3, join_timeout=60.0)
    start = time.monotonic()
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(connect, places[0], "seed: 1")
        second = GrpcTransport(places[1], "seed: 1")
        joining = pool.submit(second.join)
        while 1 not in second._callers.values() and 0 not in second._tokens:
            time.sleep(0.01)
        while not second._watchers:
            time.sleep(0.01)
        second._server.stop(0).wait()  # as the system does with the connections of a killed one
        error = first.exception(30)
        assert isinstance(joining.exception(30), JoinError)
        second.close()
    assert time.monotonic() - start < 30
    assert str(error) == (
        f"worker 1 at {places[1].addresses[1]} is gone before all workers had joined"
    )


def test_a_worker_that_ends_before_it_has_answered_is_named_at_once():
    """It has said Hello, and its own server has not been reached."""
    from ipu.members.grpc_server import messages, services, to_message

    first, second = clusters(2, join_timeout=60.0)
    with ThreadPoolExecutor(1) as pool:
        joining = pool.submit(connect, first, "seed: 1")
        with grpc.insecure_channel(first.addresses[0]) as channel:
            stub = services.RingStub(channel)
            hello = to_message(hello_of(second, "seed: 1"))
            welcome = stub.Join(hello, timeout=20, wait_for_ready=True)
            beats = stub.Watch(messages.Ack(), metadata=[("token", welcome.token)])
            next(beats)
        error = joining.exception(30)
    assert str(error) == f"worker 1 at {second.addresses[1]} is gone before all workers had joined"


def test_the_last_messages_arrive_however_late(monkeypatch):
    """The receiver takes them long after the sender has begun to leave."""
    monkeypatch.setattr(grpc_transport, "GRACE", 0.1)
    leaving, arrived = threading.Event(), GrpcTransport.arrived

    def late(transport, sender, message):
        if message == b"last":
            leaving.wait(20)
            time.sleep(1.0)
        arrived(transport, sender, message)

    monkeypatch.setattr(GrpcTransport, "arrived", late)

    def work(transport):
        Channel(transport).barrier()
        if transport.rank:
            return transport.receive(0)
        transport.send(1, b"last")
        leaving.set()
        return None

    assert run(clusters(2), work) == [None, b"last"]


def finishes(transport):
    Channel(transport).barrier()


@pytest.fixture
def without_collector():
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@pytest.mark.parametrize("work", [finishes, aborts])
@pytest.mark.usefixtures("without_collector")
def test_no_call_and_no_thread_that_reads_one_outlives_its_worker(work):
    """The end of the interpreter may wait for the lock of a call that is left; see `close`."""
    others = set(threading.enumerate())
    run(clusters(3), work)
    assert not [item for item in gc.get_objects() if issubclass(type(item), grpc.Call)]
    left = [thread for thread in threading.enumerate() if thread not in others]
    assert [left_over.name for left_over in left if "_follow" in left_over.name] == []


def test_one_of_two_workers_in_one_place_is_told():
    """It has another list of workers, so nobody else sees it; the training goes on."""
    places = clusters(2)
    address = clusters(2)[1].addresses[1]
    third = replace(places[1], addresses=(places[0].addresses[0], address), join_timeout=5.0)
    joined, done = threading.Event(), threading.Event()

    def work(transport):
        channel = Channel(transport)
        channel.barrier()
        joined.set()
        done.wait(30)
        return channel.gather(b"equal")

    with ThreadPoolExecutor(2) as pool:
        training = pool.submit(run, places, work)
        assert joined.wait(30)
        with pytest.raises(JoinError, match="trains with another worker 1 already; end that"):
            connect(third, "seed: 1")
        done.set()
        assert training.result() == [[b"equal"] * 2] * 2


def test_one_of_two_workers_that_join_in_one_place_is_told():
    """Both were welcome; the second has the place, and the first does not wait for ever."""
    places = clusters(2)
    stranger = replace(places[1], addresses=(places[0].addresses[0], clusters(1)[0].addresses[0]))
    early = GrpcTransport(stranger, "seed: 1")
    early.hello = hello_of(places[1], "seed: 1")
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(connect, places[0], "seed: 1")
        waiting = early._stubs[0].Join(
            grpc_transport.to_message(early.hello), timeout=20, wait_for_ready=True
        )
        early._tokens[0] = waiting.token
        second = pool.submit(connect, places[1], "seed: 1")
        training = [joined.result(30) for joined in (first, second)]
        early._open(0)
        with pytest.raises(StoppedError, match="has another worker 1 already; start each worker"):
            early.receive(0)
        early.close()
        gathered = pool.map(lambda t: Channel(t).gather(b"equal"), training)
        assert list(gathered) == [[b"equal"] * 2] * 2
        list(pool.map(GrpcTransport.close, training))


# Mutual TLS ---------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def tls(tmp_path_factory):
    pytest.importorskip("cryptography", reason="cryptography makes the certificates of this test")
    folder = tmp_path_factory.mktemp("tls")
    authority, foreign = (certificates.authority(folder, name) for name in ("ca", "foreign"))
    return {
        "own": certificates.worker(folder, "worker", authority, "ca"),
        "foreign": certificates.worker(folder, "stranger", foreign, "foreign"),
        "expired": certificates.worker(folder, "late", authority, "ca", days=-1),
        "elsewhere": certificates.worker(folder, "elsewhere", authority, "ca", host="192.0.2.1"),
        "plain": None,
    }


def test_workers_of_one_authority_train_together(tls):
    def work(transport):
        return Channel(transport).gather(bytes(2 * PIECE))

    assert run(clusters(2, tls=tls["own"]), work) == [[bytes(2 * PIECE)] * 2] * 2


_BOTH = "set FPSIM_TLS_CA, FPSIM_TLS_CERT and FPSIM_TLS_KEY on all workers, or on none"
#: What the first worker, whose files are well, and the second one say, behind the other's name.
TLS_TROUBLE = {
    "foreign": (r" has a certificate that FPSIM_TLS_CA='.*ca.pem' does not allow: .*issuer.*; give",
                r" has a certificate that FPSIM_TLS_CA='.*foreign.pem' does not allow: .*issuer"),
    "expired": (" has a certificate that .* does not allow: certificate has expired; give all",
                r" does not allow this worker's certificate FPSIM_TLS_CERT='.*late.pem': it ends"),
    "elsewhere": (" has a certificate that .* does not allow: IP address mismatch.*'127.0.0.1'",
                  None),
    "plain": (f" speaks without TLS; {_BOTH}", f" speaks TLS and this worker does not; {_BOTH}"),
}


@pytest.mark.parametrize("other", TLS_TROUBLE)
def test_trouble_with_certificates_is_named_on_both_sides(tls, other):
    first, second = clusters(2, join_timeout=60.0)
    first, second = replace(first, tls=tls["own"]), replace(second, tls=tls[other])
    start = time.monotonic()
    errors = run([first, second], lambda transport: Channel(transport).barrier())
    assert time.monotonic() - start < 60
    for error, cluster, sentence in zip(errors, (second, first), TLS_TROUBLE[other], strict=True):
        if sentence is None:  # all is well on this side, and the other one tells it
            assert str(error) == str(errors[0])
            continue
        assert isinstance(error, JoinError)
        name = f"worker {cluster.rank} at {cluster.addresses[cluster.rank]}"
        assert re.match(name + sentence, str(error)), str(error)


def test_an_absent_worker_with_certificates_is_told_as_absent(tls):
    first, _ = clusters(2, join_timeout=1.5, tls=tls["own"])
    (error,) = run([first], Channel.barrier)
    assert "did not answer within 1.5 s" in str(error)


def test_lists_of_addresses_that_differ_are_told_on_both_sides():
    first, second = clusters(2)
    other = first.addresses[0].replace("127.0.0.1", "localhost")
    second = replace(second, addresses=(other, second.addresses[1]))
    for error in run([first, second], Channel.barrier):
        assert isinstance(error, JoinError)
        for address in (first.addresses[0], other):
            assert f" has address of worker 0: {address}" in str(error)
        assert "start all workers alike" in str(error)


@pytest.mark.parametrize("kind", [Kind.GONE, Kind.SILENT])
def test_a_worker_that_is_given_up_does_not_read_that_it_is_gone(kind):
    """It hears of it from the others, in other words than they have."""

    def work(transport):
        channel = Channel(transport)
        channel.barrier()
        if transport.rank == 0:
            text = f"{transport.describe(1)} is {kind.value}"
            transport.health.stop(Reason(kind, 1, text), tell=False)
        channel.barrier()

    first, second = run(clusters(2), work)
    assert re.fullmatch(rf"worker 1 at \S+ is {kind.value}", str(first))
    assert re.fullmatch(
        r"the other workers have given up this one, worker 1 at \S+: it was cut off from them, or "
        "stood still", str(second),
    )


def test_a_worker_whose_code_raises_is_not_told_as_finished():
    places = clusters(2)

    def one(cluster):
        with leaving(connect(cluster, "seed: 1")) as transport:
            channel = Channel(transport)
            channel.barrier()
            if transport.rank == 1:
                raise KeyError("theirs")
            transport.receive(1)

    with ThreadPoolExecutor(2) as pool:
        errors = [ended.exception(60) for ended in [pool.submit(one, c) for c in places]]
    name = f"worker 1 at {places[1].addresses[1]}"
    assert str(errors[0]) == f"{name} stopped: KeyError: 'theirs'"
    assert isinstance(errors[1], KeyError)


def test_a_client_without_a_key_is_not_heard(tls):
    from ipu.members.grpc_server import services, to_message

    (cluster,) = clusters(1, tls=tls["own"])
    transport = grpc_transport.GrpcTransport(cluster)
    try:
        credentials = grpc.ssl_channel_credentials(tls["own"].ca.read_bytes())
        with (
            grpc.secure_channel(cluster.addresses[0], credentials) as channel,
            pytest.raises(grpc.RpcError) as error,
        ):
            services.RingStub(channel).Join(to_message(Hello(0, 1)), timeout=2)
        assert error.value.code() is grpc.StatusCode.UNAVAILABLE
    finally:
        transport.close()
