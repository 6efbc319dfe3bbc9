"""Loss scales: traces with known answers, laws of powers of two, refusals."""

from __future__ import annotations

import numpy as np
import pytest

from fpsim import BINARY16, BINARY32, FloatingPointTrap
from ipu.learn.accumulate import Accumulation
from ipu.learn.automatic_loss_scale import (
    AutomaticLossScale,
    KerasLossScale,
)
from ipu.learn.loss_scale import (
    EPSILON,
    LEARNING_RATE,
    DynamicLossScale,
    NoLossScale,
    StaticLossScale,
    Statistic,
    find_loss_scale,
)
from ipu.learn.optim import SGD, Adam, AdamW, RMSProp
from ipu.learn.policy import FP16, FP32, MIXED
from ipu.learn.variables import Variable
from ipu.machine import POPLAR_STRUCT_DEFAULT, Device, FpCtl
from tests.ipu.learn.small import LABELS, X, codes, trained, trainer

NANOO = FpCtl(nanoo=True)


# Static -----------------------------------------------------------------------------------------


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


@pytest.mark.source("S4-30")
def test_the_highest_loss_scale_is_found_with_the_traps_armed():
    def step(scale):
        made = trainer(
            policy=FP16, loss_scale=StaticLossScale(scale), control=POPLAR_STRUCT_DEFAULT
        )
        made.scaled_gradients(made.loss(X, LABELS))

    best = find_loss_scale(step)
    step(best)
    with pytest.raises(FloatingPointTrap, match="OVERFLOW"):
        step(2 * best)
    assert find_loss_scale(step, range(24, 25)) is None


@pytest.mark.source("S4-30")
def test_wide_accumulators_let_the_loss_scale_be_higher():
    def highest(dtype):
        def step(scale):
            made = trainer(
                policy=FP16, loss_scale=StaticLossScale(scale), control=POPLAR_STRUCT_DEFAULT,
                accumulation=Accumulation(8, dtype=dtype), optimizer=SGD(1e-3, format=BINARY32),
            )  # fmt: skip
            made.step(X, LABELS)

        return find_loss_scale(step, range(13, 20))

    assert highest(BINARY32) > highest(None)


def test_other_exceptions_are_not_taken_for_a_scale_too_high():
    def step(scale):
        device = Device(control=POPLAR_STRUCT_DEFAULT)
        device.divide(device.from_host([1.0], BINARY16), device.zeros((1,), BINARY16))

    with pytest.raises(FloatingPointTrap, match="DIVBYZERO"):
        find_loss_scale(step)


SCALES = (StaticLossScale, DynamicLossScale, AutomaticLossScale, KerasLossScale)


@pytest.mark.parametrize("bad", [0, -1.0, float("inf"), float("nan"), 1e39])
@pytest.mark.parametrize("kind", SCALES)
def test_impossible_loss_scales_are_refused(kind, bad):
    with pytest.raises(ValueError, match="is no loss scale; use a finite positive number"):
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


# Dynamic ----------------------------------------------------------------------------------------


class Gradients:
    """Scaled gradients as a loss scale gets them."""

    def __init__(self, *values):
        device = Device(control=NANOO)
        w = Variable(device.zeros((len(values),), BINARY16), device, "layer/w")
        array = Device(control=NANOO).context(BINARY16).wrap(np.array(values, np.float32))
        self.pairs = [(array, w)]


CLEAN, SPOILT = Gradients(1.0).pairs, Gradients(1.0, np.inf).pairs


def after(scale, *steps):
    """The values that follow steps with these gradients."""
    values = []
    for pairs in steps:
        scale = scale.successor(pairs, Statistic())
        values.append(scale.value)
    return values


@pytest.mark.source("published P4: torch.amp.GradScaler")
def test_the_dynamic_scale_s_published_trace():
    values = after(DynamicLossScale(), *[CLEAN] * 2000, SPOILT, *[CLEAN] * 2000)
    assert values[1998] == 65536
    assert values[1999] == 131072
    assert values[2000] == 65536
    assert set(values[2001:4000]) == {65536}
    assert values[4000] == 131072


@pytest.mark.source("published P4: torch.amp.GradScaler")
def test_a_spoilt_step_starts_the_count_of_clean_ones_again():
    values = after(DynamicLossScale(8.0, interval=3), CLEAN, CLEAN, SPOILT, CLEAN, CLEAN, CLEAN)
    assert values == [8, 8, 4, 4, 4, 8]


@pytest.mark.parametrize("bad", [np.inf, -np.inf, np.nan])
def test_steps_with_gradients_that_are_not_finite_are_not_applied(bad):
    scale = DynamicLossScale()
    assert scale.applies(CLEAN)
    assert not scale.applies([*CLEAN, *Gradients(bad).pairs])


def test_the_scale_stays_in_binary32_and_a_hopeless_model_is_told():
    assert after(DynamicLossScale(2.0**127, interval=1), CLEAN, CLEAN) == [2.0**127] * 2
    with pytest.raises(RuntimeError, match="the model itself overflows: look at its counters"):
        after(DynamicLossScale(2.0**-126), SPOILT)


def test_a_skipped_step_changes_the_scale_alone():
    made = trainer(policy=FP16, control=NANOO, loss_scale=DynamicLossScale(2.0**24))
    made.forward(X)
    before = codes(made)
    made.step(X, LABELS)
    assert codes(made) == before
    assert (made.applied, made.slots, made.loss_scale.value) == (False, {}, 2.0**23)
    while not made.applied:
        made.step(X, LABELS)
    assert codes(made) != before
    assert made.loss_scale.value < 2.0**23


@pytest.mark.parametrize("policy", [FP16, MIXED])
def test_dynamic_scaling_refuses_a_machine_that_saturates(policy):
    with pytest.raises(ValueError, match=r"with nanoo=False an overflow saturates; use FpCtl\(nan"):
        trainer(policy=policy, loss_scale=DynamicLossScale())
    trainer(policy=FP32, loss_scale=DynamicLossScale())


@pytest.mark.parametrize(
    ("choices", "sentence"),
    [({"growth": 1.0}, "growth=1.0 is no growth"), ({"backoff": 1.0}, "backoff=1.0 is out of"),
     ({"interval": 0}, "interval=0 is out of range; use 1 or more")],
)  # fmt: skip
def test_impossible_dynamic_scales_are_refused(choices, sentence):
    with pytest.raises(ValueError, match=sentence):
        DynamicLossScale(**choices)


# Slots of scaled gradients ----------------------------------------------------------------------


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
