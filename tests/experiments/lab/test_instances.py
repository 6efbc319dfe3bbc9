"""Functions in several processes: what each returns, in their order, over gRPC and MPI (law)."""

from __future__ import annotations

import os

import pytest

from ipu.experiments.lab import instances
from ipu.experiments.lab.instances import run_instances, why_not
from ipu.installation import how_to_install
from ipu.members.channel import Channel
from ipu.members.connect import connect


def told(cluster, word):
    """Everybody's rank and process number, as each has heard them."""
    transport = connect(cluster, "test")
    try:
        rows = Channel(transport).gather(f"{word}{cluster.rank} {os.getpid()}".encode())
        return [row.decode() for row in rows]
    finally:
        transport.close()


def fails(cluster):
    if cluster.rank:
        raise ValueError("no")
    return 0


@pytest.fixture(autouse=True)
def as_any_user(monkeypatch):
    """Open MPI runs as root where it is told to."""
    monkeypatch.setenv("OMPI_ALLOW_RUN_AS_ROOT", "1")
    monkeypatch.setenv("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1")


def usable(transport):
    reason = why_not(transport)
    if reason:
        pytest.skip(f"{reason}; or run: make test-distributed")


@pytest.mark.parametrize("transport", instances.TRANSPORTS)
def test_each_process_returns_what_it_has_heard(transport):
    usable(transport)
    first, second = run_instances(told, 2, transport, word="w")
    assert first == second
    (one, pid), (other, other_pid) = (text.split() for text in first)
    assert (one, other) == ("w0", "w1")
    assert len({pid, other_pid, str(os.getpid())}) == 3


def test_a_process_that_fails_is_an_error(capfd):
    usable("grpc")
    with pytest.raises(RuntimeError, match=r"fails in 2 processes over grpc ended with 1$"):
        run_instances(fails, 2, "grpc")
    assert "[1] ValueError: no" in capfd.readouterr().err


def test_why_a_transport_cannot_be_used(monkeypatch):
    monkeypatch.setattr(instances, "find_spec", lambda name: None)
    assert why_not("mpi") == f"MPI is not installed; {how_to_install('mpi')}"
    monkeypatch.setattr(instances, "find_spec", lambda name: name)
    monkeypatch.setattr(instances, "find_mpirun", lambda: "mpirun")
    monkeypatch.setattr(instances.os, "geteuid", lambda: 0)
    monkeypatch.delenv("OMPI_ALLOW_RUN_AS_ROOT", raising=False)
    assert why_not("mpi").startswith("Open MPI does not run as root; set OMPI_ALLOW_RUN_AS_ROOT=1")
    monkeypatch.setenv("OMPI_ALLOW_RUN_AS_ROOT", "1")
    monkeypatch.setenv("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1")
    assert not why_not("mpi")
