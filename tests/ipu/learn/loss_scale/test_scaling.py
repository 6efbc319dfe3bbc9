"""Loss scales and their routes: laws of powers of two, refusals."""

from __future__ import annotations

import numpy as np
import pytest

from fpsim import BINARY16, BINARY32
from ipu import ops
from ipu.learn.loss_scale import (
    EPSILON,
    LEARNING_RATE,
    AutomaticLossScale,
    DynamicLossScale,
    KerasLossScale,
    NoLossScale,
    StaticLossScale,
)
from ipu.learn.nn import dense
from ipu.learn.optim import SGD, Adam, AdamW, RMSProp
from ipu.learn.policy import FP16, MIXED
from ipu.learn.train import Trainer
from ipu.learn.variables import Variable
from ipu.learn.variables.initialisers import zeros
from ipu.machine import Device, FpCtl
from tests.ipu.learn.small import LABELS, X, codes, trained, trainer


@pytest.mark.source("S4-29")
def test_gradients_are_linear_in_powers_of_two():
    results = []
    for scale in (NoLossScale(), StaticLossScale(4096.0)):
        training = trainer(loss_scale=scale)
        results.append([g.values for g, _ in training.scaled_gradients(training.loss(X, LABELS))])
    for plain, scaled in zip(*results, strict=True):
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
)
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


def sure(x):
    """A model whose logits leave gradients near 2**-11: normal halves, also times 2**24."""
    logits = ops.scale(x, factor=7.625)
    return ops.add(logits, ops.scale(dense(x, 3, "only", initializer=zeros), factor=1.0))


POWERS = [2.0**n for n in (0, 1, 8, 15, 16, 17, 20, 24)]


@pytest.mark.parametrize("scale", [*POWERS, 3.0, 1000.0, 65504.0, 65505.0, 1e5, 1e7])
def test_static_scales_train_alike_where_nothing_leaves_the_range(scale):
    def run(loss_scale):
        training = Trainer(sure, SGD(0.5), policy=FP16, loss_scale=loss_scale, count=True)
        for _ in range(3):
            training.step(np.eye(3), np.arange(3))
        names = ("overflow", "underflow")
        rows = training.device.counts.items()
        return training, sum(row[n] for (t, _), row in rows for n in names if "only" in t)

    (plain, _), (training, lost) = run(None), run(StaticLossScale(scale))
    assert lost == 0
    for name, variable in training.variables.items():
        a, b = variable.array.values, plain.variables[name].array.values
        tolerance = 0 if scale in POWERS else 2.0**-20
        assert np.abs(a - b).max() <= tolerance, name


def test_unscaling_is_one_stochastic_operation_for_each_gradient():
    device = Device(control=FpCtl(esr=True))
    w = Variable(device.zeros((2,), BINARY16), device, "layer/w")
    pairs = [(device.from_host([3.0, 5.0], BINARY16), w)] * 2
    for scale in (StaticLossScale(2.0**20), StaticLossScale(1.0)):
        number = device.clock.operation
        scale.unscale(device, pairs)
        assert device.clock.operation == number + 2


def test_a_scale_below_one_may_overflow():
    device = Device()
    w = Variable(device.zeros((1,), BINARY16), device, "layer/w")
    StaticLossScale(2.0**-10).unscale(device, [(device.from_host([1000.0], BINARY16), w)])
    assert device.status.oflo


@pytest.mark.parametrize(
    ("scale", "optimizer", "policy", "sentence"),
    [(StaticLossScale(2.0**20, LEARNING_RATE), SGD(0.01), FP16,
      r"route='learning_rate' with a loss scale of 1.04858e\+06 makes the learning rate "
      "9.53674e-09, which rounds to 0 in binary16"),
     (StaticLossScale(2.0**28, EPSILON), Adam(0.01, epsilon=1e-3), FP16,
      r"route='epsilon' .* makes the epsilon 268435, which overflows in binary16"),
     (StaticLossScale(2.0**20, EPSILON), RMSProp(0.01, epsilon=1e-3), FP16,
      r"makes the epsilon 1.09951e\+09, which overflows in binary16"),
     (StaticLossScale(2.0**9, EPSILON), RMSProp(0.01, initial=1.0), FP16,
      r"makes the initial 262144, which overflows in binary16")],
)
def test_a_static_scale_that_loses_a_constant_is_refused(scale, optimizer, policy, sentence):
    with pytest.raises(ValueError, match=sentence):
        trainer(policy=policy, optimizer=optimizer, loss_scale=scale)
    trainer(policy=MIXED, optimizer=optimizer, loss_scale=scale)


def test_a_static_scale_that_makes_the_rate_subnormal_warns():
    scale = StaticLossScale(256.0, LEARNING_RATE)
    training = trainer(policy=FP16, optimizer=SGD(0.01), loss_scale=scale)
    with pytest.warns(RuntimeWarning, match=r"learning rate 3\.90625e-05 is subnormal in binary16"):
        training.step(X, LABELS)
