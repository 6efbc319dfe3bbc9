"""All-reduce over processes (law: the sums of one process; golden: known answers and volumes)."""

from __future__ import annotations

import numpy as np
import pytest

from fpsim import BINARY16, BINARY32
from ipu.learn.address import Numbering
from ipu.machine import Device, FpCtl
from ipu.members import allreduce
from ipu.members.allreduce import all_reduce, method, placed
from ipu.members.channel import Channel
from ipu.members.local_transport import run_local
from ipu.plan.collectives import Summands, reduce_sum
from ipu.plan.orders import Order, parts
from tests.ipu.plan.test_orders import KNOWN_SUMS


def numberings(replicas, esr=False):
    return [Numbering(Device(control=FpCtl(esr=esr), seed=42), r) for r in range(replicas)]


def on_processes(rows, order, processes, fmt=BINARY16, esr=False, ring="flat", cells=(0,)):
    """The sum on every process, and the bytes that each has sent."""
    replicas = len(rows)
    owners = [r * processes // replicas for r in range(replicas)]

    def work(transport):
        channel, everyone = Channel(transport), dict(enumerate(numberings(replicas, esr)))
        ranks = [r for r in range(replicas) if owners[r] == transport.rank]
        tensors = [everyone[r].device.from_host(rows[r], fmt) for r in ranks]
        jobs = [Summands(tensors, cell) for cell in cells]
        return all_reduce(channel, owners, jobs, everyone, order, ring), channel.sent

    return run_local(processes, work)


def on_one(rows, order, fmt=BINARY16, esr=False, ring="flat", cell=0):
    everyone = numberings(len(rows), esr)
    tensors = [n.device.from_host(row, fmt) for n, row in zip(everyone, rows, strict=True)]
    return reduce_sum(tensors, everyone, cell, order, ring)


@pytest.fixture(params=["ring", "gather"])
def how(request, monkeypatch):
    """Rings for every fold, or for none."""
    monkeypatch.setattr(allreduce, "SMALL", 0 if request.param == "ring" else 1 << 40)
    return request.param


@pytest.mark.parametrize(("order", "codes"), KNOWN_SUMS)
def test_known_answers(order, codes, how):
    rows = [np.full(4, 1.0), *(np.full(4, 2.0**-11) for _ in range(3))]
    for (total,), _ in on_processes(rows, order, 4):
        assert [f"{code:04x}" for code in total.codes()] == codes.split()


def test_known_answer_of_stochastic_rounding(how):
    rows = [np.full(8, 1.0), *(np.full(8, 2.0**-11) for _ in range(3))]
    for (total,), _ in on_processes(rows, "tf_ring", 4, esr=True):
        assert [f"{code:04x}" for code in total.codes()] == (
            ["3c00", "3c01", "3c02", "3c01", "3c01", "3c02", "3c03", "3c01"]
        )


@pytest.mark.parametrize("ring", ["flat", "interleaved"])
@pytest.mark.parametrize("order", [order.value for order in Order])
@pytest.mark.parametrize(("replicas", "processes"), [(4, 1), (4, 2), (4, 4), (8, 2)])
def test_sums_are_those_of_one_process(replicas, processes, order, ring, how):
    rng = np.random.default_rng(7)
    rows = [rng.standard_normal((5, 7)) * 10.0 ** (r % 3) for r in range(replicas)]
    cells = (0, 3)
    wanted = [on_one(rows, order, esr=True, ring=ring, cell=cell).codes() for cell in cells]
    results = on_processes(rows, order, processes, esr=True, ring=ring, cells=cells)
    for totals, _ in results:
        assert all(np.array_equal(t.codes(), w) for t, w in zip(totals, wanted, strict=True))
        assert totals[0].shape == (5, 7)


def test_the_order_of_a_library_would_be_noticed():
    """Sums in the order of MPI_Allreduce on four local ranks, or of numpy, have other bits."""
    rng = np.random.default_rng(3)
    rows = [rng.standard_normal(4096).astype(np.float32) for _ in range(4)]
    of_mpi = (rows[0] + rows[1]) + (rows[2] + rows[3])
    of_numpy = np.sum(rows, axis=0, dtype=np.float32)
    ((total,), _) = on_processes(rows, "tf_ring", 4, fmt=BINARY32)[0]
    for other in (of_mpi, of_numpy):
        assert 0.1 < np.mean(total.values != other) < 0.9
    ((tree,), _) = on_processes(rows, "tree", 4, fmt=BINARY32)[0]
    assert np.array_equal(tree.values, of_mpi)


@pytest.mark.parametrize("order", ["tf_ring", "clockwise_ring", "tree", "meet_in_middle_ring"])
@pytest.mark.parametrize("replicas", [2, 4])
def test_every_process_sends_as_little_as_a_ring_can(replicas, order, how):
    n = 64 * replicas
    rows = [np.ones(n)] * replicas
    sent = [bytes_ for _, bytes_ in on_processes(rows, order, replicas)]
    assert sent == [2 * (replicas - 1) * n // replicas * 2] * replicas  # of 2 bytes each


def test_neighbours_in_one_process_need_no_message():
    rows = [np.ones(64)] * 4
    assert [sent for _, sent in on_processes(rows, "tf_ring", 1)] == [0]
    # Two chunks end where the other process adds no more; each process sends half of the rest.
    alone, shared = (on_processes(rows, "tree", processes) for processes in (4, 2))
    assert sum(sent for _, sent in shared) < sum(sent for _, sent in alone) / 2


def test_large_folds_go_round_and_everything_else_is_gathered():
    n = 4 * allreduce.SMALL // 2
    assert [method(order, n, 2 * n, 4) for order in ("tf_ring", "bidirectional_ring_pair")] == (
        ["ring", "ring"]
    )
    assert method("tf_ring", n - 4, 2 * n - 8, 4) == "gather"
    assert method("sequential", n, 2 * n, 4) == "gather"
    assert [method("auto", m, 2 * m, 4) for m in (n, 1 << 22)] == ["gather", "ring"]


def test_a_chunk_of_a_ring_goes_from_neighbour_to_neighbour():
    part = parts("tf_ring", 4, 8, 16)[1]
    homes = [value.home for value in placed(part, "ring", range(4))]
    assert homes == [0, 1, 2, 3, 2, 3, 0]
    homes = [value.home for value in placed(part, "gather", range(4))]
    assert homes == [0, 1, 2, 3, 1, 1, 1]


def test_empty_tensors_have_empty_sums():
    for (total,), sent in on_processes([np.zeros((0, 3))] * 2, "tree", 2):
        assert total.shape == (0, 3)
        assert sent == 0
