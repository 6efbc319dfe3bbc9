"""Transports are chosen by name (law: a missing extra is named)."""

from __future__ import annotations

import os

import pytest

from ipu.distributed.cluster import Cluster
from ipu.distributed.connect import connect
from tests.ipu.distributed.processes import free_addresses


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
