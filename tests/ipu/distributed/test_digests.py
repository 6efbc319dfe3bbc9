"""One digest for any number of processes over gRPC, every order and both roundings (law)."""

from __future__ import annotations

import pytest

pytest.importorskip("grpc", reason="grpcio is not installed; run: make test-distributed")
pytest.importorskip("grpc_tools", reason="grpcio-tools is missing; run: make test-distributed")

from ipu.distributed.local_transport import run_local
from tests.ipu.distributed.digesting import digests
from tests.ipu.distributed.processes import STARTED, all_ended, workers
from tests.ipu.distributed.trainings import ORDERS
from tests.tiers import pick

STEPS = pick(1, 4, 6)


@pytest.mark.parametrize("replicas", pick([4], [2, 4], [2, 4, 8]))
def test_one_digest_over_processes(replicas):
    orders = pick(ORDERS[::2], ORDERS, ORDERS)
    (one,) = run_local(1, lambda t: list(digests(t, orders, replicas, STEPS)))
    lines = [" ".join(map(str, row)) for row in one]
    if replicas >= 4:
        assert len({digest for _, _, digest in one}) == 2 * len(orders), "orders do not differ"
    for size in pick([2], sorted({2, replicas}), sorted({2, 4, replicas})):
        with workers(
            size, ",".join(orders), str(STEPS), replicas=replicas,
            program="tests.ipu.distributed.digesting",
        ) as started:  # fmt: skip
            for status, output, errors in all_ended(started, STARTED * 2):
                assert status == 0, errors
                assert output.splitlines() == lines
