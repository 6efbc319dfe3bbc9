"""The dynamic loss scale: traces with known answers (golden), skipped steps."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

from fpsim import BINARY16
from ipu import ops
from ipu.learn.loss_scale import EPSILON, LEARNING_RATE, DynamicLossScale, Statistic
from ipu.learn.nn import batch_norm, dense, relu
from ipu.learn.optim import SGD, Adam
from ipu.learn.policy import FP16, FP32, MIXED
from ipu.learn.train import Trainer
from ipu.learn.variables import Variable
from ipu.machine import Device, FpCtl
from tests.ipu.learn.small import LABELS, X, codes, trainer

NANOO = FpCtl(nanoo=True)


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
    with pytest.raises(RuntimeError, match="the loss scale is not the cause: look at the counters"):
        after(DynamicLossScale(2.0**-126), SPOILT)


def test_a_skipped_step_changes_the_scale_alone():
    training = trainer(policy=FP16, control=NANOO, loss_scale=DynamicLossScale(2.0**24))
    training.forward(X)
    before = codes(training)
    training.step(X, LABELS)
    assert codes(training) == before
    assert (training.applied, training.slots, training.loss_scale.value) == (False, {}, 2.0**23)
    while not training.applied:
        training.step(X, LABELS)
    assert codes(training) != before
    assert training.loss_scale.value < 2.0**23


@pytest.mark.parametrize("policy", [FP16, MIXED])
def test_dynamic_scaling_refuses_a_machine_that_saturates(policy):
    with pytest.raises(ValueError, match=r"with nanoo=False an overflow saturates; use FpCtl\(nan"):
        trainer(policy=policy, loss_scale=DynamicLossScale())
    trainer(policy=FP32, loss_scale=DynamicLossScale())


@pytest.mark.parametrize(
    ("choices", "sentence"),
    [({"growth": 1.0}, "growth=1.0 is not a growth"), ({"backoff": 1.0}, "backoff=1.0 is out of"),
     ({"interval": 0}, "interval=0 is out of range; use 1 or more")],
)
def test_impossible_dynamic_scales_are_refused(choices, sentence):
    with pytest.raises(ValueError, match=sentence):
        DynamicLossScale(**choices)


def test_the_usual_scale_trains_halves_though_it_is_beyond_their_range():
    training = trainer(policy=FP16, control=NANOO, loss_scale=DynamicLossScale())
    plain = trainer(policy=FP16, control=NANOO)
    assert training.loss_scale.value > BINARY16.max
    for _ in range(20):
        training.step(X, LABELS)
        if training.applied:
            plain.step(X, LABELS)
    assert training.applied
    for name, variable in training.variables.items():
        other = plain.variables[name].array.values
        assert np.allclose(variable.array.values, other, rtol=2e-2, atol=2e-3), name


def normed(x):
    return dense(batch_norm(relu(dense(x, 6, "hidden")), "norm"), 3, "output")


def test_a_skipped_step_moves_no_statistics_of_batch_norm():
    training = Trainer(
        normed, SGD(0.05, 0.9), policy=MIXED, control=NANOO, loss_scale=DynamicLossScale()
    )
    training.forward(X)
    before = codes(training)
    training.step(np.where(np.arange(8) == 3, 1e6, X), LABELS)  # infinite as halves
    assert not training.applied
    assert codes(training) == before
    while not training.applied:
        training.step(X, LABELS)
    assert np.isfinite(training.variables["all_vars/norm/moving_mean"].array.values).all()


@pytest.mark.parametrize(
    ("scale", "optimizer", "constant"),
    [(DynamicLossScale(2.0**15, LEARNING_RATE, interval=1), SGD(0.001), "learning rate"),
     (DynamicLossScale(2.0**13, EPSILON, interval=1), Adam(0.001, epsilon=2.0), "epsilon")],
)
def test_a_scale_whose_growth_would_lose_a_constant_keeps_its_value_and_says_so_once(
    scale, optimizer, constant
):
    """The gradients are zero, so every step is clean and asks for a larger scale."""
    training = Trainer(
        lambda x: ops.scale(dense(x, 3, "only"), factor=0.0), optimizer, policy=FP16,
        control=NANOO, loss_scale=scale,
    )
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        values = [training.loss_scale.value for _ in range(4) if training.step(X, LABELS)]
    told = [w for w in caught if "loss scale stays" in str(w.message)]
    assert len(told) == 1
    assert constant in str(told[0].message)
    assert values[-1] == values[-2]
    scaled = training.loss_scale.optimizer(optimizer)
    for value in scaled.constants(scaled.rate).values():
        held = float(training.device.from_host(value, BINARY16))
        assert 0 < held < np.inf
