"""Histograms of gradients: what is counted (golden)."""

from __future__ import annotations

import numpy as np
import pytest

from fpsim import BINARY16
from ipu.learn import ops
from ipu.learn.loss_scale import (
    PRODUCTS,
    AutomaticLossScale,
    Histogram,
    KerasLossScale,
    Statistic,
)
from ipu.learn.policy import FP16, MIXED
from ipu.learn.tensor import gradients
from ipu.learn.variables import Variable
from ipu.machine import Device
from tests.ipu.learn.small import LABELS, X, trainer


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


def test_gradients_of_variables_are_counted():
    made = trainer(policy=FP16, loss_scale=KerasLossScale(2.0**17, largest=2.0**20))
    statistic = made.loss_scale.statistic()
    pairs = made.scaled_gradients(made.loss(X, LABELS), statistic)
    large = sum(int((np.abs(g.values) >= 8192).sum()) for g, _ in pairs)
    assert (statistic.upper, statistic.lower) == (large, sum(g.size for g, _ in pairs) - large)
