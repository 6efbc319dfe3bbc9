"""Addresses of stochastic operations in a training (golden, law)."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fpsim import BINARY16, Context, Xoroshiro128aox
from ipu.learn.address import (
    Numbering,
    Region,
    accumulating,
    address,
    averaging,
    replica_seed,
    rescaling,
    updating,
)
from ipu.learn.nn import dense
from ipu.learn.optim import SGD
from ipu.learn.variables import Variable
from ipu.machine import Device, FpCtl
from ipu.plan.plan import Plan
from ipu.plan.trainer import PlanTrainer


def machine(**choices):
    return Device(control=FpCtl(esr=True), seed=42, **choices)


def numbered(**choices):
    device = machine()
    return device, Numbering(device, **choices)


def number(device):
    """Number of the next operation, and the key that it draws with."""
    return device.clock.operation, device.source.seed


def test_known_answers():
    assert address(1, 2, 3, 4) == 1236953726980
    assert replica_seed(42, 0) == 42
    assert replica_seed(42, 1) == 5895813825887534595
    assert replica_seed(0, 1) == 3863233647710162474
    assert address(2**23 - 1, 15, 2**16 - 1, 2**20 - 1) == 2**63 - 1


@given(*[st.integers(0, room - 1) for room in (2**23, 16, 2**16, 2**20)])
def test_fields_do_not_overlap(step, region, cell, operation):
    n = address(step, region, cell, operation)
    assert (n >> 40, n >> 36 & 15, n >> 20 & 0xFFFF, n & 0xFFFFF) == (step, region, cell, operation)


@pytest.mark.parametrize(
    "fields", [(2**23, 0, 0, 0), (0, 16, 0, 0), (0, 0, 2**16, 0), (0, 0, 0, 2**20), (0, 0, -1, 0)]
)
def test_fields_beyond_their_room_are_refused(fields):
    with pytest.raises(ValueError, match="of a training has no address; use 0 to"):
        address(*fields)


def test_a_cell_goes_on_where_it_stopped_and_the_clock_comes_back():
    device, numbering = numbered()
    outside = number(device)
    x = device.from_host([1.0], BINARY16)
    with numbering.cell(Region.BATCH, 3):
        assert number(device) == (address(0, 0, 3, 0), 42)
        device.add(x, x)
        with numbering.cell(Region.UPDATE, 1):
            assert number(device) == (address(0, 3, 1, 0), 42)
    assert number(device) == outside
    with numbering.cell(Region.BATCH, 3):
        assert device.clock.operation == address(0, 0, 3, 1)
    assert numbering.position(Region.BATCH, 3) == 1
    numbering.step = 7
    numbering.begin()
    with numbering.cell(Region.BATCH, 3):
        assert device.clock.operation == address(7, 0, 3, 0)


def test_repeated_operations_move_no_later_one():
    device, numbering = numbered()
    x = device.from_host([1.0], BINARY16)
    with numbering.cell(Region.BATCH, 0):
        for _ in range(3):
            device.add(x, x)
    with numbering.cell(Region.BATCH, 0, again=1):
        assert device.clock.operation == address(0, 0, 0, 1)
        device.add(x, x)
    assert numbering.position(Region.BATCH, 0) == 3


def test_private_regions_draw_by_the_replica_and_common_ones_by_the_seed():
    device, numbering = numbered(replica=1)
    child = 5895813825887534595
    keys = {}
    for region in Region:
        with numbering.cell(region):
            keys[region] = device.source.seed
    assert keys == {
        Region.BATCH: child, Region.ACCUMULATE: child, Region.EVALUATE: child, Region.OTHER: child,
        Region.REDUCE: 42, Region.UPDATE: 42, Region.OPTIMIZER: 42,
    }
    device, numbering = numbered(replica=1, private=True)
    with numbering.cell(Region.UPDATE):
        assert device.source.seed == child


def test_contexts_draw_with_the_key_of_their_cell():
    """Two replicas round the same sum alike where they must, else differently."""
    x = np.full(64, 1.0), np.full(64, 2.0**-11 + 2.0**-13)

    def rounded(replica, region):
        device, numbering = numbered(replica=replica)
        device.context(BINARY16)
        a, b = (device.from_host(v, BINARY16) for v in x)
        with numbering.cell(region, 5):
            return device.add(a, b).values.tolist()

    assert rounded(0, Region.UPDATE) == rounded(3, Region.UPDATE)
    assert rounded(0, Region.BATCH) != rounded(3, Region.BATCH)
    alone = Context(BINARY16, rounding=machine().context(BINARY16).rounding, seed=42)
    alone.operation = address(0, Region.BATCH, 5, 0)
    a, b = (alone.wrap(v.astype(np.float16).astype(BINARY16.carrier)) for v in x)
    assert rounded(0, Region.BATCH) == alone.add(a, b).values.tolist()


def test_only_common_regions_round_stochastically_where_that_is_asked():
    device, numbering = numbered(nearest=True)
    stochastic = {}
    for region in Region:
        with numbering.cell(region):
            stochastic[region] = device.control.esr
    common = (Region.REDUCE, Region.UPDATE, Region.OPTIMIZER)
    assert stochastic == {region: region in common for region in Region}


def test_variables_have_their_own_addresses_inside_a_training_only():
    device, numbering = numbered()
    zeros = device.zeros(2, BINARY16)
    first, second = (Variable(zeros, device, f"layer/{name}") for name in "ab")
    frozen = Variable(zeros, device, "layer/c", trainable=False)
    numbering.index([first, second])
    before = device.clock.operation
    with updating(second):
        assert (device.clock.operation, device.tensor) == (before, "layer/update")
    with numbering.in_use():
        for variable, v in ((first, 0), (second, 1)):
            with averaging(variable):
                assert device.clock.operation == address(0, 3, v, 0)
            with updating(variable, "unscale"):
                assert device.clock.operation == address(0, 3, v, 16)
                assert device.tensor == "layer/unscale"
                device.add(zeros, zeros)
            with updating(variable):
                assert device.clock.operation == address(0, 3, v, 17)
            with rescaling(variable.name):
                assert device.clock.operation == address(0, 3, v, 128)
            with accumulating(variable, 6):
                assert device.clock.operation == address(0, 1, 6, 256 * v)
        with updating(frozen):
            assert device.clock.operation == before


def test_a_variable_that_draws_more_than_its_share_is_refused():
    device, numbering = numbered()
    zeros = device.zeros(1, BINARY16)
    variable = Variable(zeros, device, "layer/a")
    numbering.index([variable])

    def draw_often():
        with numbering.in_use(), updating(variable):
            for _ in range(113):
                device.add(zeros, zeros)

    with pytest.raises(ValueError, match="113 stochastic operations are more than cell 0 of UPDA"):
        draw_often()
    with pytest.raises(ValueError, match="4097 trainable variables have no addresses"):
        numbering.index([variable] * 4097)


def test_another_source_goes_on_from_operation_to_operation():
    device = machine()
    device.source = Xoroshiro128aox(3)
    numbering = Numbering(device)
    x = device.from_host([1.0], BINARY16)
    with numbering.cell(Region.BATCH, 3):
        device.add(x, x)
    assert device.clock.operation == 1
    with pytest.raises(ValueError, match="replicas number their random bits by Philox"):
        Numbering(device, replica=1)


def test_a_plan_needs_numbers():
    """Also with one replica: its schedule would move the bits of a generator."""
    plan = Plan([lambda x: dense(x, 2, "only")], count=2)
    with pytest.raises(ValueError, match=r"random='xoroshiro' goes on .* needs Philox"):
        PlanTrainer(SGD(0.1), plan=plan, random="xoroshiro")
    assert repr(PlanTrainer(SGD(0.1), plan=plan).device.source) == "Philox(seed=0)"
