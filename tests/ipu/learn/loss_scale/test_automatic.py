"""The automatic loss scale of PopART, step by step (golden)."""

from __future__ import annotations

import numpy as np
import pytest

from fpsim import BINARY16, BINARY32
from ipu.learn.loss_scale import (
    AutomaticLossScale,
    EdgeHistogram,
    KerasLossScale,
    StaticLossScale,
    Statistic,
)
from ipu.learn.policy import FP16, FP32, MIXED
from ipu.machine import Device, FpCtl
from tests.ipu.learn.loss_scale.small import seen
from tests.ipu.learn.small import LABELS, X, codes, trained, trainer

NANOO = FpCtl(nanoo=True)


@pytest.mark.source("PopART: lossscaleupdatex.cpp")
def test_the_scale_is_halved_above_the_threshold_and_else_doubled():
    scale = AutomaticLossScale(64.0, threshold=0.25)
    for lower, upper, value in ((3, 1, 128), (2, 1, 32), (0, 5, 32), (9, 0, 128), (75, 26, 32)):
        assert scale.successor([], seen(lower, upper)).value == value
    usual = AutomaticLossScale(64.0)
    assert usual.successor([], seen(9_999_900, 1)).value == 32
    assert usual.successor([], seen(10_000_100, 1)).value == 128


def test_the_scale_stays_in_binary32_and_a_hopeless_model_is_told():
    assert AutomaticLossScale(2.0**127).successor([], seen(1, 0)).value == 2.0**127
    with pytest.raises(
        RuntimeError, match="cannot fall any further, and gradients are still infinite"
    ):
        AutomaticLossScale(2.0**-126).successor([], seen(0, 1))


@pytest.mark.source("PopART: automaticlossscaling.cpp")
def test_the_edge_is_an_eighth_of_the_largest_half():
    statistic = AutomaticLossScale().statistic()
    assert statistic.edge == 8188
    values = [8184.0, -8184.0, 8188.0, -65504.0, 0.0, np.nan, np.inf]
    statistic.add(Device().context(BINARY16).wrap(np.array(values, np.float32)))
    statistic.add(Device().from_host([1e30], BINARY32))
    assert (statistic.lower, statistic.upper) == (3, 4)


@pytest.mark.source("PopART: automaticlossscaling.cpp")
def test_the_scale_changes_once_in_a_period_by_the_first_step_s_statistic():
    scale, values = AutomaticLossScale(1.0, period=3), []
    for _ in range(7):
        due = isinstance(scale.statistic(), EdgeHistogram)
        scale = scale.successor([], seen(1, 0) if due else Statistic())
        values.append(scale.value)
    assert values == [2, 2, 2, 4, 4, 4, 8]


@pytest.mark.parametrize("control", [FpCtl(), NANOO])
def test_automatic_rules_run_with_either_overflow_and_apply_every_step(control):
    keras = KerasLossScale(2.0**18, frequency=1, largest=2.0**20)
    for policy, scale in ((MIXED, AutomaticLossScale(2.0**24)), (FP16, keras)):
        training = trainer(policy=policy, control=control, loss_scale=scale)
        training.forward(X)
        before = codes(training)
        training.step(X, LABELS)
        assert training.applied
        assert codes(training) != before
        assert training.loss_scale.value == scale.value / 2


@pytest.mark.source("PopTorch: tests/als_test.py")
def test_weights_do_not_depend_on_the_rule_that_moves_the_scale():
    fixed, moved = (
        trained(3, policy=MIXED, loss_scale=s)[0]
        for s in (StaticLossScale(1024.0), AutomaticLossScale(1024.0))
    )
    assert moved.loss_scale.value == 1024 * 8
    assert codes(fixed) == codes(moved)


def test_training_without_binary16_gradients_is_refused_and_nothing_changes():
    training = trainer(policy=FP32, loss_scale=AutomaticLossScale())
    training.forward(X)
    before = codes(training)
    with pytest.raises(ValueError, match="saw no binary16 gradients"):
        training.step(X, LABELS)
    assert codes(training) == before


@pytest.mark.parametrize(
    ("choices", "sentence"),
    [({"bin_edge": 0.0}, "bin_edge=0.0 is out of range"),
     ({"threshold": 1.0}, "threshold=1.0 is out of range"),
     ({"period": 0}, "period=0 is out of range"),
     ({"tracked": "weights"}, "tracked='weights' is not known")],
)
def test_impossible_automatic_scales_are_refused(choices, sentence):
    with pytest.raises(ValueError, match=sentence):
        AutomaticLossScale(**choices)
