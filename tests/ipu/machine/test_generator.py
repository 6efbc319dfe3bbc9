"""The machine's own generator: golden (seeding by hand), differential (Python's integers), law."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import fpsim as fp
from fpsim.records.evidence import Evidence, Fact
from ipu.machine import MK1, MK2, Device, FpCtl
from ipu.machine.generator import WorkerStreams, find_source
from tests.fpsim.kernels.random.recurrence import dealt, draws

#: Two tiles of three workers.
SMALL = replace(
    MK2, name="small", tiles=Fact(2, Evidence.ASSUMED, ""), workers=Fact(3, Evidence.ASSUMED, "")
)


def seeded(seed, tile, worker):
    """The registers as the vertex writes them, then 15 draws."""
    low, high = (tile << 4 ^ 0xAAAAAAA0) | worker, 0x55555555
    return draws(seed, high << 32 | low, 15)[1]


def states(seed, tiles=2, workers=3):
    return [[seeded(seed, t, w) for w in range(workers)] for t in range(tiles)]


@pytest.mark.source("poplibs, Seeds.S and RandomGen.cpp")
def test_every_worker_is_seeded_as_the_vertex_does():
    """The last worker of the last tile by hand: 1471 = 0x5BF, 0x5BF0 ^ 0xAAAAAAA0 = 0xAAAAF150."""
    seed = 0xFEDCBA98_76543210
    source = WorkerStreams(seed, MK2)
    assert source.states.shape == (1472, 6, 2)
    assert source.states[1471, 5].tolist() == list(draws(seed, 0x55555555_AAAAF155, 15)[1])
    assert source.states[0, 0].tolist() == list(draws(seed, 0x55555555_AAAAAAA0, 15)[1])
    assert source.states[:3].tolist() == [[list(s) for s in g] for g in states(seed, 3, 6)]
    assert len(np.unique(source.states.reshape(-1, 2), axis=0)) == 1472 * 6
    assert WorkerStreams(0, MK1).states.shape == (1216, 6, 2)


def halves(device, n):
    """Numbers half-way between 1 and its neighbour in binary16."""
    return device.from_host(np.full(n, 1 + 2.0**-11), fp.BINARY32)


def machine(seed=7, target=SMALL, **options):
    return Device(
        target, FpCtl(esr=True), random="xoroshiro", seed=seed, **options
    )


@pytest.mark.parametrize("n", [1, 7, 24, 25, 50])
def test_a_cast_goes_up_where_the_thirteenth_digit_of_the_worker_s_lane_is_1(n):
    """R takes the low 13 digits: at w = 1/2 the carry leaves iff R is 2**12 or more."""
    device, now = machine(), states(7)
    for _ in range(2):
        numbers, now = dealt(now, n)
        y = device.cast(halves(device, n), fp.BINARY16)
        assert (y.values > 1).tolist() == [bool(r >> 12 & 1) for r in numbers[0]]
    assert device.clock.operation == 2


def test_a_device_of_1472_tiles_deals_vectors_of_four():
    """5889 elements are 1473 vectors, so blocks are of two: workers 0 and 1 of 737 tiles."""
    device, n = machine(target="mk2"), 5889
    numbers, after = dealt(states(7, 1472, 6), n)
    y = device.cast(halves(device, n), fp.BINARY16)
    assert (y.values > 1).tolist() == [bool(r >> 12 & 1) for r in numbers[0]]
    assert device.source.states.tolist() == [[list(s) for s in g] for g in after]


def test_a_mask_takes_all_sixteen_digits():
    device = machine()
    numbers, _ = dealt(states(7), 31)
    assert device.random_mask((31,), 0.5).tolist() == [r >= 1 << 15 for r in numbers[0]]


def test_the_formats_of_a_device_draw_from_the_same_streams():
    one, other = machine(), machine()
    for device in (one, other):
        device.random_mask((5,), 0.5)  # in binary32
    assert np.array_equal(one.source.states, other.source.states)
    assert one.context(fp.BINARY16).core.source is one.context(fp.BINARY32).core.source
    one.cast(halves(one, 9), fp.BINARY16)
    assert not np.array_equal(one.source.states, other.source.states)


@pytest.mark.parametrize("quiet", [False, True])
def test_stores_of_a_product_draw_unless_they_go_to_nearest(quiet):
    """One output and its store: with K = 16 one pass; a trap before it leaves nothing behind."""
    device = machine(disable_sr_for_amp_vertices=quiet)
    device.control = replace(device.control, oflo=True)
    big = device.from_host(np.full(9, 60000.0), fp.BINARY16)
    with pytest.raises(fp.FloatingPointTrap):
        device.multiply(big, big)
    x = device.from_host(np.ones((2, 16)), fp.BINARY16)
    device.matmul(x, x.T, partials=fp.BINARY32)
    assert device.clock.operation == 1
    after = states(7) if quiet else dealt(states(7), 4)[1]
    assert device.source.states.tolist() == [[list(s) for s in g] for g in after]


def test_an_output_keeps_its_worker_in_all_stores_of_a_unit():
    """K = 40 is three passes with half partials: three stores of each of the 27 outputs."""
    device = machine()
    rng = np.random.default_rng(3)
    x = device.from_host(rng.normal(size=(9, 40)), fp.BINARY16)
    y = device.from_host(rng.normal(size=(40, 3)), fp.BINARY16)
    product = device.matmul(x, y, partials=fp.BINARY16)
    numbers, after = dealt(states(7), 27, 3)
    replay = fp.Replay([np.array(numbers).reshape(3, 9, 3)])
    expected = device.context(fp.BINARY16).replace(bits=replay).matmul(x, y, "AMP_F16_F16")
    assert product.codes().tolist() == expected.codes().tolist()
    assert device.source.states.tolist() == [[list(s) for s in g] for g in after]


def test_elements_of_a_shard_have_no_random_bits_of_their_own():
    device = machine()
    with device.shard(4), pytest.raises(ValueError, match="with Philox alone, got WorkerStreams"):
        device.cast(halves(device, 3), fp.BINARY16)
    assert device.source.states.tolist() == [[list(s) for s in g] for g in states(7)]


def test_a_device_takes_philox_unless_it_is_told():
    assert repr(Device(seed=3).source) == "Philox(seed=3)"
    assert Device().facts.keys() < machine().facts.keys()
    assert machine().facts["elements of a worker"].evidence is Evidence.ASSUMED
    with pytest.raises(ValueError, match="random='mt' is not known; use philox or xoroshiro"):
        Device(random="mt")
    assert repr(machine(3).source) == "WorkerStreams(seed=3, target=small)"
    with pytest.raises(ValueError, match="seed=-1 is out of range"):
        find_source("xoroshiro", -1, MK2)
