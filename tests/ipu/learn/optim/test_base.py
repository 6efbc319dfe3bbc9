"""Applying gradients: nothing is half done, warnings and refusals."""

from __future__ import annotations

import warnings

import pytest

from fpsim import BINARY16, BINARY32, FloatingPointTrap
from ipu.learn.optim import SGD, Adam, RMSProp
from ipu.learn.policy import FP16
from ipu.learn.train import Trainer
from ipu.learn.variables import Variable
from ipu.machine import Device, FpCtl
from tests.ipu.learn.optim.stepping import stepped
from tests.ipu.learn.small import LABELS, X, network


def mixed(device):
    w = Variable(device.from_host([1.0, 2.0], BINARY16), device, "layer/w")
    return w, device.from_host([0.1, 0.2], BINARY32)


@pytest.mark.source("S0-62")
@pytest.mark.parametrize("optimizer", [SGD(0.5), Adam(epsilon=1e-4), RMSProp(0.1, epsilon=1e-4)])
def test_gradients_of_another_format_are_refused(optimizer):
    device = Device()
    w, g = mixed(device)
    with pytest.raises(TypeError, match="gradient of layer/w is binary32, the variable binary16"):
        optimizer.apply_gradients([(g, w)], {})
    assert w.array.values.tolist() == [1.0, 2.0]


@pytest.mark.source("S4-42")
@pytest.mark.parametrize("optimizer", [Adam(0.01, epsilon=1e-8), RMSProp(0.01, epsilon=1e-8)])
def test_an_epsilon_that_underflows_is_warned_of_once(optimizer):
    with pytest.warns(RuntimeWarning, match=r"epsilon 1e-08 rounds to 0 in binary16") as warned:
        stepped(optimizer)
    assert len(warned) == 1


@pytest.mark.source("S4-35")
@pytest.mark.parametrize(
    ("rate", "message"), [(0.01 / 256, "3.90625e-05 is subnormal"), (1e-8, "1e-08 rounds to 0")]
)
def test_a_learning_rate_that_underflows_is_warned_of(rate, message):
    with pytest.warns(RuntimeWarning, match=f"learning rate {message} in binary16"):
        stepped(SGD(rate))


@pytest.mark.parametrize("optimizer", [SGD(1e-5), Adam(1e-5), RMSProp(1e-5)])
def test_nothing_is_said_where_nothing_underflows(optimizer):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        stepped(optimizer, BINARY32)


def test_minimize_is_compute_then_apply():
    complete, parts = (Trainer(network, SGD(0.1, 0.9)) for _ in range(2))
    slots = complete.optimizer.minimize(complete.loss(X, LABELS), complete.variables.trainable, {})
    pairs = parts.optimizer.compute_gradients(parts.loss(X, LABELS), parts.variables.trainable)
    again = parts.optimizer.apply_gradients(pairs, {})
    for name, variable in complete.variables.items():
        assert (variable.array.values == parts.variables[name].array.values).all()
        assert (slots[name][0].values == again[name][0].values).all()


def test_nothing_is_half_done_when_a_trap_fires_in_the_update():
    device = Device(control=FpCtl(oflo=True))
    small, big = (
        Variable(device.from_host([x], BINARY16), device, f"layer/{x:g}") for x in (1.0, 60000.0)
    )
    pairs = [(device.from_host([1.0], BINARY16), small), (device.from_host([-6e4], BINARY16), big)]
    with pytest.raises(FloatingPointTrap):
        SGD(1.0).apply_gradients(pairs, {})
    assert small.array.values.tolist() == [1.0]


def test_nothing_is_half_done_when_an_observer_raises():
    device = Device()
    ws = [Variable(device.from_host([1.0], BINARY32), device, f"layer/{n}") for n in range(2)]

    def observe(update):
        if update.variable is ws[1]:
            raise KeyError

    with pytest.raises(KeyError):
        SGD(1.0).apply_gradients([(w.array, w) for w in ws], {}, observe=observe)
    assert [w.array.values.tolist() for w in ws] == [[1.0], [1.0]]


def test_an_update_can_be_watched():
    updates = []
    training = Trainer(network, SGD(0.05, 0.9), policy=FP16, observe=updates.append)
    training.step(X, LABELS)
    assert [u.variable for u in updates] == training.variables.trainable
    for u in updates:
        expected = training.device.subtract(u.before, u.change)
        assert (u.after.values == expected.values).all()


@pytest.mark.parametrize("bad", [0.0, -1.0, float("nan"), float("inf")])
def test_impossible_learning_rates_are_refused(bad):
    for make in (SGD, Adam, RMSProp):
        with pytest.raises(ValueError, match="is not a learning rate"):
            make(bad)


def test_optimisers_are_named_with_what_is_not_usual():
    assert str(SGD(3e-4, 0.9)) == "SGD(rate=0.0003, momentum=0.9)"
    assert str(SGD(0.1000001)) == "SGD(rate=0.1000001)"
    assert str(Adam(0.01, epsilon=1e-4, format=BINARY32)) == (
        "Adam(rate=0.01, epsilon=0.0001, format=binary32)"
    )


def test_a_variable_that_the_loss_does_not_use_is_named():
    training = Trainer(network, SGD(0.05))
    training.step(X, LABELS)
    training.variables["unused"] = Variable(
        training.device.zeros((1,), BINARY32), training.device, "unused"
    )
    with pytest.raises(ValueError, match="the loss does not depend on unused"):
        training.step(X, LABELS)


@pytest.mark.parametrize(
    "optimizer", [SGD(0.5, momentum=0.5), Adam(0.5), RMSProp(0.5, momentum=0.5, initial=1.0)]
)
def test_slots_follow_a_scale_of_the_gradients_that_changes(optimizer):
    """Those of gradients times four are, after a ratio of a quarter, those of the gradients."""
    device = Device(f32_denormals="ieee")

    def slots(rule, scale):
        w = Variable(device.from_host([1.0, 2.0], BINARY32), device, "layer/w")
        g = device.from_host([0.3 * scale, -0.7 * scale], BINARY32)
        return rule.apply_gradients([(g, w)], {})

    expected = slots(optimizer, 1.0)["layer/w"]
    assert any((slot.values != 0).all() for slot in expected)
    got = optimizer.rescaled(device, slots(optimizer.for_scaled(4.0), 4.0), 0.25)["layer/w"]
    assert [a.values.tolist() for a in got] == [a.values.tolist() for a in expected]
