"""Signs of life over MPI, by real processes (golden: the sentences and the limits)."""

from __future__ import annotations

import pytest

from tests.ipu.members.mpi import mpirun
from tests.ipu.members.processes import limit

#: Worker 1 freezes; the others say what they hear, and after how many seconds.
FROZEN = """
import signal, time
transport = connect(replace(cluster, silence=2.0, beat=0.5))
transport.send((rank + 1) % size, b"joined")
transport.receive((rank - 1) % size)
start = time.monotonic()
if rank == 1:
    os.kill(os.getpid(), signal.SIGSTOP)
try:
    transport.receive((rank + 1) % size)
except StoppedError as error:
    print(rank, str(error).replace(transport.describe(1), "worker 1"), flush=True)
    print(f"seconds {time.monotonic() - start}", file=sys.stderr, flush=True)
"""


def seconds(errors):
    return [float(line.split()[1]) for line in errors.splitlines() if line.startswith("seconds ")]


def test_a_frozen_worker_is_named_by_all_within_its_silence_and_two_seconds():
    status, lines, errors = mpirun(3, FROZEN)
    assert status == 3, errors
    # mpirun wakes the frozen one to end it; it may or may not have the time to say so too.
    for rank in (0, 2):
        assert f"{rank} worker 1 has been silent for 2 s" in lines
    assert max(seconds(errors)) < 2 + limit(2.0)


@pytest.mark.tier("full")
def test_a_worker_that_computes_is_not_silent():
    status, lines, errors = mpirun(
        2,
        """
import time
transport = connect(replace(cluster, silence=2.0, beat=0.5))
if rank == 1:
    until = time.monotonic() + 5
    while time.monotonic() < until:
        pass
transport.send(1 - rank, b"late")
print(transport.receive(1 - rank).decode())
transport.close()
""",
    )
    assert (status, lines) == (0, ["late"] * 2), errors


@pytest.mark.tier("full")
def test_a_worker_that_has_left_is_not_awaited():
    """Worker 0 leaves at once; the other two go on for longer than the silence."""
    status, lines, errors = mpirun(
        3,
        """
import time
transport = connect(replace(cluster, silence=2.0, beat=0.5))
if rank:
    for _ in range(5):
        time.sleep(1)
        transport.send(3 - rank, b"beside")
        transport.receive(3 - rank)
print("end")
transport.close()
""",
    )
    assert (status, lines) == (0, ["end"] * 3), errors


@pytest.mark.tier("full")
def test_a_worker_that_freezes_at_the_end_is_not_waited_for():
    status, lines, errors = mpirun(
        2,
        """
import signal
transport = connect(replace(cluster, silence=2.0, beat=0.5))
print("end", flush=True)
if rank == 1:
    os.kill(os.getpid(), signal.SIGSTOP)
transport.close()
""",
    )
    assert (status, lines) == (3, ["end"] * 2), errors
    assert "has been silent for 2 s" in errors
