"""What a worker's server hears (law: records survive the messages of the protocol)."""

from __future__ import annotations

import pytest

pytest.importorskip("grpc", reason="grpcio is not installed; run: make test-distributed")
pytest.importorskip("grpc_tools", reason="grpcio-tools is missing; run: make test-distributed")

from ipu.members.cluster import Cluster, Tls
from ipu.members.grpc_server import MESSAGE, PIECE, from_message, messages, serve, to_message
from ipu.members.handshake import Hello
from ipu.members.transport import JoinError
from tests.ipu.members.processes import free_addresses


def test_a_hello_survives_its_message():
    hello = Hello(3, 7, "seed: ×\norder: tree", 2, "1.2")
    message = messages.Hello.FromString(to_message(hello).SerializeToString())
    assert from_message(message) == hello


def test_a_piece_fits_its_message():
    piece = messages.Piece(total=1 << 31, data=bytes(PIECE))
    assert len(piece.SerializeToString()) <= MESSAGE


def test_an_address_of_another_machine_cannot_be_listened_on():
    cluster = Cluster(0, 1, 1, ("192.0.2.1:3737",), "grpc", trust_network=True)
    with pytest.raises(
        JoinError, match=r"worker 0 cannot listen on 192\.0\.2\.1:3737: cannot .*; name"
    ):
        serve(cluster, None)


def test_a_name_that_no_machine_can_have_is_told():
    cluster = Cluster(0, 1, 1, ("ü" * 300 + ":3737",), "grpc", trust_network=True)
    with pytest.raises(JoinError, match=r"worker 0 cannot listen on ü+:3737: "):
        serve(cluster, None)


def test_a_certificate_that_is_none_is_named(tmp_path, capfd):
    """gRPC says only that it cannot listen, which is not the port's fault."""
    path = tmp_path / "text"
    path.write_text("no certificate")
    (address,) = free_addresses(1)
    cluster = Cluster(0, 1, 1, (address,), "grpc", tls=Tls(path, path, path))
    with pytest.raises(JoinError, match="FPSIM_TLS_KEY must be PEM files"):
        serve(cluster, None)
