"""Sums over replicas in one call (differential: one addition of a device after the other)."""

from __future__ import annotations

import numpy as np
import pytest

from fpsim import BFLOAT16, BINARY16, BINARY32, FloatingPointTrap
from ipu.learn.address import Numbering
from ipu.machine import Device, FpCtl
from ipu.plan import collectives
from ipu.plan.collectives import reduce_sum
from ipu.plan.orders import Order, additions, leaves, leaves_of_chunks, parts, ranges
from tests.tiers import pick

CELL = 3
ORDERS = [order.value for order in Order]


def tensors_on(devices, n, fmt):
    """Some near the largest finite number, some subnormal, some equal but for the sign."""
    rng = np.random.default_rng(n)
    shape = len(devices), n
    values = rng.standard_normal(shape) * 2.0 ** rng.integers(-26, 15, shape)
    values[1::2, ::5] = -values[: len(devices) // 2 * 2 : 2, ::5]
    values[:, 1::7] = np.sign(values[:, 1::7]) * float(BINARY16.max) * 0.75
    return [device.from_host(row, fmt) for device, row in zip(devices, values, strict=True)]


def left_behind(numbering):
    device = numbering.device
    flags = {fmt.name: int(context.flags) for fmt, context in device._contexts.items()}
    counts = None if device.counts is None else sorted(map(str, device.counts))
    return (
        device.status_word, flags, device.vector_cycles, device.clock.operation, numbering.numbers,
        device.source.seed, counts,
    )


def outcome(n, fmt, order, replicas, *, in_one_call, ring="flat", private=False, **choices):
    target = "hypothetical" if fmt is BFLOAT16 else "mk2"
    devices = [Device(target, seed=9, **choices) for _ in range(replicas)]
    numberings = [Numbering(d, r, private=private) for r, d in enumerate(devices)]
    for numbering in numberings:
        numbering.device.in_one_call, numbering.step = in_one_call, 5
    tensors = tensors_on(devices, n, fmt)
    total = reduce_sum(tensors, numberings, CELL, order, ring)
    assert total.context is devices[0].context(fmt)
    return total.codes().tolist(), [left_behind(numbering) for numbering in numberings]


def agree(monkeypatch, *arguments, **choices):
    """One call gives what the additions give, and makes none of them."""
    alone = outcome(*arguments, in_one_call=False, **choices)
    with monkeypatch.context() as patch:
        patch.setattr(collectives, "add_at", None)
        together = outcome(*arguments, in_one_call=True, **choices)
    assert together == alone
    return alone


@pytest.mark.parametrize("esr", [False, True])
@pytest.mark.parametrize("order", ORDERS)
def test_one_call_gives_what_the_additions_give(order, esr, monkeypatch):
    for fmt in (BINARY16, BINARY32, BFLOAT16):
        for n in pick((37,), (1, 37, 512), (1, 2, 7, 37, 512, 20_000)):
            _, devices = agree(monkeypatch, n, fmt, order, 8, control=FpCtl(esr=esr))
            overflows = any(status for status, *_ in devices)
            assert overflows == (fmt is BINARY16 and n > 1)


@pytest.mark.parametrize("ring", ["flat", "interleaved"])
@pytest.mark.parametrize("private", [False, True])
def test_keys_and_rings_are_those_of_the_replicas(private, ring, monkeypatch):
    control = FpCtl(esr=True)
    for replicas, order in ((2, "tf_ring"), (5, "tree"), (7, "meet_in_middle_ring")):
        agree(
            monkeypatch, 50, BINARY16, order, replicas, ring=ring, private=private, control=control
        )
    private_sums, common_sums = (
        outcome(50, BINARY16, "tree", 4, in_one_call=True, private=choice, control=control)[0]
        for choice in (True, False)
    )
    assert private_sums != common_sums


def test_parts_of_several_blocks_draw_by_their_place(monkeypatch):
    n = 2 * pick(8192 + 40, 20_000, 70_000)
    agree(monkeypatch, n, BINARY16, "tf_ring", 2, control=FpCtl(esr=True))
    agree(monkeypatch, n, BINARY16, "bidirectional_ring_pair", 2, control=FpCtl(nanoo=True))


def test_additions_that_are_looked_at_run_alone():
    """Counts have a row for each, and a trap stops the first one that overflows."""
    counted = [
        outcome(12, BINARY16, "tree", 4, in_one_call=choice, control=FpCtl(esr=True), count=True)
        for choice in (True, False)
    ]
    assert counted[0] == counted[1]
    assert all(counts for *_, counts in counted[0][1])
    with pytest.raises(FloatingPointTrap, match=r"add raised OVERFLOW"):
        outcome(12, BINARY16, "tree", 4, in_one_call=True, control=FpCtl(oflo=True))


def test_devices_that_round_in_other_ways_add_alone():
    """Each addition follows the control register of the replica that makes it."""
    sums = []
    for second in (FpCtl(), FpCtl(nanoo=True)):
        devices = [Device(), Device(control=second)]
        numberings = [Numbering(device, r) for r, device in enumerate(devices)]
        tensors = [device.from_host([60000.0, 60000.0], BINARY16) for device in devices]
        sums.append(reduce_sum(tensors, numberings, CELL, "tf_ring").tolist())
    assert sums[0] == [65504.0, 65504.0]
    assert sums[1][0] == 65504.0
    assert np.isnan(sums[1][1])


@pytest.mark.parametrize("ring", ["flat", "interleaved"])
@pytest.mark.parametrize("order", ORDERS)
def test_the_trees_of_all_chunks_have_one_shape_and_these_leaves(order, ring):
    for replicas in (2, 4, 8, 16):
        n = 3 * replicas + 1
        shapes = set()
        rows = ranges(order, replicas, n, 10**6)
        for row, part in zip(rows, parts(order, replicas, n, 10**6, ring), strict=True):
            at_leaves = leaves(part.tree)
            of_chunks = leaves_of_chunks(row.order, replicas, ring)
            assert of_chunks[row.chunk].tolist() == [*at_leaves]
            place = {replica: leaf for leaf, replica in enumerate(at_leaves)}
            shapes.add(tuple(
                (place.get(a.left, a.left), place.get(a.right, a.right))
                for a in additions(part.tree)
            ))
        assert len(shapes) == 1
