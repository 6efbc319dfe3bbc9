"""Instances that do not come to the others are named, and nobody is left (golden)."""

from __future__ import annotations

import os
import sys
import time
from importlib.util import find_spec
from pathlib import Path

import pytest

from ipu.frontends.popdist import arriving
from ipu.frontends.popdist.arriving import Arrivals
from ipu.frontends.popdist.launch import JOIN_TIMEOUT, PoprunOptions
from ipu.frontends.popdist.processes import run
from ipu.members.arrival import ArrivalStage
from ipu.members.cluster import Cluster

full = pytest.mark.tier("full")

# What is said ---------------------------------------------------------------------------------


@pytest.fixture
def clock(monkeypatch):
    """Seconds that pass when a test says so."""
    now = [100.0]
    monkeypatch.setattr(arriving.time, "monotonic", lambda: now[0])
    return now


def told(folder, **stages):
    """Instances in their stages: i1=[STARTED, JOINS]."""
    for name, row in stages.items():
        for stage in row:
            (folder / f"{name[1:]}.{ArrivalStage[stage].value}").touch()


def after(arrivals, clock, seconds):
    """What is said then; nothing is before."""
    assert arrivals.missing() is None
    clock[0] += seconds - 0.1
    assert arrivals.missing() is None
    clock[0] += 0.2
    return arrivals.missing()


@pytest.mark.parametrize(("stage", "margin"), [("STARTS_MPI", 0), ("JOINS", arriving.MARGIN)])
def test_one_that_is_behind_is_named_after_the_timeout(tmp_path, clock, stage, margin):
    told(tmp_path, i0=["STARTED", stage], i1=["STARTED"], i2=["STARTED", stage])
    sentence = after(Arrivals(tmp_path, 3, 7), clock, 7 + margin)
    assert sentence.startswith("instance 1 did not join the others within 7 s; look at what")


def test_a_wait_that_ends_is_not_counted(tmp_path, clock):
    arrivals = Arrivals(tmp_path, 2, 7)
    told(tmp_path, i0=["STARTS_MPI"], i1=["STARTED"])
    assert arrivals.missing() is None
    clock[0] += 6
    told(tmp_path, i0=["HAS_MPI"], i1=["STARTS_MPI", "HAS_MPI"])
    assert arrivals.missing() is None
    clock[0] += 1000
    assert arrivals.missing() is None, "both compute"
    told(tmp_path, i0=["JOINS", "HAS_JOINED"], i1=["JOINS"])
    assert "instances 0, 1 have waited" in after(arrivals, clock, 7 + arriving.MARGIN)


def test_one_that_has_ended_is_named_at_once(tmp_path, clock):
    told(tmp_path, i0=["STARTED", "JOINS"], i1=["STARTED", "ENDED"])
    sentence = after(Arrivals(tmp_path, 2, 60), clock, arriving.SETTLE)
    assert sentence.startswith("instance 1 ended before joining the others, which wait in vain")


@pytest.mark.parametrize(
    "stages",
    [{"i0": ["STARTED"], "i1": ["STARTED", "ENDED"]},
     {"i0": ["JOINS", "GAVE_UP"], "i1": ["STARTED"]},
     {"i0": ["JOINS", "HAS_JOINED"], "i1": ["JOINS", "HAS_JOINED", "ENDED"]},
     {"i0": ["STARTS_MPI", "ENDED"], "i1": ["STARTED"]}],
    ids=["programs that do not join", "one that gave up", "all have joined", "one that was ended"],
)
def test_nobody_waits(tmp_path, clock, stages):
    told(tmp_path, **stages)
    arrivals = Arrivals(tmp_path, 2, 7)
    for _ in range(3):
        assert arrivals.missing() is None
        clock[0] += 1000


def test_instances_of_other_computers_are_named_together(tmp_path, clock):
    told(tmp_path, i0=["STARTED", "STARTS_MPI"], i1=["STARTED", "STARTS_MPI"])
    sentence = after(Arrivals(tmp_path, 4, 7), clock, 7)
    assert sentence.startswith("instances 2, 3 of other computers did not join the others within 7")


def test_a_launch_that_has_failed_names_the_first_that_ended_early(tmp_path):
    told(tmp_path, i0=["STARTED", "STARTS_MPI"], i1=["STARTED", "ENDED"])
    time.sleep(0.05)
    told(tmp_path, i0=["ENDED"])
    arrivals = Arrivals(tmp_path, 2, 7)
    assert arrivals.ended_early().startswith("instance 1 ended before joining the others")
    told(tmp_path, i1=["STARTS_MPI", "JOINS"])
    assert arrivals.ended_early() is None


def test_the_limit_is_that_of_the_workers(monkeypatch):
    monkeypatch.delenv("FPSIM_JOIN_TIMEOUT", raising=False)
    assert PoprunOptions().join_timeout == JOIN_TIMEOUT == Cluster().join_timeout
    monkeypatch.setenv("FPSIM_JOIN_TIMEOUT", "7.5")
    assert PoprunOptions().join_timeout == 7.5
    assert PoprunOptions(timeout=3).join_timeout == 3
    monkeypatch.setenv("FPSIM_JOIN_TIMEOUT", "soon")
    assert PoprunOptions().join_timeout == JOIN_TIMEOUT


# Real processes ---------------------------------------------------------------------------------


#: Instance 1 does what it is told to, the others join.
PROGRAM = """
import os, signal, sys, time
kind, index = sys.argv[1], os.environ["POPDIST_INSTANCE_INDEX"]
if index == "1" and kind == "leaves":
    sys.exit(0)
if index == "1" and kind == "sleeps":
    time.sleep(1000)
if index == "1" and kind == "stops":
    os.kill(os.getpid(), signal.SIGSTOP)
if index == "1" and kind == "has only MPI":
    from mpi4py import MPI
    time.sleep(1000)
if index == "1" and kind == "crashes":
    folder = os.environ["FPSIM_ARRIVALS"]
    while not {"0.1", "0.3"} & set(os.listdir(folder)):
        time.sleep(0.01)
    os.kill(os.getpid(), signal.SIGKILL)
from ipu.members.channel import Channel
from ipu.members.arrival import ArrivalStage
from ipu.members.cluster import Cluster
from ipu.members.connect import connect
from ipu.members.transport import JoinError
try:
    transport = connect(Cluster.from_environment())
    Channel(transport).barrier()
    transport.close()
except JoinError as error:
    print(error, file=sys.stderr)
    sys.exit(2)
print("joined", flush=True)
"""

NAMED = {
    "leaves": "poprun: instance 1 ended before joining the others, which wait in vain",
    "sleeps": "poprun: instance 1 did not join the others within 4 s",
    "stops": "poprun: instance 1 did not join the others within 4 s",
    "crashes": "poprun: instance 1 ended before joining the others, which wait in vain",
    "has only MPI": "[0] worker 1 did not answer within 4 s; start it",
}


def living(argument):
    """Processes whose command line holds an argument: lines of the process table."""
    lines = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            line = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode()
        except OSError:
            continue
        if argument in line and int(folder.name) != os.getpid():
            lines.append(f"{folder.name} {line}")
    return lines


@pytest.mark.parametrize(
    ("transport", "kind"),
    [("mpi", "leaves"), ("mpi", "stops"), pytest.param("mpi", "sleeps", marks=full),
     pytest.param("mpi", "crashes", marks=full), pytest.param("mpi", "has only MPI", marks=full),
     ("grpc", "leaves"), pytest.param("grpc", "crashes", marks=full),
     pytest.param("mpi", "joins", marks=full), pytest.param("grpc", "joins", marks=full)],
)
def test_an_instance_that_does_not_join_is_named_and_nobody_is_left(
    transport, kind, tmp_path, capfd, monkeypatch
):
    if not find_spec({"mpi": "mpi4py", "grpc": "grpc_tools"}[transport]):
        pytest.skip(f"the extra {transport} is not installed; run: make test-distributed")
    monkeypatch.setenv("FPSIM_JOIN_TIMEOUT", "60" if kind == "joins" else "4")
    path = tmp_path / "program.py"
    path.write_text(PROGRAM)
    launch = PoprunOptions(3, 3, transport=transport, as_root=True)
    status = run(launch, [sys.executable, str(path), kind])
    output, errors = capfd.readouterr()
    assert living(str(path)) == []
    if kind == "joins":
        assert (status, sorted(output.splitlines())) == (0, [f"[{i}] joined" for i in range(3)])
        assert "poprun:" not in errors
        return
    assert status == (137 if kind == "crashes" else 2), errors
    assert NAMED[kind] in errors
    assert "joined" not in output
