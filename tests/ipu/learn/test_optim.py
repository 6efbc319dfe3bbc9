"""Update rules step by step: differential against the same equations in numpy's float16 and
float32, whose operations are rounded once as well; laws of scaling; warnings and refusals."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

from fpsim import BINARY16, BINARY32, FloatingPointTrap
from ipu.learn.optim import SGD, Adam, AdamW, CastGradientsSGD, RMSProp
from ipu.learn.policy import FP16
from ipu.learn.train import Trainer
from ipu.learn.variables import Variable
from ipu.machine import Device, FpCtl
from tests.ipu.learn.small import LABELS, X, network

NATIVE = {BINARY16: np.float16, BINARY32: np.float32}
single = np.float32


# The equations in numpy: rule(number type, w, gradients) -> w after each of them -----------------


def sgd(T, w, gradients, rate=0.03, momentum=0.0):
    v = np.zeros_like(w)
    for g in gradients:
        v = T(momentum) * v + g
        w = w - T(rate) * v
        yield w


def nesterov(T, w, gradients, rate=0.03, momentum=0.9):
    v = np.zeros_like(w)
    for g in gradients:
        v = T(momentum) * v + g
        w = w - (g * T(rate) + (v * T(momentum)) * T(rate))
        yield w


def rmsprop(T, w, gradients, rate=0.03, decay=0.9, momentum=0.5, epsilon=1e-4, initial=0.0):
    ms, v = np.full_like(w, initial), np.zeros_like(w)
    for g in gradients:
        ms = (g * g) * (T(1) - T(decay)) + ms * T(decay)
        v = v * T(momentum) + (g * T(rate)) / np.sqrt(ms + T(epsilon))
        w = w - v
        yield w


def adam(T, w, gradients, rate=0.03, beta1=0.9, beta2=0.999, epsilon=1e-4):
    m, v = np.zeros_like(w), np.zeros_like(w)
    p1, p2 = single(beta1), single(beta2)
    for g in gradients:
        alpha = (T(rate) * np.sqrt(T(1) - T(p2))) / (T(1) - T(p1))
        m = m + (g - m) * (T(1) - T(beta1))
        v = v + (g * g - v) * (T(1) - T(beta2))
        w = w - (m * alpha) / (np.sqrt(v) + T(epsilon))
        p1, p2 = p1 * single(beta1), p2 * single(beta2)
        yield w


def adamw(T, w, gradients, rate=0.03, beta1=0.9, beta2=0.999, epsilon=1e-4, decay=0.1):
    m, v = np.zeros_like(w), np.zeros_like(w)
    p1, p2 = single(beta1), single(beta2)
    for g in gradients:
        m = T(beta1) * m + T(1 - beta1) * g
        v = T(beta2) * v + (T(1 - beta2) * g) * g
        left1, left2 = T(single(1) - p1), T(single(1) - p2)
        u = (m / left1) / (np.sqrt(v / left2) + T(epsilon)) + T(decay) * w
        w = w - T(rate) * u
        p1, p2 = p1 * single(beta1), p2 * single(beta2)
        yield w


RULES = {
    "sgd": (SGD(0.03), sgd, {}),
    "momentum": (SGD(0.03, 0.9), sgd, {"momentum": 0.9}),
    "nesterov": (SGD(0.03, 0.9, nesterov=True), nesterov, {}),
    "rmsprop": (RMSProp(0.03, 0.9, 0.5, 1e-4), rmsprop, {}),
    "rmsprop from one": (RMSProp(0.03, momentum=0.5, epsilon=1e-4, initial=1.0), rmsprop,
                         {"initial": 1.0}),
    "adam": (Adam(0.03, epsilon=1e-4), adam, {}),
    "adamw": (AdamW(0.03, epsilon=1e-4, weight_decay=0.1), adamw, {}),
}  # fmt: skip


@pytest.mark.parametrize("fmt", NATIVE)
@pytest.mark.parametrize("name", RULES)
def test_every_rule_is_its_equation_in_numpy_bit_for_bit(name, fmt):
    optimizer, equation, choices = RULES[name]
    T, rng, device = NATIVE[fmt], np.random.default_rng(2), Device(f32_denormals="ieee")
    start, slopes = rng.normal(size=50), rng.normal(size=(10, 50)) * 2.0 ** rng.integers(-8, 3, 50)
    w = Variable(device.from_host(start, fmt), device, "layer/w")
    slots = {}
    expected = equation(T, start.astype(T), slopes.astype(T), **choices)
    for slope, wanted in zip(slopes, expected, strict=True):
        slots = optimizer.apply_gradients([(device.from_host(slope, fmt), w)], slots)
        assert (w.array.to_numpy() == wanted).all()
    assert {s.shape for s in slots["layer/w"]} <= {(50,), ()}


@pytest.mark.parametrize("name", RULES)
def test_rules_round_stochastically_with_the_device_and_repeat_with_its_seed(name):
    found = []
    for seed in (1, 1, 2):
        device = Device(control=FpCtl(esr=True), seed=seed)
        w = Variable(device.from_host(np.linspace(-1, 1, 64), BINARY16), device, "layer/w")
        g = device.from_host(np.linspace(1, 2, 64), BINARY16)
        RULES[name][0].apply_gradients([(g, w)], {})
        found.append(w.array.codes().tolist())
    assert found[0] == found[1] != found[2]


@pytest.mark.parametrize("optimizer", [SGD(0.1, 0.5, BINARY32), Adam(0.1, format=BINARY32)])
def test_the_rule_may_compute_in_a_wider_format_than_the_variable(optimizer):
    device = Device()
    start, slope = np.linspace(-2, 2, 40), np.linspace(0.5, 3, 40)
    half, wide = (
        Variable(device.from_host(start.astype(np.float16), fmt), device, "layer/w")
        for fmt in (BINARY16, BINARY32)
    )
    g = device.from_host(slope, BINARY16)
    slots = optimizer.apply_gradients([(g, half)], {})
    optimizer.apply_gradients([(device.cast(g, BINARY32), wide)], {})
    assert (half.array.to_numpy() == wide.array.to_numpy().astype(np.float16)).all()
    assert {s.format for s in slots["layer/w"]} == {BINARY32}


# Scaling --------------------------------------------------------------------------------------


@pytest.mark.source("S4-36")
@pytest.mark.parametrize("make", [lambda e: RMSProp(0.01, epsilon=e * e), lambda e: Adam(0.01,
                                  epsilon=e), lambda e: AdamW(0.01, epsilon=e)])  # fmt: skip
def test_adaptive_updates_do_not_change_with_the_gradients_scale_if_epsilon_follows(make):
    """Powers of two only move exponents; RMSProp's epsilon stands inside the root, so squared."""
    found = {}
    for scale, factor in ((1.0, 1.0), (256.0, 256.0), (256.0, 1.0)):
        device = Device(f32_denormals="ieee")
        w = Variable(device.from_host(np.linspace(-1, 1, 30), BINARY32), device, "layer/w")
        optimizer, slots = make(1e-3 * factor), {}
        for step in range(4):
            slope = np.cos(step + np.arange(30.0)).astype(np.float32) * scale
            g = device.from_host(slope, BINARY32)
            slots = optimizer.apply_gradients([(g, w)], slots)
        found[scale, factor] = w.array.values
    assert (found[256.0, 256.0] == found[1.0, 1.0]).all()
    assert (found[256.0, 1.0] != found[1.0, 1.0]).any()
    np.testing.assert_allclose(found[256.0, 1.0], found[1.0, 1.0], atol=0.04)


@pytest.mark.source("S4-34")
def test_only_rules_linear_in_the_gradient_say_so():
    assert SGD(0.1).linear
    assert SGD(0.1, 0.9, nesterov=True).linear
    assert not any(rule.linear for rule in (Adam(), AdamW(), RMSProp(0.1)))


# Formats of gradients -------------------------------------------------------------------------


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


@pytest.mark.source("S0-62")
@pytest.mark.source("S0-63")
def test_a_cast_in_apply_gradients_lets_them_pass():
    """The pattern as users write it, and the class that is there."""

    class Users(SGD):
        def apply_gradients(self, pairs, slots, **options):
            cast = [(v.device.cast(g, v.dtype), v) for g, v in pairs]
            return super().apply_gradients(cast, slots, **options)

    for optimizer in (Users(0.5), CastGradientsSGD(0.5)):
        device = Device()
        w, g = mixed(device)
        optimizer.apply_gradients([(g, w)], {})
        half = np.float16
        expected = half([1, 2]) - half(0.5) * g.values.astype(half)
        assert w.dtype == BINARY16
        assert (w.array.to_numpy() == expected).all()


# What is lost in the format -------------------------------------------------------------------


def stepped(optimizer, fmt=BINARY16):
    device = Device()
    w = Variable(device.from_host([1.0], fmt), device, "layer/w")
    g = device.from_host([1.0], fmt)
    slots = optimizer.apply_gradients([(g, w)], {})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        optimizer.apply_gradients([(g, w)], slots)


@pytest.mark.source("S4-42")
@pytest.mark.parametrize("optimizer", [Adam(0.01, epsilon=1e-8), RMSProp(0.01, epsilon=1e-8)])
def test_an_epsilon_that_underflows_is_warned_of_once(optimizer):
    with pytest.warns(RuntimeWarning, match=r"epsilon 1e-08 rounds to 0 in binary16") as said:
        stepped(optimizer)
    assert len(said) == 1


@pytest.mark.source("S4-42")
def test_an_epsilon_of_zero_divides_a_still_weight_by_zero():
    """With eps = 0 in binary16 a gradient of zero gives 0/0: INV, and NaN weights."""
    device = Device()
    w = Variable(device.from_host([1.0], BINARY16), device, "layer/w")
    with pytest.warns(RuntimeWarning, match="epsilon"):
        Adam(0.01, epsilon=1e-8).apply_gradients([(device.from_host([0.0], BINARY16), w)], {})
    assert np.isnan(w.array.values).all()
    assert device.status.inv


@pytest.mark.source("S4-35")
@pytest.mark.parametrize(
    ("rate", "said"), [(0.01 / 256, "3.90625e-05 is subnormal"), (1e-8, "1e-08 rounds to 0")]
)
def test_a_learning_rate_that_underflows_is_warned_of(rate, said):
    with pytest.warns(RuntimeWarning, match=f"learning rate {said} in binary16"):
        stepped(SGD(rate))


def test_a_start_that_overflows_with_the_loss_scale_is_warned_of():
    with pytest.warns(RuntimeWarning, match="initial 65536 overflows in binary16; scale the loss"):
        stepped(RMSProp(0.01, epsilon=1e-4, initial=1.0).for_scaled(256.0))


@pytest.mark.parametrize("optimizer", [SGD(1e-5), Adam(1e-5), RMSProp(1e-5)])
def test_nothing_is_said_where_nothing_underflows(optimizer):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        stepped(optimizer, BINARY32)


# Around the rule ------------------------------------------------------------------------------


def test_minimize_is_compute_then_apply():
    whole, parts = (Trainer(network, SGD(0.1, 0.9)) for _ in range(2))
    slots = whole.optimizer.minimize(whole.loss(X, LABELS), whole.variables.trainable, {})
    pairs = parts.optimizer.compute_gradients(parts.loss(X, LABELS), parts.variables.trainable)
    again = parts.optimizer.apply_gradients(pairs, {})
    for name, variable in whole.variables.items():
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
    seen = []
    made = Trainer(network, SGD(0.05, 0.9), policy=FP16, observe=seen.append)
    made.step(X, LABELS)
    assert [u.variable for u in seen] == made.variables.trainable
    for u in seen:
        expected = made.device.subtract(u.before, u.change)
        assert (u.after.values == expected.values).all()


@pytest.mark.parametrize("bad", [0.0, -1.0, float("nan"), float("inf")])
def test_impossible_learning_rates_are_refused(bad):
    for make in (SGD, Adam, RMSProp):
        with pytest.raises(ValueError, match="is no learning rate"):
            make(bad)


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: SGD(0.1, 1.0), "momentum=1.0 is out of range; use 0 up to below 1"),
        (lambda: SGD(0.1, nesterov=True), "nesterov=True needs momentum"),
        (lambda: Adam(beta2=-0.1), "beta2=-0.1 is out of range"),
        (lambda: Adam(epsilon=float("nan")), "epsilon=nan is out of range"),
        (lambda: AdamW(weight_decay=-1.0), "weight_decay=-1.0 is out of range"),
        (lambda: RMSProp(0.1, initial=float("inf")), "initial=inf is out of range"),
    ],
)
def test_impossible_choices_are_refused(make, sentence):
    with pytest.raises(ValueError, match=sentence):
        make()


def test_optimisers_are_named_with_what_is_not_usual():
    assert str(SGD(3e-4, 0.9)) == "SGD(rate=0.0003, momentum=0.9)"
    assert str(SGD(0.1000001)) == "SGD(rate=0.1000001)"
    assert str(Adam(0.01, epsilon=1e-4, format=BINARY32)) == (
        "Adam(rate=0.01, epsilon=0.0001, format=binary32)"
    )


def test_a_variable_that_the_loss_does_not_use_is_named():
    made = Trainer(network, SGD(0.05))
    made.step(X, LABELS)
    made.variables["unused"] = Variable(made.device.zeros((1,), BINARY32), made.device, "unused")
    with pytest.raises(ValueError, match="the loss does not depend on unused"):
        made.step(X, LABELS)
