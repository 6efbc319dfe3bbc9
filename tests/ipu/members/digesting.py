"""A worker that trains with every order and rounding, one after the other, and prints digests.

ORDERS REPLICAS STEPS; one line "ORDER ESR DIGEST" for each training.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence

from ipu.machine import FpCtl
from ipu.members.cluster import Cluster
from ipu.members.connect import connect
from ipu.members.group import Processes
from ipu.members.transport import Transport
from tests.ipu.members.trainings import plan, share
from tests.ipu.plan.networks import batch, trainer


def digests(
    transport: Transport, orders: Sequence[str], replicas: int, steps: int
) -> Iterator[tuple[str, bool, str]]:
    """Order, stochastic rounding, digest of all replicas."""
    for order in orders:
        for esr in (False, True):
            work_plan = plan(replicas, order)
            group = Processes(transport, replicas)
            training = trainer(work_plan, group=group, count=True, control=FpCtl(esr=esr))
            local = group.own(replicas)
            for t in range(steps):
                x, labels = batch(t, work_plan.samples(2))
                training.step(share(x, work_plan, local), share(labels, work_plan, local))
            group.finish(training)
            yield order, esr, group.digest(training)


if __name__ == "__main__":
    cluster = Cluster.from_environment()
    assert cluster is not None
    joined = connect(cluster, "digests of all orders")
    try:
        for row in digests(joined, sys.argv[1].split(","), cluster.replicas, int(sys.argv[2])):
            print(*row, flush=True)
    finally:
        joined.close()
