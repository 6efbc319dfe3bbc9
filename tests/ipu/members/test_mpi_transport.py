"""MPI: messages, how a run ends, and the bits of one process (golden, differential)."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from itertools import product

import numpy as np
import pytest

from fpsim.records.formats import BINARY16, BINARY32
from ipu.machine.control import FpCtl
from ipu.machine.device import Device
from ipu.members.channel import Channel
from ipu.members.local_transport import run_local
from ipu.members.sums import ReplicaSums
from ipu.plan.collectives import Summands
from tests.ipu.members.mpi import ROOT, mpirun
from tests.ipu.members.processes import limit
from tests.tiers import pick


def test_messages_keep_their_order_and_any_length():
    status, lines, errors = mpirun(
        3,
        """
transport = connect(cluster)
others = [other for other in range(size) if other != rank]
lengths = 0, 1, 100_000, 3_000_000
for length in lengths:
    for other in others:
        transport.send(other, bytes([rank]) * length)
for other in others:
    assert [transport.receive(other) == bytes([other]) * n for n in lengths] == [True] * 4
print(transport.rank, transport.size)
transport.close()
""",
    )
    assert (status, lines) == (0, ["0 3", "1 3", "2 3"]), errors


@pytest.mark.tier("full")
def test_messages_longer_than_one_of_mpi():
    status, lines, errors = mpirun(
        2,
        """
import ipu.members.mpi_transport as module
module._LONGEST = 4
transport = connect(cluster)
for length in range(10):
    transport.send(1 - rank, bytes(range(length)))
assert [transport.receive(1 - rank) for _ in range(10)] == [bytes(range(n)) for n in range(10)]
print("equal")
transport.close()
""",
    )
    assert (status, lines) == (0, ["equal"] * 2), errors


@pytest.mark.tier("full")
def test_a_message_above_the_limit_names_its_sender():
    status, lines, _ = mpirun(
        2,
        """
transport = connect(cluster)
transport.limit = 10
if rank == 0:
    transport.send(1, bytes(11))
try:
    transport.receive(1 - rank)
except StoppedError as error:
    print(error.reason.kind.name, error.reason.rank, "11 bytes" in str(error))
""",
    )
    assert (status, lines) == (3, ["DAMAGED 0 True"] * 2)


@pytest.mark.tier("full")
def test_a_message_in_parts_above_the_limit_tells_what_has_come():
    status, lines, _ = mpirun(
        2,
        """
import ipu.members.mpi_transport as module
module._LONGEST = 4
transport = connect(cluster)
transport.limit = 10
if rank == 0:
    transport.send(1, bytes(16))
try:
    transport.receive(1 - rank)
except StoppedError as error:
    print(error.reason.kind.name, error.reason.rank, "12 bytes" in str(error))
""",
    )
    assert (status, lines) == (3, ["DAMAGED 0 True"] * 2)


def test_all_workers_tell_why_a_training_stopped():
    status, lines, _ = mpirun(
        3,
        """
from ipu.members.channel import Channel
from ipu.members.transport import Kind, Reason
transport = connect(cluster)
try:
    Channel(transport).barrier()  # nobody is joining any more
    if rank == 1:
        transport.abort(Reason(Kind.INTERRUPTED, 1, "worker 1 was interrupted"))
    transport.receive((rank + 1) % size)
except StoppedError as error:
    print(rank, error)
""",
    )
    assert (status, lines) == (130, [f"{rank} worker 1 was interrupted" for rank in range(3)])


@pytest.mark.tier("full")
def test_a_silent_worker_is_given_up_where_mpi_allows_no_beats():
    status, lines, errors = mpirun(
        2,
        """
import time
import ipu.members.mpi_transport as module
module.can_beat = lambda mpi: False
transport = connect(replace(cluster, silence=0.01))
if rank == 1:
    time.sleep(600)
try:
    transport.receive(1)
except StoppedError as error:
    print(error)
""",
    )
    assert status == 3
    assert len(lines) == 1
    assert lines[0].startswith("worker 1 at ")
    assert lines[0].endswith("has been silent for 0.6 s")
    assert "a frozen one is given up after 0.6 s" in errors


@pytest.mark.tier("full")
def test_a_worker_that_raises_stops_all():
    start = time.monotonic()
    status, lines, errors = mpirun(
        3,
        """
from ipu.members.channel import Channel
transport = connect(cluster)
if rank == 2:
    Channel(transport).barrier()
    raise KeyError("theirs")
try:
    Channel(transport).barrier()
    transport.receive(2)
except StoppedError as error:
    print(str(error).replace(transport.describe(2), "worker 2"))
""",
    )
    assert (status, lines) == (3, ["worker 2 ended before the training did"] * 2)
    assert "KeyError: 'theirs'" in errors
    assert time.monotonic() - start < 60


@pytest.mark.tier("full")
def test_a_killed_worker_ends_all():
    status, lines, errors = mpirun(
        3,
        """
transport = connect(cluster)
if rank == 2:
    os.kill(os.getpid(), 9)
transport.receive(2)
""",
    )
    assert (status, lines) == (137, [])
    assert "rank 2" in errors


def test_workers_that_differ_are_refused_with_both_values():
    status, lines, _ = mpirun(
        2,
        """
try:
    connect(cluster, f"seed: {rank}")
except JoinError as error:
    print(error)
""",
    )
    assert status == 2
    assert all("has seed: 0" in line and "has seed: 1" in line for line in lines)
    assert len(lines) == 2


@pytest.mark.tier("full")
def test_a_worker_that_does_not_join_is_named():
    status, lines, _ = mpirun(
        2,
        """
import time
if rank == 1:
    from mpi4py import MPI
    MPI.COMM_WORLD.Dup()
    time.sleep(600)
try:
    connect(replace(cluster, join_timeout=0.5))
except JoinError as error:
    print(error)
""",
    )
    assert (status, lines) == (2, ["worker 1 did not answer within 0.5 s; start it"])


@pytest.mark.tier("full")
def test_another_number_of_processes_is_refused():
    status, lines, _ = mpirun(
        1,
        """
try:
    connect(replace(cluster, size=2, replicas=2))
except JoinError as error:
    print(error)
""",
    )
    assert status == 0
    (line,) = lines
    assert line.startswith("MPI says that this is process 0 of 1, the environment that it is")
    assert "start the program by the mpirun of" in line


def test_without_mpi_a_sentence_says_what_to_install():
    status, lines, _ = mpirun(
        1,
        """
import sys
sys.modules["mpi4py"] = None
from ipu.members.mpi_transport import import_mpi
try:
    import_mpi()
except ImportError as error:
    print(error)
""",
        begin="",
    )
    assert status == 0
    assert lines[0].startswith("transport='mpi' needs an MPI library and mpi4py and found none")


#: Sums of four tensors over the processes in every order, and what MPI's own sum would give.
SUMS = """
import numpy as np
from ipu.members.channel import Channel
from ipu.members.mpi_transport import import_mpi
from tests.ipu.members.test_mpi_transport import VALUES, summed
transport = connect(replace(cluster, replicas=4))
for line in summed(Channel(transport), range(4 // size * rank, 4 // size * (rank + 1))):
    print(line)
own = np.add.reduce(VALUES[4 // size * rank : 4 // size * (rank + 1)].astype(np.float32))
total = np.empty_like(own)
import_mpi().COMM_WORLD.Allreduce(own, total)
print("Allreduce", total.tobytes().hex())
transport.close()
"""
ORDERS = "tf_ring", "clockwise_ring", "tree", "meet_in_middle_ring"
VALUES = np.random.default_rng(5).standard_normal((4, 64))
FORMATS = BINARY16, BINARY32


def summed(channel, local):
    """Order, rounding, format and codes of each sum."""
    for order, esr, fmt in product(ORDERS, (False, True), FORMATS):
        control = FpCtl(esr=esr)
        sums = ReplicaSums(
            channel, 4, lambda control=control: Device(control=control, seed=6), order
        )
        jobs = [Summands([sums.devices[r].from_host(VALUES[r], fmt) for r in local], 3)]
        (total,) = sums.of(jobs, 2)
        yield f"{order} {esr} {fmt.name} {total.codes().tobytes().hex()}"


def test_sums_have_the_bits_of_one_process_and_mpis_own_has_not():
    (expected,) = run_local(1, lambda transport: list(summed(Channel(transport), range(4))))
    for size in pick((4,), (2, 4), (2, 4)):
        status, lines, errors = mpirun(size, SUMS)
        assert status == 0, errors
        reduced = next(line for line in lines if line.startswith("Allreduce"))
        assert lines == sorted([reduced, *expected] * size)
        nearest = {line.rsplit(" ", 1)[1] for line in expected if "False binary32" in line}
        assert nearest - {reduced.split()[1]}, "MPI's sum has the bits of every order"


@pytest.mark.tier("full")
@pytest.mark.parametrize("moment", ["rename step-2/worker-1", "rename step-2/manifest"])
def test_killed_while_it_saves_and_resumed_is_never_killed(moment, tmp_path):
    """mpirun ends the others; the same command goes on."""

    def run(program, *arguments):
        command = [sys.executable, "-m", "ipu.experiments.cli", "poprun", "--num-instances", "2",
                   "--num-replicas", "2", "--transport", "mpi", "--allow-run-as-root",
                   "--mpi-global-args", "--oversubscribe", sys.executable, "-m", program,
                   *arguments, "--steps", "4", "--seed", "3", "--save-every", "1"]
        done = subprocess.run(
            command, cwd=ROOT, env=os.environ | {"PYTHONPATH": str(ROOT)}, capture_output=True,
            text=True, timeout=limit(120),
        )
        return done.returncode, {x for x in done.stdout.splitlines() if "] digest " in x}

    program = "ipu.experiments.programs.distributed_training"
    options = ("--checkpoint", str(tmp_path))
    status, digests = run(program)
    assert (status, len(digests)) == (0, 2)
    status, lines = run("tests.ipu.members.dying", moment, "1", *options)
    assert (status, lines) == (137, set())
    assert run(program, *options) == (0, digests)
    assert {path.name for path in tmp_path.iterdir()} == {"step-3", "step-4"}
