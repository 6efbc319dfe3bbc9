"""Automatic loss scales: their rules step by step, and what they count in a backward pass."""

from __future__ import annotations

import numpy as np
import pytest

from fpsim import BINARY16, BINARY32
from ipu.learn import ops
from ipu.learn.automatic_loss_scale import (
    PRODUCTS,
    AutomaticLossScale,
    Histogram,
    KerasLossScale,
)
from ipu.learn.loss_scale import StaticLossScale, Statistic
from ipu.learn.policy import FP16, FP32, MIXED
from ipu.learn.tensor import gradients
from ipu.learn.variables import Variable
from ipu.machine import Device, FpCtl
from tests.ipu.learn.small import LABELS, X, codes, trained, trainer

NANOO = FpCtl(nanoo=True)


# PopART's rule ----------------------------------------------------------------------------------


def seen(lower, upper):
    statistic = Histogram(8188.0)
    statistic.lower, statistic.upper = lower, upper
    return statistic


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
    with pytest.raises(RuntimeError, match="cannot fall any further and gradients are still too"):
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
        due = isinstance(scale.statistic(), Histogram)
        scale = scale.successor([], seen(1, 0) if due else Statistic())
        values.append(scale.value)
    assert values == [2, 2, 2, 4, 4, 4, 8]


@pytest.mark.parametrize("tracked", ["all", PRODUCTS, ("all_vars/output",), ("nowhere",)])
def test_gradients_of_the_backward_pass_are_counted(tracked):
    """Against a list of all of them: dense layers give bias, input and weights; then relu, loss."""
    made = trainer(policy=MIXED, loss_scale=AutomaticLossScale(2.0**20, tracked=tracked))
    statistic, every = made.loss_scale.statistic(), []
    loss = made.loss(X, LABELS)

    def both(node, gradient):
        every.append((node, gradient))
        Histogram.watch(statistic, node, gradient)

    wanted = {
        "all": lambda node: True, PRODUCTS: lambda node: node.primitive.name == "matmul",
        ("all_vars/output",): lambda node: node.layer == "all_vars/output",
        ("nowhere",): lambda node: False,
    }[tracked]  # fmt: skip
    made.scaled_gradients(loss, statistic)
    watched = trainer(policy=MIXED, loss_scale=made.loss_scale)
    other = Statistic()
    other.watch = lambda node, gradient: every.append((node, gradient))
    watched.scaled_gradients(watched.loss(X, LABELS), other)
    halves = [g.values for node, g in every if g.format == BINARY16 and wanted(node)]
    large = sum(int((np.abs(g) >= 8188).sum()) for g in halves)
    assert (statistic.upper, statistic.lower) == (large, sum(g.size for g in halves) - large)
    assert bool(large) == bool(halves)


def test_views_are_not_counted_again():
    device = Device()
    x = Variable(device.zeros((4,), BINARY16), device, "layer/x")
    y = ops.reshape(ops.relu(x), shape=(2, 2))
    statistic = AutomaticLossScale().statistic()
    gradients(y, [x], device.zeros((2, 2), BINARY16), statistic.watch)
    assert (statistic.lower, statistic.upper) == (4, 0)


@pytest.mark.parametrize("control", [FpCtl(), NANOO])
def test_automatic_rules_run_with_either_overflow_and_apply_every_step(control):
    keras = KerasLossScale(2.0**18, frequency=1, largest=2.0**20)
    for policy, scale in ((MIXED, AutomaticLossScale(2.0**24)), (FP16, keras)):
        made = trainer(policy=policy, control=control, loss_scale=scale)
        made.forward(X)
        before = codes(made)
        made.step(X, LABELS)
        assert made.applied
        assert codes(made) != before
        assert made.loss_scale.value == scale.value / 2


@pytest.mark.source("PopTorch: tests/als_test.py")
def test_weights_do_not_depend_on_the_rule_that_moves_the_scale():
    fixed, moved = (
        trained(3, policy=MIXED, loss_scale=s)[0]
        for s in (StaticLossScale(1024.0), AutomaticLossScale(1024.0))
    )
    assert moved.loss_scale.value == 1024 * 8
    assert codes(fixed) == codes(moved)


def test_training_without_binary16_gradients_is_refused_and_nothing_changes():
    made = trainer(policy=FP32, loss_scale=AutomaticLossScale())
    made.forward(X)
    before = codes(made)
    with pytest.raises(ValueError, match="found no binary16 gradients"):
        made.step(X, LABELS)
    assert codes(made) == before


@pytest.mark.parametrize(
    ("choices", "sentence"),
    [({"bin_edge": 0.0}, "bin_edge=0.0 is out of range"),
     ({"threshold": 1.0}, "threshold=1.0 is out of range"),
     ({"period": 0}, "period=0 is out of range"),
     ({"tracked": "weights"}, "tracked='weights' is not known")],
)  # fmt: skip
def test_impossible_automatic_scales_are_refused(choices, sentence):
    with pytest.raises(ValueError, match=sentence):
        AutomaticLossScale(**choices)


# The Keras optimiser's rule ---------------------------------------------------------------------


def followed(scale, *statistics):
    values = []
    for statistic in statistics:
        scale = scale.successor([], statistic)
        values.append(scale.value)
    return scale, values


@pytest.mark.source("Graphcore Keras: als_optimizer_test.py")
def test_the_first_change_comes_with_the_call_after_the_frequency():
    fine = seen(1, 0)
    scale, values = followed(KerasLossScale(), *[fine] * 8)
    assert set(values) == {1}
    assert scale.histogram == (8, 0)
    scale, values = followed(scale, fine)
    assert (values, scale.histogram, scale.count) == ([2], (0, 0), 0)
    assert followed(scale, *[fine] * 9)[1] == [2] * 8 + [4]
    assert followed(KerasLossScale(frequency=1), *[fine] * 3)[1] == [2, 4, 8]


@pytest.mark.source("Graphcore Keras: als_optimizer.py")
def test_the_share_of_large_gradients_over_the_whole_period_decides():
    spoilt, fine = seen(0, 1), seen(1000, 0)
    start = KerasLossScale(64.0, frequency=2)
    assert followed(start, spoilt, fine, fine)[1] == [64, 64, 32]
    assert followed(KerasLossScale(64.0, frequency=2, accumulate=False),
                    *(Statistic(), Statistic(), fine))[1] == [64, 64, 128]  # fmt: skip
    few = KerasLossScale(64.0, frequency=1, threshold=0.01)
    assert followed(few, seen(99, 1))[1] == [128]
    assert followed(few, seen(98, 2))[1] == [32]


@pytest.mark.source("Graphcore Keras: als_optimizer.py")
def test_statistics_are_taken_when_they_are_used():
    at_all = KerasLossScale(frequency=2)
    at_last = KerasLossScale(frequency=2, accumulate=False)
    taken = []
    for scale in (at_all, at_last):
        for _ in range(3):
            statistic = scale.statistic()
            taken.append(isinstance(statistic, Histogram))
            scale = scale.successor([], statistic)
    assert taken == [True, True, True, False, False, True]


@pytest.mark.source("Graphcore Keras: als_optimizer.py")
def test_the_scale_stays_from_one_to_below_the_largest():
    fine, spoilt = seen(1, 0), seen(0, 1)
    assert followed(KerasLossScale(8192.0, frequency=1), fine, fine)[1] == [16384, 16384]
    assert followed(KerasLossScale(2.0, frequency=1), spoilt, spoilt)[1] == [1, 1]


@pytest.mark.source("Graphcore Keras: als_optimizer.py")
def test_the_filter_leaves_out_a_share_of_the_new_counts():
    scale = KerasLossScale(frequency=4, filter=0.75)
    scale, _ = followed(scale, seen(16, 8))
    assert scale.histogram == (4, 2)
    scale, _ = followed(scale, seen(16, 0))
    assert scale.histogram == (0.75 * 4 + 0.25 * 20, 2)


def test_gradients_of_variables_are_counted():
    made = trainer(policy=FP16, loss_scale=KerasLossScale(2.0**17, largest=2.0**20))
    statistic = made.loss_scale.statistic()
    pairs = made.scaled_gradients(made.loss(X, LABELS), statistic)
    large = sum(int((np.abs(g.values) >= 8192).sum()) for g, _ in pairs)
    assert (statistic.upper, statistic.lower) == (large, sum(g.size for g, _ in pairs) - large)


@pytest.mark.parametrize(
    ("choices", "sentence"),
    [({"factor": 3.0}, "initial=3.0 is no power of two"),
     ({"increase": 3.0}, "increase=3.0 is no power of two"),
     ({"largest": 1000.0}, "largest=1000.0 is no power of two"),
     ({"factor": 16384.0, "increase": 2.0}, "leaves no room below largest=32768"),
     ({"increase": 1.0}, "increase must be above 1"),
     ({"frequency": 0}, "frequency=0 is out of range"),
     ({"threshold": 0.0}, "threshold=0.0 is out of range"),
     ({"filter": 1.5}, "filter=1.5 is out of range")],
)  # fmt: skip
def test_impossible_keras_scales_are_refused(choices, sentence):
    with pytest.raises(ValueError, match=sentence):
        KerasLossScale(**choices)
