"""A device for several replicas computes what a device for each of them does (differential)."""

from __future__ import annotations

import numpy as np
import pytest

from fpsim import BINARY16, BINARY32, Array
from fpsim.state.bits import Philox
from ipu import ops
from ipu.machine import Device, FpCtl
from ipu.machine.replica_device import ReplicaDevice
from ipu.machine.stacked import NotTogetherError, StackedArray, StackedValues

REPLICAS, SEEDS = 3, (7, 2**63, 9)
CONTROLS = {"SR": FpCtl(esr=True), "RNE": FpCtl(), "nanoo": FpCtl(esr=True, nanoo=True)}
LABELS = np.array([[0, 3, 1], [2, 2, 2], [3, 0, 0]])
_LOSS = ops.softmax_cross_entropy
MASK = np.array([[True, False, True, True]] * 3)

#: Verbs on x, y (3, 4) of each replica and w (4, 2), v (4) that all have.
VERBS = {
    "add": lambda d, x, y, w, v: d.add(x, y),
    "add a row": lambda d, x, y, w, v: d.add(x, v),
    "subtract from a number": lambda d, x, y, w, v: d.subtract(1.0, x),
    "multiply a column": lambda d, x, y, w, v: d.multiply(x, d.reduce_sum(y, 1)),
    "divide": lambda d, x, y, w, v: d.divide(x, y),
    "divide what all have": lambda d, x, y, w, v: d.divide(v, 3.0),
    "in place": lambda d, x, y, w, v: d.add(d.multiply(x, 1.0), v, out=d.multiply(x, 2.0)),
    "sqrt": lambda d, x, y, w, v: d.sqrt(d.multiply(x, x)),
    "unscale": lambda d, x, y, w, v: d.unscale(x, 96.0),
    "negative": lambda d, x, y, w, v: d.negative(x),
    "exp": lambda d, x, y, w, v: d.exp(x),
    "exp in binary32": lambda d, x, y, w, v: d.exp(d.cast(x, BINARY32)),
    "sigmoid": lambda d, x, y, w, v: d.sigmoid(y),
    "cast up and down": lambda d, x, y, w, v: d.cast(
        d.divide(d.cast(x, BINARY32), 3.0), BINARY16),
    "relu": lambda d, x, y, w, v: d.relu(x),
    "select": lambda d, x, y, w, v: d.select(MASK, x),
    "select what all have": lambda d, x, y, w, v: d.select(MASK[0], v),
    "mask": lambda d, x, y, w, v: d.select(d.random_mask(x.shape, 0.5), x),
    "mask what all have": lambda d, x, y, w, v: d.select(d.random_mask(v.shape, 0.5), v),
    "sum": lambda d, x, y, w, v: d.reduce_sum(x, 0),
    "sum of all in binary32": lambda d, x, y, w, v: d.reduce_sum(
        d.cast(x, BINARY32), (0, 1), scale=0.3),
    "sum of what all have": lambda d, x, y, w, v: d.reduce_sum(w, 0),
    "squares": lambda d, x, y, w, v: d.reduce_squares(y, (1,)),
    "squares of binary32": lambda d, x, y, w, v: d.reduce_squares(d.cast(y, BINARY32), (0,)),
    "maximum of rows": lambda d, x, y, w, v: d.reduce_max(x, -1),
    "product": lambda d, x, y, w, v: d.matmul(x, w),
    "product of transposed": lambda d, x, y, w, v: d.matmul(x.mT, y),
    "product with half partials": lambda d, x, y, w, v: d.matmul(x, w, partials="half"),
    "product in binary32": lambda d, x, y, w, v: d.matmul(x, w, to=BINARY32),
    "product of what all have": lambda d, x, y, w, v: d.matmul(w.mT, w),
    "losses of labels": lambda d, x, y, w, v: _LOSS.forward(d, x, labels=LABELS)[0],
    "slopes of labels": lambda d, x, y, w, v: _LOSS.vjps[0](
        d, d.from_host(0.3, BINARY32), _LOSS.forward(d, x, labels=LABELS)[1], labels=LABELS),
    "rectifier of NaN": lambda d, x, y, w, v: d.relu(d.divide(x, 0.0)),
    "maximum of NaN": lambda d, x, y, w, v: d.reduce_max(d.divide(x, 0.0), 0),
    "sum of NaN": lambda d, x, y, w, v: d.reduce_sum(d.divide(x, 0.0), 1),
    "squares of NaN": lambda d, x, y, w, v: d.reduce_squares(d.divide(x, 0.0), (0, 1)),
    "sum over no axis": lambda d, x, y, w, v: d.reduce_sum(x, ()),
    "several": lambda d, x, y, w, v: d.add(d.multiply(d.matmul(x, w), 3.0), d.matmul(y, w)),
}


def _numbers(seed, shape, large):
    numbers = np.random.default_rng(seed).standard_normal(shape)
    if large:  # the last replica's products overflow
        numbers[-1] *= 2000.0
    return numbers


def _alone(verb, replica, control, numbers, *, common):
    """Value and outcome on a device of one replica."""
    device = Device(control=control, seed=5)
    device.source = Philox(5 if common else SEEDS[replica])
    device.clock.operation = 100
    x, y = (device.from_host(n[replica], BINARY16) for n in numbers[:2])
    w, v = (device.from_host(n, BINARY16) for n in numbers[2:])
    labelled = LABELS
    try:
        globals()["LABELS"] = labelled[replica] if labelled.ndim == 2 else labelled
        value = verb(device, x, y, w, v)
    finally:
        globals()["LABELS"] = labelled
    flags = {f.name: int(device.context(f).core.raised) for f in (BINARY16, BINARY32)}
    return value, (
        device.status_word, flags, device.vector_cycles, device.clock.operation,
        device.ledger.table(),
    )


def _together(verb, control, numbers, *, common):
    """Values, and the outcome on the device of each replica."""
    devices = [Device(control=control, seed=5) for _ in range(REPLICAS)]
    device = ReplicaDevice(devices[0], 5, SEEDS)
    if not common:
        device.source = device.keys
    device.clock.operation = 100
    x, y = (device.stacked(n, BINARY16) for n in numbers[:2])
    w, v = (device.from_host(n, BINARY16) for n in numbers[2:])
    labelled = LABELS
    try:
        globals()["LABELS"] = StackedValues(labelled)
        value = verb(device, x, y, w, v)
    finally:
        globals()["LABELS"] = labelled
    device.give_to(devices)
    return value, [
        (
            of_replica.status_word,
            {f.name: int(of_replica.context(f).core.raised) for f in (BINARY16, BINARY32)},
            of_replica.vector_cycles, device.clock.operation, of_replica.ledger.table(),
        )
        for of_replica in devices
    ]


@pytest.mark.parametrize("common", [False, True], ids=["own bits", "equal bits"])
@pytest.mark.parametrize("control", CONTROLS)
@pytest.mark.parametrize("name", VERBS)
def test_a_verb_gives_each_replica_what_its_own_device_gives(name, control, common):
    for large in (False, True):
        numbers = [
            _numbers(0, (REPLICAS, 3, 4), large), _numbers(1, (REPLICAS, 3, 4), False),
            _numbers(2, (4, 2), False), _numbers(3, (4,), False),
        ]
        value, outcomes = _together(VERBS[name], CONTROLS[control], numbers, common=common)
        for replica in range(REPLICAS):
            alone, outcome = _alone(
                VERBS[name], replica, CONTROLS[control], numbers, common=common
            )
            row = value.stack[replica] if isinstance(value, StackedArray) else value.carrier
            assert value.shape == alone.shape
            assert value.format == alone.format
            assert np.array_equal(row.view("u4"), alone.carrier.view("u4"))
            assert outcomes[replica] == outcome


def test_what_all_replicas_have_is_computed_once():
    device = ReplicaDevice(Device(), 0, SEEDS)
    x = device.from_host([1.0, 3.0], BINARY16)
    y = device.divide(x, 3.0)
    assert type(y) is Array
    stochastic = ReplicaDevice(Device(control=FpCtl(esr=True)), 0, range(64))
    assert type(stochastic.divide(stochastic.from_host([1.0], BINARY16), 3.0)) is Array
    stochastic.source = stochastic.keys
    z = stochastic.divide(stochastic.from_host([1.0], BINARY16), 3.0)
    assert isinstance(z, StackedArray)
    assert len(np.unique(z.stack)) == 2


def test_equal_arrays_are_joined_to_one_and_others_are_stacked():
    devices = [Device() for _ in range(2)]
    device = ReplicaDevice(devices[0], 0, (0, 1))
    zeros = [d.from_host([0.0], BINARY16) for d in devices]
    assert type(device.joined(zeros)) is Array
    signed = [zeros[0], devices[1].from_host([-0.0], BINARY16)]
    assert device.joined(signed).stack.tolist() == [[0.0], [-0.0]]


# Rules that need one replica at a time ----------------------------------------------------------


def _of_values(device, x, *, factor):
    """Raises flags and draws, then looks at the values."""
    y = device.multiply(x, factor)
    positive = y.carrier > 0
    return device.divide(y, 3.0), (positive, x.format, y.shape)


def _back(device, gradient, saved):
    positive, _, _ = saved
    return device.select(positive, gradient)


@pytest.mark.parametrize("control", CONTROLS)
def test_a_rule_that_looks_at_values_runs_replica_by_replica(control):
    numbers = _numbers(0, (REPLICAS, 3, 4), True)
    devices = [Device(control=CONTROLS[control], seed=5) for _ in range(REPLICAS)]
    device = ReplicaDevice(devices[0], 5, SEEDS)
    device.source = device.keys
    y, saved = device.compute(_of_values, device.stacked(numbers, BINARY16), factor=100.0)
    g = device.compute(_back, y, saved)
    device.give_to(devices)
    for replica, of_replica in enumerate(devices):
        single = Device(control=CONTROLS[control], seed=5)
        single.source = Philox(SEEDS[replica])
        x = single.from_host(numbers[replica], BINARY16)
        alone, saved_alone = _of_values(single, x, factor=100.0)
        gradient = _back(single, alone, saved_alone)
        assert np.array_equal(y.stack[replica].view("u4"), alone.carrier.view("u4"))
        assert np.array_equal(g.stack[replica].view("u4"), gradient.carrier.view("u4"))
        assert single.clock.operation == device.clock.operation
        assert single.vector_cycles == of_replica.vector_cycles
        assert single.status_word == of_replica.status_word
        core = single.context(BINARY16).core
        assert core.raised == of_replica.context(BINARY16).core.raised
    assert saved[1:] == (BINARY16, (3, 4))


def _unequal(device, x):
    if float(x.carrier[0]) > 0:
        x = device.add(x, 1.0)
    return device.add(x, 1.0)


def test_replicas_that_do_different_work_are_refused():
    device = ReplicaDevice(Device(), 0, (0, 1))
    x = device.stacked([[1.0], [-1.0]], BINARY16)
    with pytest.raises(NotTogetherError, match="different work"):
        device.compute(_unequal, x)


@pytest.mark.parametrize(
    "use",
    [
        lambda device, x: x.carrier,
        lambda device, x: float(x),
        lambda device, x: x + x,
        lambda device, x: x[np.array([0])],
        lambda device, x: device.maximum(x, 0.0),
        lambda device, x: device.source.seed,
        lambda device, x: device.matmul(x.reshape(1, 2), x.reshape(2, 1), k_split=2),
        lambda device, x: device.add(device.zeros((2,), BINARY32), x),
        lambda device, x: device.conv2d(
            x.reshape(1, 1, 1, 2), device.zeros((1, 1, 2, 1), BINARY16)),
    ],
)
def test_what_needs_one_replica_is_refused(use):
    device = ReplicaDevice(Device(), 0, (0, 1))
    device.source = device.keys
    with pytest.raises(NotTogetherError):
        use(device, device.stacked(np.zeros((2, 2)), BINARY16))
