"""The tape: gradients, costs, and what it keeps alive (golden)."""

from __future__ import annotations

import gc
import weakref

import numpy as np
import pytest

import fpsim
from fpsim import BINARY16, BINARY32
from ipu import ops
from ipu.learn.mode import training
from ipu.learn.nn import batch_norm
from ipu.learn.tensor import (
    OperationCost,
    Primitive,
    Tensor,
    gradients,
    nodes,
    saved_bytes,
    total_cost,
)
from ipu.learn.variables import Variable, Variables, variable_scope
from ipu.machine import Device, FpCtl
from ipu.machine import device as device_module
from ipu.machine.late import Late
from ipu.ops import norms


def leaf(device, shape):
    values = np.random.default_rng(1).standard_normal(shape)
    return Variable(device.from_host(values, BINARY16), device, "x")


def test_values_that_no_rule_has_saved_are_freed():
    x = leaf(Device(), (4, 3))
    before = ops.scale(x, factor=2.0)
    reference = weakref.ref(before.array.values)
    after = ops.relu(before)
    saved = weakref.ref(after.array.values)
    last = ops.scale(after, factor=2.0)
    del before, after
    gc.collect()
    assert reference() is None
    assert saved() is not None
    assert len(nodes(last)) == 3


def test_the_tape_forgets_the_centred_values_of_a_norm(monkeypatch):
    device, results = Device(), []
    usual = norms.batch_statistics

    def watched(*args):
        result = usual(*args)
        results.append(weakref.ref(result.centred.values))
        return result

    monkeypatch.setattr(norms, "batch_statistics", watched)
    variables = Variables(device, 0)
    with variables, variable_scope("all", use_resource=True), training() as updates:
        y = batch_norm(Tensor(device.from_host(np.eye(4), BINARY16), device), "norm")
        updates.apply()
    gc.collect()
    assert y.node is not None
    assert "statistics" not in y.node.options
    assert [m() for m in results] == [None]


def machine() -> Device:
    return Device(f32_denormals="ieee")


def leaves(device, values, fmt=BINARY32):
    return [Variable(device.from_host(x, fmt), device, f"x{k}") for k, x in enumerate(values)]


def test_contributions_to_one_tensor_are_added():
    device = machine()
    (x,) = leaves(device, [[3.0, -1.0]])
    y = ops.add(ops.scale(x, factor=2.0), ops.relu(x))
    (gradient,) = gradients(y, [x], device.from_host([1.0, 1.0], BINARY32))
    assert gradient.values.tolist() == [3.0, 2.0]


def test_gradients_of_tensors_on_the_way_are_found_and_strangers_have_none():
    device = machine()
    x, stranger = leaves(device, [[2.0], [1.0]])
    middle = ops.scale(x, factor=4.0)
    y = ops.scale(middle, factor=8.0)
    one = device.from_host([1.0], BINARY32)
    results = gradients(y, [middle, x, stranger], one)
    assert [None if g is None else g.values.tolist() for g in results] == [[8.0], [32.0], None]


def test_the_tape_keeps_what_backward_needs_and_knows_the_cost():
    device = machine()
    x, w = leaves(device, [np.ones((4, 8)), np.ones((8, 2))], BINARY16)
    y = ops.relu(ops.matmul(x, w))
    assert saved_bytes(y) == 2 * (4 * 8 + 8 * 2 + 4 * 2)
    assert total_cost(y) == OperationCost(macs=4 * 8 * 2, results=4 * 2, cycles=3 * 2)


def test_nothing_is_taped_without_variables():
    device = machine()
    x = Tensor(device.from_host([1.0], BINARY32), device)
    assert ops.relu(x).node is None


def test_a_primitive_from_outside_is_one_entry():
    square = Primitive(
        "square",
        lambda device, x: (device.multiply(x, x), (x,)),
        (lambda device, g, saved: device.multiply(g, device.multiply(saved[0], 2.0)),),
    )
    device = machine()
    (x,) = leaves(device, [[3.0]])
    (gradient,) = gradients(square(x), [x], device.from_host([1.0], BINARY32))
    assert gradient.values.tolist() == [6.0]


def _trained(threads: int):
    """Loss, gradients and what a backward pass leaves on its device, in the third step."""
    before = fpsim.get_threads()
    fpsim.set_threads(threads)
    try:
        device = Device(control=FpCtl(esr=True), seed=5)
        rng = np.random.default_rng(2)
        first, second = (
            Variable(device.from_host(rng.standard_normal(s) / 8, BINARY16), device, name)
            for s, name in [((3, 3, 4, 8), "first"), ((8, 8), "second")]
        )
        x = Tensor(device.from_host(rng.standard_normal((2, 6, 6, 4)), BINARY16), device)
        states = []

        def status(device, gradient, saved, **options):
            states.append((device.status, device.context(BINARY16).flags, device.clock.operation))
            return gradient

        look = Primitive("look", lambda device, x: (x, ()), (status,))
        for _ in range(3):
            hidden = look(ops.relu(ops.conv2d(x, first)))
            rows = ops.reshape(hidden, shape=(72, 8))
            y = look(ops.matmul(ops.matmul(rows, second), second))
            seed = device.from_host(np.full(y.shape, 40000.0), BINARY16)
            results = gradients(y, [first, second], seed)
        values = [result.values.tolist() for result in results]
        return values, states, device.status, device.clock.operation, device.ledger.table()
    finally:
        fpsim.set_threads(before)


def test_gradients_that_come_late_change_nothing(monkeypatch):
    """Values, random bits, flags at every moment, and the ledger."""
    late = []
    usual = Late.__init__
    monkeypatch.setattr(device_module, "WORTH", 1)
    monkeypatch.setattr(Late, "__init__", lambda *args: late.append(usual(*args)))
    alone = _trained(1)
    assert not late
    several = _trained(3)
    assert late
    assert several == alone
    assert alone[2].oflo


def test_gradients_of_computed_weights_are_there_at_once(monkeypatch):
    """A backward rule needs them next."""
    monkeypatch.setattr(Late, "__init__", lambda *_: pytest.fail("late"))
    monkeypatch.setattr(device_module, "WORTH", 1)
    before = fpsim.get_threads()
    fpsim.set_threads(2)
    try:
        device = Device()
        w = leaf(device, (3, 3))
        for _ in range(2):
            x = Tensor(device.from_host(np.eye(3), BINARY16), device)
            y = ops.matmul(x, ops.scale(w, factor=2.0))
            gradients(y, [w], device.from_host(np.eye(3), BINARY16))
    finally:
        fpsim.set_threads(before)
