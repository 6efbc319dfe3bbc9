"""One digest for any number of workers and any transport, every order and both roundings (law)."""

from __future__ import annotations

from functools import lru_cache

import pytest

from ipu.members.local_transport import run_local
from tests.ipu.members.digesting import digests
from tests.ipu.members.processes import STARTED, all_ended, limit, workers
from tests.ipu.members.trainings import ORDERS
from tests.tiers import pick

STEPS = pick(1, 3, 6)
CHOSEN = pick(ORDERS[::2], ORDERS, ORDERS)
#: Replicas, and the numbers of workers that share them; trees of 5 are uneven.
SHARED = pick(
    [(4, 2)], [(r, p) for r in (2, 4, 5) for p in sorted({1, 2, r}) if r % p == 0],
    [(r, p) for r in (2, 3, 4, 5, 8) for p in range(1, r + 1) if r % p == 0],
)


@lru_cache
def expected(replicas):
    """The lines of one worker."""
    (rows,) = run_local(1, lambda t: list(digests(t, CHOSEN, replicas, STEPS)))
    return [" ".join(map(str, row)) for row in rows]


def local(replicas, size):
    """What each worker prints, by threads of this process."""
    by_rank = run_local(size, lambda t: list(digests(t, CHOSEN, replicas, STEPS)))
    return [[" ".join(map(str, row)) for row in rows] for rows in by_rank]


def grpc(replicas, size):
    """The same by processes over gRPC."""
    pytest.importorskip("grpc", reason="grpcio is not installed; run: make test-distributed")
    pytest.importorskip("grpc_tools", reason="grpcio-tools is missing; run: make test-distributed")
    with workers(
        size, ",".join(CHOSEN), str(STEPS), replicas=replicas,
        program="tests.ipu.members.digesting",
    ) as started:
        rows = all_ended(started, limit(2 * STARTED))
    assert [status for status, _, _ in rows] == [0] * size, rows
    return [output.splitlines() for _, output, _ in rows]


PROGRAM = """
from tests.ipu.members.digesting import digests
orders, replicas, steps = sys.argv[1:]
transport = connect(replace(cluster, replicas=int(replicas)))
for row in digests(transport, orders.split(","), int(replicas), int(steps)):
    print(rank, *row, flush=True)
transport.close()
"""


def mpi(replicas, size):
    """The same by processes over MPI."""
    from tests.ipu.members.mpi import mpirun

    status, lines, errors = mpirun(size, PROGRAM, ",".join(CHOSEN), str(replicas), str(STEPS))
    assert status == 0, errors
    return [
        sorted(line.removeprefix(f"{r} ") for line in lines if line.startswith(f"{r} "))
        for r in range(size)
    ]


@pytest.mark.parametrize(("replicas", "size"), SHARED)
@pytest.mark.parametrize("transport", [local, grpc, mpi])
def test_one_digest_for_any_number_of_workers(transport, replicas, size):
    lines = expected(replicas)
    assert [sorted(rows) for rows in transport(replicas, size)] == [sorted(lines)] * size


@pytest.mark.parametrize("replicas", sorted({r for r, _ in SHARED if r >= 4}))
def test_every_order_and_rounding_has_a_digest_of_its_own(replicas):
    assert len({line.split()[2] for line in expected(replicas)}) == 2 * len(CHOSEN)
