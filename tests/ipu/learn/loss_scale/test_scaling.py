"""Loss scales and their routes: laws of powers of two, refusals."""

from __future__ import annotations

import numpy as np
import pytest

from fpsim import BINARY16, BINARY32
from ipu.learn.loss_scale import (
    EPSILON,
    LEARNING_RATE,
    AutomaticLossScale,
    DynamicLossScale,
    KerasLossScale,
    NoLossScale,
    StaticLossScale,
)
from ipu.learn.optim import SGD, Adam, AdamW, RMSProp
from ipu.learn.policy import MIXED
from ipu.learn.variables import Variable
from ipu.machine import Device
from tests.ipu.learn.small import LABELS, X, codes, trained, trainer


@pytest.mark.source("S4-29")
def test_gradients_are_linear_in_powers_of_two():
    found = []
    for scale in (NoLossScale(), StaticLossScale(4096.0)):
        made = trainer(loss_scale=scale)
        found.append([g.values for g, _ in made.scaled_gradients(made.loss(X, LABELS))])
    for plain, scaled in zip(*found, strict=True):
        assert (scaled == 4096 * plain).all()


@pytest.mark.source("S4-31")
@pytest.mark.source("S4-34")
def test_both_ways_back_give_the_weights_of_no_scaling():
    """In binary32 a power of two only moves exponents: not one bit differs."""
    scales = (NoLossScale(), StaticLossScale(256.0), StaticLossScale(256.0, LEARNING_RATE))
    plain, divided, slower = (trained(loss_scale=s)[0] for s in scales)
    assert codes(plain) == codes(divided) == codes(slower)
    for name, (momentum,) in plain.slots.items():
        assert (divided.slots[name][0].values == momentum.values).all()
        assert (slower.slots[name][0].values == 256 * momentum.values).all()


@pytest.mark.source("S4-32")
@pytest.mark.parametrize("optimizer", [SGD(0.05, 0.9), Adam(0.01, epsilon=1e-4)], ids=str)
def test_the_mixed_training_loop_reports_the_unscaled_loss(optimizer):
    plain, scaled = (
        trained(optimizer=optimizer, policy=MIXED, loss_scale=s)
        for s in (NoLossScale(), StaticLossScale(256.0))
    )
    assert scaled[1][0] == plain[1][0]
    assert scaled[1] == pytest.approx(plain[1], rel=1e-3)
    assert {v.dtype for v in scaled[0].variables.values()} == {BINARY32}


@pytest.mark.source("S4-33")
def test_dividing_half_gradients_underflows_again_and_single_ones_do_not():
    scale = StaticLossScale(256.0)
    device = Device()
    half = device.from_host([2.0**-18], BINARY16)
    w = Variable(device.zeros((1,), BINARY16), device, "w")
    assert [g.values.tolist() for g, _ in scale.unscale(device, [(half, w)])] == [[0.0]]
    single = device.cast(half, BINARY32)
    assert [g.values.tolist() for g, _ in scale.unscale(device, [(single, w)])] == [[2.0**-26]]


@pytest.mark.source("S4-35")
def test_the_divided_rate_of_the_tutorial_rounds_as_published():
    rate = Device().from_host(0.01 / 256, BINARY16)
    assert float(rate) == pytest.approx(3.9041e-5, abs=5e-10)


SCALES = (StaticLossScale, DynamicLossScale, AutomaticLossScale, KerasLossScale)


@pytest.mark.parametrize("bad", [0, -1.0, float("inf"), float("nan"), 1e39])
@pytest.mark.parametrize("kind", SCALES)
def test_impossible_loss_scales_are_refused(kind, bad):
    with pytest.raises(ValueError, match="is not a loss scale; use a finite positive"):
        kind(bad)


def test_what_is_no_number_and_unknown_routes_are_refused():
    with pytest.raises(TypeError, match="factor='256' is not a number"):
        StaticLossScale("256")
    with pytest.raises(ValueError, match="route='momentum' is not known"):
        StaticLossScale(2.0, "momentum")


@pytest.mark.source("S4-34")
@pytest.mark.source("S4-36")
def test_a_route_fits_the_optimiser():
    with pytest.raises(ValueError, match=r"does not undo a loss scale for Adam\(.*use route='eps"):
        trainer(optimizer=Adam(), loss_scale=StaticLossScale(2.0, LEARNING_RATE))
    with pytest.raises(ValueError, match=r"does not undo .* for SGD\(.*use route='learning_rate'"):
        trainer(loss_scale=StaticLossScale(2.0, EPSILON))


@pytest.mark.source("S4-34")
@pytest.mark.source("S4-36")
@pytest.mark.parametrize(
    ("optimizer", "route"),
    [(SGD(0.05, 0.9), LEARNING_RATE), (SGD(0.05, 0.9, nesterov=True), LEARNING_RATE),
     (Adam(0.01), EPSILON), (AdamW(0.01), EPSILON), (RMSProp(0.01, momentum=0.5), EPSILON),
     (RMSProp(0.01, epsilon=1e-4, initial=1.0), EPSILON)],
    ids=str,
)  # fmt: skip
def test_slots_follow_a_changing_scale(optimizer, route):
    """Doubled after every step; in binary32 not a bit of the weights differs from no scaling."""
    growing = DynamicLossScale(1024.0, route, interval=1)
    plain, scaled = (
        trained(4, optimizer=optimizer, loss_scale=s, f32_denormals="ieee")[0]
        for s in (NoLossScale(), growing)
    )
    assert scaled.loss_scale.value == 16384
    assert codes(plain) == codes(scaled)


@pytest.mark.source("Graphcore Keras: optimizers/gradient_descent.py, ALSOptimizerSGD")
def test_momentum_of_scaled_gradients_is_the_keras_specialisation_s():
    """m = alpha · (sigma / sigma before) · m + g, w = w - (eta / sigma) · m, all in binary32."""
    single, rng = np.float32, np.random.default_rng(6)
    device = Device(f32_denormals="ieee")
    start = rng.normal(size=20).astype(single)
    w = Variable(device.from_host(start, BINARY32), device, "layer/w")
    optimizer, slots, before = SGD(0.03, 0.9), {}, 64.0
    expected, m = start, np.zeros(20, single)
    for sigma in (64.0, 64.0, 128.0, 32.0, 1024.0):
        g = (rng.normal(size=20) * sigma).astype(single)
        slots = optimizer.rescaled(device, slots, sigma / before)
        pairs = [(device.from_host(g, BINARY32), w)]
        slots = optimizer.for_scaled(sigma).apply_gradients(pairs, slots)
        m = single(0.9) * single(sigma / before) * m + g
        expected = expected - single(0.03) / single(sigma) * m
        before = sigma
        assert (w.array.values == expected).all()
