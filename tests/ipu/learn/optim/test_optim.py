"""Update rules step by step: differential against the same equations in numpy's float16 and"""

from __future__ import annotations

import numpy as np
import pytest

from fpsim import BINARY16, BINARY32
from ipu.learn.optim import SGD, Adam, AdamW, RMSProp
from ipu.learn.variables import Variable
from ipu.machine import Device, FpCtl
from tests.ipu.learn.optim.equations import NATIVE, RULES
from tests.ipu.learn.optim.stepping import stepped


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
    results = []
    for seed in (1, 1, 2):
        device = Device(control=FpCtl(esr=True), seed=seed)
        w = Variable(device.from_host(np.linspace(-1, 1, 64), BINARY16), device, "layer/w")
        g = device.from_host(np.linspace(1, 2, 64), BINARY16)
        RULES[name][0].apply_gradients([(g, w)], {})
        results.append(w.array.codes().tolist())
    assert results[0] == results[1] != results[2]


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


@pytest.mark.source("S4-36")
@pytest.mark.parametrize(
    "make",
    [lambda e: RMSProp(0.01, epsilon=e * e), lambda e: Adam(0.01, epsilon=e),
     lambda e: AdamW(0.01, epsilon=e), lambda e: RMSProp(0.01, epsilon=e, epsilon_in_root=False)],
)
def test_adaptive_updates_do_not_change_with_the_gradients_scale_if_epsilon_follows(make):
    """Powers of two only move exponents; RMSProp's epsilon stands inside the root, so squared."""
    results = {}
    for scale, factor in ((1.0, 1.0), (256.0, 256.0), (256.0, 1.0)):
        device = Device(f32_denormals="ieee")
        w = Variable(device.from_host(np.linspace(-1, 1, 30), BINARY32), device, "layer/w")
        optimizer, slots = make(1e-3 * factor), {}
        for step in range(4):
            slope = np.cos(step + np.arange(30.0)).astype(np.float32) * scale
            g = device.from_host(slope, BINARY32)
            slots = optimizer.apply_gradients([(g, w)], slots)
        results[scale, factor] = w.array.values
    assert (results[256.0, 256.0] == results[1.0, 1.0]).all()
    assert (results[256.0, 1.0] != results[1.0, 1.0]).any()
    np.testing.assert_allclose(results[256.0, 1.0], results[1.0, 1.0], atol=0.04)


@pytest.mark.source("S4-34")
def test_only_rules_linear_in_the_gradient_say_so():
    assert SGD(0.1).linear
    assert SGD(0.1, 0.9, nesterov=True).linear
    assert not any(rule.linear for rule in (Adam(), AdamW(), RMSProp(0.1)))


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: SGD(0.1, 1.0), "momentum=1.0 is out of range; use 0 up to below 1"),
        (lambda: SGD(0.1, nesterov=True), "nesterov=True needs momentum"),
        (lambda: SGD(0.1, weight_decay=-1.0), "weight_decay=-1.0 is out of range"),
        (lambda: SGD(0.1, 0.9, dampening=1.0), "dampening=1.0 is out of range"),
        (lambda: SGD(0.1, dampening=0.5), "dampening=0.5 goes with momentum and without nesterov"),
        (lambda: SGD(0.1, 0.9, nesterov=True, dampening=0.5), "and without nesterov; change one"),
        (lambda: Adam(beta2=-0.1), "beta2=-0.1 is out of range"),
        (lambda: Adam(epsilon=float("nan")), "epsilon=nan is out of range"),
        (lambda: AdamW(weight_decay=-1.0), "weight_decay=-1.0 is out of range"),
        (lambda: RMSProp(0.1, initial=float("inf")), "initial=inf is out of range"),
    ],
)
def test_impossible_choices_are_refused(make, sentence):
    with pytest.raises(ValueError, match=sentence):
        make()


def test_a_start_that_overflows_with_the_loss_scale_is_warned_of():
    with pytest.warns(RuntimeWarning, match="initial 65536 overflows in binary16; scale the loss"):
        stepped(RMSProp(0.01, epsilon=1e-4, initial=1.0).for_scaled(256.0))
