"""Loss scales, SGD and the training step; differential against numpy's float16/32."""

from __future__ import annotations

import numpy as np
import pytest

from fpsim import BINARY16, BINARY32, FloatingPointTrap
from ipu.learn.loss_scale import (
    LEARNING_RATE,
    NoLossScale,
    StaticLossScale,
    find_loss_scale,
)
from ipu.learn.nn import dense, relu
from ipu.learn.optim import SGD
from ipu.learn.policy import FP16, FP32, MIXED
from ipu.learn.train import Trainer
from ipu.learn.variables import Variable
from ipu.machine import POPLAR_STRUCT_DEFAULT, Device, FpCtl

RNG = np.random.default_rng(1)
X, LABELS = RNG.integers(0, 17, (24, 8)) / 16, RNG.integers(0, 3, 24)


def network(x):
    return dense(relu(dense(x, 6, "hidden")), 3, "output")


def trainer(**choices):
    return Trainer(network, choices.pop("optimizer", SGD(0.05, 0.9)), **choices)


def trained(steps=6, **choices):
    made = trainer(**choices)
    losses = [made.step(X, LABELS) for _ in range(steps)]
    return made, losses


def codes(made):
    return {name: v.array.codes().tolist() for name, v in made.variables.items()}


@pytest.mark.source("S4-18")
def test_formats_of_parameters_and_gradients_follow_the_policy():
    for policy, param in ((FP32, BINARY32), (FP16, BINARY16), (MIXED, BINARY32)):
        made = trainer(policy=policy)
        loss = made.loss(X, LABELS)
        pairs = made.scaled_gradients(loss)
        assert loss.dtype == BINARY32
        assert {v.dtype for v in made.variables.values()} == {param}
        assert {g.format for g, _ in pairs} == {param}


@pytest.mark.source("S4-16")
def test_half_parameters_take_half_the_bytes():
    size = {}
    for policy in (FP16, MIXED):
        made, _ = trained(1, policy=policy)
        size[policy] = sum(v.array.nbytes for v in made.variables.values())
    assert size[MIXED] == 2 * size[FP16]


# Loss scaling ---------------------------------------------------------------------------------


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
def test_the_reported_loss_is_unscaled():
    assert trained(loss_scale=StaticLossScale(256.0))[1] == trained()[1]


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


def test_other_exceptions_are_not_taken_for_a_scale_too_high():
    def step(scale):
        device = Device(control=POPLAR_STRUCT_DEFAULT)
        device.divide(device.from_host([1.0], BINARY16), device.zeros((1,), BINARY16))

    with pytest.raises(FloatingPointTrap, match="DIVBYZERO"):
        find_loss_scale(step)


@pytest.mark.parametrize("bad", [0, -1.0, float("inf"), float("nan")])
def test_impossible_loss_scales_are_refused(bad):
    with pytest.raises(ValueError, match="is no loss scale; use a finite positive number"):
        StaticLossScale(bad)
    with pytest.raises(ValueError, match="route='momentum' is not known"):
        StaticLossScale(2.0, "momentum")


# The step -------------------------------------------------------------------------------------


@pytest.mark.parametrize("policy", [FP32, FP16, MIXED], ids=str)
def test_training_learns(policy):
    _, losses = trained(100, policy=policy)
    assert losses[-1] < 0.8 * losses[0]


@pytest.mark.parametrize("esr", [False, True])
def test_equal_seeds_give_equal_bits_and_only_stochastic_rounding_draws(esr):
    made = [trained(policy=FP16, control=FpCtl(esr=esr), seed=3, count=c)[0] for c in (False, True)]
    assert codes(made[0]) == codes(made[1])
    assert made[0].slots.keys() == made[1].slots.keys()
    assert (made[0].device.clock.operation > 0) == esr


def test_exceptions_are_counted_by_layer_and_phase():
    made, _ = trained(2, policy=FP16, count=True, loss_scale=StaticLossScale(2.0**24))
    assert made.device.counts.total("OVERFLOW", "all_vars/output/gradient") > 0
    assert made.device.counts.total("OVERFLOW", "all_vars/hidden") == 0
    assert made.device.status.oflo


def test_a_trap_in_the_backward_pass_changes_no_variable():
    made = trainer(policy=FP16, loss_scale=StaticLossScale(2.0**24), control=FpCtl(oflo=True))
    made.forward(X)
    before = codes(made)
    with pytest.raises(FloatingPointTrap, match=r"in (all_vars/output/gradient|loss)"):
        made.step(X, LABELS)
    assert codes(made) == before
    assert made.slots == {}
