"""Launches: what is refused, what instances are told, and mpirun's command lines (golden)."""

from __future__ import annotations

import socket
import sys
from itertools import count, pairwise

import pytest

from ipu.frontends.popdist import launch as module
from ipu.frontends.popdist.launch import PoprunOptions, find_mpirun, free_ports

INSTANCE = [sys.executable, "-P", "-m", "ipu.frontends.popdist.instance"]


@pytest.mark.parametrize(
    ("choices", "message"),
    [({"instances": 0}, r"--num-instances 0: use 1 or more"),
     ({"replicas": 0}, r"--num-replicas 0: use 1 or more"),
     ({"ipus_per_replica": 0}, r"--ipus-per-replica 0"),
     ({"instances": 2, "replicas": 3}, r"--num-replicas 3 .* use a multiple of 2"),
     ({"timeout": 0.0}, r"--timeout 0: use seconds above 0"),
     ({"timeout": float("nan")}, r"--timeout nan: use seconds above 0"),
     ({"timeout": float("inf")}, r"--timeout inf: use seconds above 0"),
     ({"transport": "tcp"}, r"--transport tcp: use one of local, grpc, mpi"),
     ({"transport": "local", "instances": 2, "replicas": 2}, r"one process, not --num-instances 2"),
     ({"order": "any"}, r"order='any' is not an order"),
     ({"order": "recursive_doubling", "replicas": 3}, r"needs a power of two")],
)
def test_impossible_launches_are_refused(choices, message):
    with pytest.raises(ValueError, match=message):
        PoprunOptions(**choices)


def test_the_default_transport_is_the_vendors_for_several_processes():
    assert PoprunOptions(replicas=4).transport == "local"
    assert PoprunOptions(instances=2, replicas=4).transport == "mpi"


def test_instances_are_told_what_was_asked_for():
    launch = PoprunOptions(2, 6, 4, "grpc", order="tree", timeout=2.5)
    told = launch.environment
    assert told.pop("PYTHONPATH")
    assert told == {
        "POPDIST_NUM_TOTAL_REPLICAS": "6", "POPDIST_NUM_LOCAL_REPLICAS": "3",
        "POPDIST_NUM_INSTANCES": "2", "POPDIST_NUM_IPUS_PER_REPLICA": "4",
        "FPSIM_TRANSPORT": "grpc", "FPSIM_ORDER": "tree", "FPSIM_JOIN_TIMEOUT": "2.5",
    }
    assert "FPSIM_ORDER" not in PoprunOptions().environment
    assert "FPSIM_JOIN_TIMEOUT" not in PoprunOptions().environment


def test_a_users_own_path_comes_first(monkeypatch):
    monkeypatch.setenv("PYTHONPATH", "theirs")
    first, *_, last = PoprunOptions().environment["PYTHONPATH"].split(module.os.pathsep)
    assert first == "theirs"
    assert last == str(module._PATH)
    monkeypatch.setattr(module, "find_spec", lambda name: name)
    assert str(module._PATH) not in PoprunOptions().environment["PYTHONPATH"]


def test_python_files_and_fpsim_are_run_by_this_python():
    start = [sys.executable, "-P", "-m"]
    command = PoprunOptions().command(["train.py", "-x"])
    assert command == [*INSTANCE, sys.executable, "train.py", "-x"]
    assert PoprunOptions().command(["fpsim", "torch", "a.py"]) == [
        *INSTANCE, *start, "ipu.experiments.cli", "torch", "a.py",
    ]
    assert PoprunOptions().command(["echo", "a.py"]) == [*INSTANCE, "echo", "a.py"]


@pytest.fixture
def mpirun(tmp_path, monkeypatch):
    """Installs an mpirun that says it is of that library."""

    def install(library):
        path = tmp_path / "mpirun"
        path.write_text(f"#!/bin/sh\necho '{library}'\n")
        path.chmod(0o755)
        monkeypatch.setattr(module, "find_mpirun", lambda: str(path))
        return str(path)

    return install


def test_open_mpi_gets_its_own_options(mpirun):
    path = mpirun("mpirun (Open MPI) 5.0.11")
    launch = PoprunOptions(
        2, 2, transport="mpi", hosts="a,b", as_root=True, mpi_arguments=("--quiet",)
    )
    line = launch.mpirun(["echo"])
    assert line[:9] == [
        path, "--quiet", "-np", "2", "-H", "a,b", "--oversubscribe", "--allow-run-as-root", "-x",
    ]
    sent = {name for flag, name in pairwise(line) if flag == "-x"}
    assert sent == set(launch.environment)
    assert line[-5:] == [*INSTANCE, "echo"]
    assert "--allow-run-as-root" not in PoprunOptions(2, 2, transport="mpi").mpirun(["echo"])


def test_mpich_gets_none_of_them(mpirun):
    path = mpirun("HYDRA build details:")
    launch = PoprunOptions(2, 2, transport="mpi", hosts="a,b", as_root=True)
    assert launch.mpirun(["echo"]) == [path, "-np", "2", "-hosts", "a,b", *INSTANCE, "echo"]


def test_without_mpirun_a_sentence_says_what_to_install(monkeypatch, tmp_path):
    monkeypatch.setattr(module.sys, "executable", str(tmp_path / "python"))
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ValueError, match=r"needs mpirun .* or use --transport grpc"):
        find_mpirun()
    (tmp_path / "mpirun").touch(mode=0o755)
    assert find_mpirun() == str(tmp_path / "mpirun")


def test_more_instances_than_ports_are_refused_and_keep_none(monkeypatch):
    """A connection would block its port for a minute, for everybody on this computer."""
    sockets, connections, make = count(1), [], module.socket.socket

    def full():
        if next(sockets) > 5:
            raise OSError(24, "Too many open files")
        return make()

    monkeypatch.setattr(module.socket, "socket", full)
    monkeypatch.setattr(module.socket, "create_connection", connections.append)
    with pytest.raises(
        ValueError, match=r"--num-instances 9000: .*Too many open files.; use fewer"
    ):
        free_ports(9000)
    assert connections == []


def test_ports_differ_and_stay_free():
    """The system gives them to nobody else; an instance listens on them as gRPC does."""
    ports = free_ports(8)
    assert len(set(ports)) == 8
    for port in ports:
        with socket.socket() as listener:
            with pytest.raises(OSError, match="in use"):
                listener.bind(("127.0.0.1", port))
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(("127.0.0.1", port))
            listener.listen()
