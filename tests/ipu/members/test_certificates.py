"""What a look at an address says (golden); workers that differ are in `test_grpc_transport`."""

from __future__ import annotations

import socket
import ssl
import threading
from contextlib import contextmanager

import pytest

from ipu.members.certificates import trouble

pytest.importorskip("cryptography", reason="cryptography makes the certificates of this test")

from tests.ipu.members import certificates


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tls")
    authority, foreign = (certificates.authority(folder, name) for name in ("ca", "foreign"))
    return {
        "own": certificates.worker(folder, "worker", authority, "ca"),
        "foreign": certificates.worker(folder, "stranger", foreign, "foreign"),
    }


@contextmanager
def server(answer):
    """An address where one connection is answered."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def run():
            with listener.accept()[0] as connection:
                connection.settimeout(30)
                answer(connection)

        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        yield f"127.0.0.1:{listener.getsockname()[1]}"
        thread.join(60)


def secure(tls, authority):
    """A server of TLS that asks for certificates of an authority, and tells alerts."""

    def answer(connection):
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(tls.cert, tls.key)
        context.load_verify_locations(authority)
        context.verify_mode = ssl.CERT_REQUIRED
        try:
            with context.wrap_socket(connection, server_side=True) as inside:
                inside.sendall(b"settings")
                inside.recv(1)
        except OSError:
            pass

    return answer


def test_nothing_is_wrong_with_a_worker_of_the_same_authority(files):
    with server(secure(files["own"], files["own"].ca)) as address:
        assert trouble(address, "worker 1", files["own"]) is None


def test_an_alert_names_our_certificate(files):
    with server(secure(files["own"], files["foreign"].ca)) as address:
        sentence = trouble(address, "worker 1", files["own"])
    start = "worker 1 does not allow this worker's certificate FPSIM_TLS_CERT='"
    assert sentence.startswith(start)
    assert "worker.pem': tlsv1 unknown ca" in sentence or "unknown ca" in sentence
    assert "key" not in sentence.removeprefix(start)


def test_another_authority_is_named_with_ours(files):
    with server(secure(files["foreign"], files["own"].ca)) as address:
        sentence = trouble(address, "worker 1", files["own"])
    assert sentence.startswith("worker 1 has a certificate that FPSIM_TLS_CA='")
    assert "ca.pem' does not allow: unable to get local issuer certificate; " in sentence


def test_plain_text_is_told(files):
    with server(lambda connection: connection.sendall(b"PRI * HTTP/2.0 and more")) as address:
        sentence = trouble(address, "worker 1", files["own"])
    assert sentence.startswith("worker 1 speaks without TLS; set FPSIM_TLS_CA, ")


def test_tls_is_told_to_one_that_has_none(files):
    with server(secure(files["own"], files["own"].ca)) as address:
        sentence = trouble(address, "worker 1", None)
    assert sentence.startswith("worker 1 speaks TLS and this worker does not; set FPSIM_TLS_CA, ")
    with server(lambda connection: connection.sendall(b"PRI * HTTP/2.0 and more")) as address:
        assert trouble(address, "worker 1", None) is None


def test_an_address_that_is_silent_is_no_trouble(files):
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = f"127.0.0.1:{listener.getsockname()[1]}"
    assert trouble(address, "worker 1", files["own"]) is None
    assert trouble(address, "worker 1", None) is None
