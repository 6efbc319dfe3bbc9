"""Sums over processes for any program: the bits of one process (differential)."""

from __future__ import annotations

import numpy as np
import pytest

from fpsim.records.formats import BINARY16
from ipu.learn.address import Numbering, Region
from ipu.machine.control import POWER_ON, FpCtl
from ipu.machine.device import Device
from ipu.members.channel import Channel
from ipu.members.local_transport import run_local
from ipu.members.sums import ReplicaSums
from ipu.plan.collectives import Summands, reduce_sum

REPLICAS, STEP = 4, 5
VALUES = np.random.default_rng(3).standard_normal((REPLICAS, 2, 37))


@pytest.mark.parametrize("order", ["tf_ring", "clockwise_ring", "tree", "meet_in_middle_ring"])
@pytest.mark.parametrize("esr", [False, True])
@pytest.mark.parametrize("size", [1, 2, 4])
def test_any_number_of_processes_has_the_bits_of_one(order, esr, size):
    control = FpCtl(esr=True) if esr else POWER_ON

    def device():
        return Device(control=control, seed=9)

    def work(transport):
        sums = ReplicaSums(Channel(transport), REPLICAS, device, order)
        share = REPLICAS // size
        local = range(transport.rank * share, (transport.rank + 1) * share)
        jobs = [
            Summands([sums.devices[r].from_host(VALUES[r][v], BINARY16) for r in local], v)
            for v in range(2)
        ]
        return [total.codes().tolist() for total in sums.of(jobs, STEP)]

    devices = [device() for _ in range(REPLICAS)]
    numberings = [Numbering(d, r) for r, d in enumerate(devices)]
    for numbering in numberings:
        numbering.step = STEP
    expected = [
        reduce_sum(
            [d.from_host(VALUES[r][v], BINARY16) for r, d in enumerate(devices)], numberings, v,
            order,
        ).codes().tolist()
        for v in range(2)
    ]
    assert run_local(size, work) == [expected] * size


@pytest.mark.parametrize("esr", [False, True])
def test_means_are_those_of_a_plans_training(esr):
    control = FpCtl(esr=esr)

    def work(transport):
        sums = ReplicaSums(
            Channel(transport), 3, lambda: Device(control=control, seed=9), "tf_ring"
        )
        share = sums.devices[transport.rank].from_host(VALUES[transport.rank][0], BINARY16)
        return sums.means([Summands([share], 7)], STEP)[0].codes().tolist()

    devices = [Device(control=control, seed=9) for _ in range(3)]
    numberings = [Numbering(d, r) for r, d in enumerate(devices)]
    for numbering in numberings:
        numbering.step = STEP
    tensors = [d.from_host(VALUES[r][0], BINARY16) for r, d in enumerate(devices)]
    total = reduce_sum(tensors, numberings, 7, "tf_ring")
    with numberings[0].cell(Region.UPDATE, 7):
        expected = devices[0].multiply(total, 1 / 3).codes().tolist()
    assert run_local(3, work) == [expected] * 3


def test_orders_that_do_not_exist_are_refused():
    with pytest.raises(ValueError, match="power of two"):
        run_local(
            1, lambda transport: ReplicaSums(Channel(transport), 3, Device, "recursive_halving")
        )
