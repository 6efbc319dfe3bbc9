"""What a worker's server hears (law: records survive the messages of the protocol)."""

from __future__ import annotations

import pytest

pytest.importorskip("grpc", reason="grpcio is not installed; run: make test-distributed")
pytest.importorskip("grpc_tools", reason="grpcio-tools is missing; run: make test-distributed")

from ipu.distributed.cluster import Cluster
from ipu.distributed.grpc_server import MESSAGE, PIECE, from_message, messages, serve, to_message
from ipu.distributed.handshake import Hello
from ipu.distributed.transport import JoinError


def test_a_hello_survives_its_message():
    hello = Hello(3, 7, "seed: ×\norder: tree", 2, "1.2")
    message = messages.Hello.FromString(to_message(hello).SerializeToString())
    assert from_message(message) == hello


def test_a_piece_fits_its_message():
    piece = messages.Piece(total=1 << 31, data=bytes(PIECE))
    assert len(piece.SerializeToString()) <= MESSAGE


def test_an_address_of_another_machine_cannot_be_listened_on():
    cluster = Cluster(0, 1, 1, ("192.0.2.1:3737",), "grpc", trust_network=True)
    with pytest.raises(JoinError, match=r"worker 0 cannot listen on 192\.0\.2\.1:3737: cannot"):
        serve(cluster, None)
