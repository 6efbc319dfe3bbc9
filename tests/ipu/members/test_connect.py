"""Transports are chosen by name (law: a missing extra is named)."""

from __future__ import annotations

import os
from contextlib import suppress

import pytest

from ipu.members.cluster import Cluster
from ipu.members.connect import connect, leaving
from ipu.members.local_transport import local_transports
from ipu.members.transport import Kind, Reason, StoppedError
from tests.ipu.members.processes import free_addresses


def test_threads_are_no_transport_between_processes():
    with pytest.raises(ValueError, match="transport='local' has its workers in one process"):
        connect(Cluster())


def test_grpc_is_silent_unless_it_was_asked(monkeypatch):
    pytest.importorskip("grpc", reason="grpcio is not installed; run: make test-distributed")
    pytest.importorskip("grpc_tools", reason="grpcio-tools is missing; run: make test-distributed")
    cluster = Cluster(addresses=(free_addresses(1)[0],), transport="grpc")
    for before, after in ((None, "NONE"), ("DEBUG", "DEBUG")):
        monkeypatch.delenv("GRPC_VERBOSITY", raising=False)
        if before is not None:
            monkeypatch.setenv("GRPC_VERBOSITY", before)
        connect(cluster).close()
        assert os.environ["GRPC_VERBOSITY"] == after


@pytest.mark.parametrize(
    ("error", "kind", "sentence"),
    [(ValueError("bad data\nmore"), Kind.FAILED, "worker 0 stopped: ValueError: bad data"),
     (KeyboardInterrupt(), Kind.INTERRUPTED, "worker 0 stopped: KeyboardInterrupt"),
     (SystemExit("no data"), Kind.FAILED, "worker 0 stopped: SystemExit: no data"),
     (SystemExit(0), Kind.GONE, "worker 0 is gone"),
     (None, Kind.GONE, "worker 0 is gone")],
)
def test_others_hear_why_a_worker_leaves(error, kind, sentence):
    first, second = local_transports(2)
    with suppress(BaseException), leaving(first):
        if error is not None:
            raise error
    with pytest.raises(StoppedError) as stop:
        second.receive(0)
    assert stop.value.reason == (kind, 0, sentence)


def test_a_stop_is_not_told_again():
    first, second = local_transports(2)
    second.abort(Reason(Kind.DAMAGED, 1, "a piece is damaged"))
    with pytest.raises(StoppedError, match="damaged"), leaving(first):
        first.receive(1)
    with pytest.raises(StoppedError, match="damaged"):
        second.receive(0)
