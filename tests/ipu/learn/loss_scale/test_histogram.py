"""Histograms of gradients: what is counted (golden)."""

from __future__ import annotations

import numpy as np
import pytest

from fpsim import BINARY16
from ipu import ops
from ipu.learn.loss_scale import (
    PRODUCTS,
    AutomaticLossScale,
    EdgeHistogram,
    KerasLossScale,
    Statistic,
)
from ipu.learn.policy import FP16, MIXED, LayerPolicies
from ipu.learn.tensor import gradients
from ipu.learn.variables import Variable
from ipu.learn.worker import SCOPE
from ipu.machine import Device
from tests.ipu.learn.small import LABELS, X, codes, trainer


@pytest.mark.parametrize("tracked", ["all", PRODUCTS, ("output",), ("out*", "hidden")])
def test_gradients_of_the_backward_pass_are_counted(tracked):
    """Against a list of all of them: dense layers give bias, input and weights; then relu, loss."""
    training = trainer(policy=MIXED, loss_scale=AutomaticLossScale(2.0**20, tracked=tracked))
    statistic, every = training.loss_scale.statistic(SCOPE), []
    loss = training.loss(X, LABELS)

    def both(node, gradient):
        every.append((node, gradient))
        EdgeHistogram.watch(statistic, node, gradient)

    wanted = {
        "all": lambda node: True, PRODUCTS: lambda node: node.primitive.name == "matmul",
        ("output",): lambda node: node.layer == "all_vars/output",
        ("out*", "hidden"): lambda node: node.layer in ("all_vars/output", "all_vars/hidden"),
    }[tracked]
    training.scaled_gradients(loss, statistic)
    watched = trainer(policy=MIXED, loss_scale=training.loss_scale)
    other = Statistic()
    other.watch = lambda node, gradient: every.append((node, gradient))
    watched.scaled_gradients(watched.loss(X, LABELS), other)
    halves = [g.values for node, g in every if g.format == BINARY16 and wanted(node)]
    large = sum(int((np.abs(g) >= 8188).sum()) for g in halves)
    assert (statistic.upper, statistic.lower) == (large, sum(g.size for g in halves) - large)
    assert large


def test_views_are_not_counted_again():
    device = Device()
    x = Variable(device.zeros((4,), BINARY16), device, "layer/x")
    y = ops.reshape(ops.relu(x), shape=(2, 2))
    statistic = AutomaticLossScale().statistic()
    gradients(y, [x], device.zeros((2, 2), BINARY16), statistic.watch)
    assert (statistic.lower, statistic.upper) == (4, 0)


def test_gradients_of_variables_are_counted():
    training = trainer(policy=FP16, loss_scale=KerasLossScale(2.0**17, largest=2.0**20))
    statistic = training.loss_scale.statistic()
    pairs = training.scaled_gradients(training.loss(X, LABELS), statistic)
    large = sum(int((np.abs(g.values) >= 8192).sum()) for g, _ in pairs)
    assert (statistic.upper, statistic.lower) == (large, sum(g.size for g, _ in pairs) - large)


def test_a_pattern_means_the_same_layers_as_in_a_policy():
    names = FP16.override({"hidden": MIXED})
    for pattern in ("hidden", "h*", "[ho]*"):
        training = trainer(policy=FP16, loss_scale=AutomaticLossScale(tracked=(pattern,)))
        training.step(X, LABELS)
        policies = LayerPolicies(names.default, ((pattern, MIXED),))
        policies.check(training.variables.layers)
        assert training.loss_scale.value == 2.0


@pytest.mark.parametrize(
    ("tracked", "sentence"),
    [(("hiden",), r"tracked='hiden' matches no layer; did you mean 'hidden'\? There are hidden, "),
     (("hidden", "all_vars/output"), r"tracked='all_vars/output' matches no layer; "),
     (("nowhere",), r"tracked='nowhere' matches no layer; use one of hidden, ")],
)
def test_a_pattern_that_matches_nothing_is_refused_with_the_layers_there_are(tracked, sentence):
    training = trainer(policy=FP16, loss_scale=AutomaticLossScale(tracked=tracked))
    training.forward(X)
    before = codes(training)
    with pytest.raises(ValueError, match=sentence):
        training.step(X, LABELS)
    assert codes(training) == before
