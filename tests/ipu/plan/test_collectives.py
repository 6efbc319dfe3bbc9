"""Cross-replica sums (golden: known answers; differential: numpy in the order of the tree)."""

from __future__ import annotations

from functools import reduce

import numpy as np
import pytest

from fpsim import BINARY16, BINARY32
from ipu.learn.address import Numbering, Region, address
from ipu.learn.loss_scale import Statistic
from ipu.machine import Device, FpCtl
from ipu.plan.collectives import Group, Summands, reduce_sum
from ipu.plan.orders import Order, leaves, parts
from tests.ipu.plan.test_orders import KNOWN_SUMS


def summed(rows, order, fmt=BINARY16, esr=False, cell=0, ring="flat"):
    devices = [Device(control=FpCtl(esr=esr), seed=42) for _ in rows]
    numberings = [Numbering(device, r) for r, device in enumerate(devices)]
    tensors = [d.from_host(row, fmt) for d, row in zip(devices, rows, strict=True)]
    return reduce_sum(tensors, numberings, cell, order, ring), devices


#: x_0 = 1, x_1 … x_3 = 2^-11: which of the small numbers is lost depends on the order.
SMALL = 2.0**-11


@pytest.mark.parametrize(("order", "codes"), KNOWN_SUMS)
def test_known_answers_to_nearest(order, codes):
    rows = [np.full(4, 1.0), *(np.full(4, SMALL) for _ in range(3))]
    total, _ = summed(rows, order)
    assert [f"{code:04x}" for code in total.codes()] == codes.split()


def test_known_answer_of_stochastic_rounding():
    rows = [np.full(8, 1.0), *(np.full(8, SMALL) for _ in range(3))]
    total, _ = summed(rows, "tf_ring", esr=True)
    assert [f"{code:04x}" for code in total.codes()] == (
        ["3c00", "3c01", "3c02", "3c01", "3c01", "3c02", "3c03", "3c01"]
    )


@pytest.mark.parametrize("ring", ["flat", "interleaved"])
@pytest.mark.parametrize("order", [order.value for order in Order])
@pytest.mark.parametrize("shape", [(1,), (2, 3), (37,)])
def test_sums_are_those_of_numpy_in_the_order_of_the_tree(shape, order, ring):
    replicas = 4
    rng = np.random.default_rng(7)
    rows = [rng.standard_normal(shape).astype(np.float32) * 10.0**r for r in range(replicas)]
    total, _ = summed(rows, order, BINARY32, ring=ring)
    assert total.shape == shape
    flat = [row.reshape(-1) for row in rows]
    wanted = np.empty(flat[0].size, np.float32)

    def added(node, place):
        if isinstance(node, int):
            return flat[node][place]
        return added(node[0], place) + added(node[1], place)

    for part in parts(order, replicas, wanted.size, wanted.nbytes, ring):
        place = slice(part.start, part.stop)
        wanted[place] = added(part.tree, place)
        assert sorted(leaves(part.tree)) == list(range(replicas))
    assert np.array_equal(total.carrier.reshape(-1), wanted)


def test_every_addition_draws_at_its_own_address(monkeypatch):
    draws = []
    add = Device.add

    def spied(self, x, y, out=None):
        draws.append((self.clock.operation, self.clock.first, self.source.seed, x.size))
        return add(self, x, y, out)

    monkeypatch.setattr(Device, "add", spied)
    monkeypatch.setattr(Device, "in_one_call", False)
    summed([np.ones(12)] * 4, "bidirectional_ring_pair", esr=True, cell=5)
    place = [(c, k, half) for c in range(4) for half in (0, 1) for k in range(3)]
    wanted = [
        (address(0, Region.REDUCE, 5, 4 * c + k), half, 42, 2 if half else 1)
        for c, k, half in place
    ]
    assert draws == wanted


def test_additions_run_on_the_replica_of_the_chunk():
    rows = [np.full(4, 60000.0), np.array([0, 60000.0, 0, 0]), np.zeros(4), np.zeros(4)]
    _, devices = summed(rows, "sequential")
    assert [device.status.oflo for device in devices] == [False, True, False, False]


def test_an_empty_tensor_has_an_empty_sum():
    total, _ = summed([np.zeros((0, 3))] * 4, "tree")
    assert total.shape == (0, 3)
    rows = [np.arange(3.0)] * 3
    assert summed(rows, "auto")[0].values.tolist() == reduce(np.add, rows).tolist()


def test_tensors_that_do_not_belong_together_are_refused():
    devices = [Device() for _ in range(3)]
    numberings = [Numbering(device) for device in devices]
    rows = [device.zeros(9, BINARY16) for device in devices]
    with pytest.raises(ValueError, match="0 tensors and 0 numberings; give one of each"):
        reduce_sum([], [], 0)
    with pytest.raises(ValueError, match="3 tensors and 2 numberings"):
        reduce_sum(rows, numberings[:2], 0)
    longer = [*rows[:2], devices[2].zeros(10, BINARY16)]
    with pytest.raises(ValueError, match=r"are binary16 \(9,\), binary16 \(10,\); give one format"):
        reduce_sum(longer, numberings, 0)
    wider = [*rows[:2], devices[2].zeros(9, BINARY32)]
    with pytest.raises(ValueError, match="give one format and one shape"):
        reduce_sum(wider, numberings, 0)


def test_a_group_of_one_process_computes_all_replicas():
    group, devices = Group(), [Device() for _ in range(2)]
    numberings = [Numbering(device, r) for r, device in enumerate(devices)]
    tensors = [device.from_host([1.0, 2.0], BINARY16) for device in devices]
    (total,) = group.sums([Summands(tensors, 0)], numberings, "tree", "flat")
    assert total.values.tolist() == [2.0, 4.0]
    assert list(group.own(3)) == [0, 1, 2]
    losses = np.ones((2, 3))
    assert group.agree(losses, Statistic()) is losses
