"""Gradients of updates: accumulators and sums over replicas (law, golden)."""

from __future__ import annotations

import numpy as np
import pytest

from fpsim import BINARY16, BINARY32
from ipu.learn.accumulate import Reduction
from ipu.machine.control import FpCtl
from ipu.plan.orders import Order
from tests.ipu.frontends.poptorch.framework import torch

from ipu.frontends.poptorch.engine.gradients import MicroBatchGradients, ReplicaAdditions, as_array  # isort: skip
from ipu.frontends.poptorch.engine.machine import PoptorchMachine  # isort: skip

HALF, SINGLE = torch.float16, torch.float32


def machine(sr=False):
    return PoptorchMachine(FpCtl(esr=sr), 0, "float")


def accumulated(values, how, dtype, *, sr=False, order=None):
    """The accumulator after gradients of one element."""
    device, parameter = machine(sr), torch.nn.Parameter(torch.zeros(1).half())
    gradients = MicroBatchGradients(device, len(values), 1, how, {id(parameter): dtype})
    for m in order or range(len(values)):
        gradients.add(0, m, "w", parameter, torch.tensor([values[m]]).half())
    assert parameter in gradients
    (array,) = gradients.of(parameter)
    return array


def test_sums_are_kept_in_the_accumulators_format():
    values = [2048.0, 1.0, 1.0]
    assert accumulated(values, Reduction.SUM, HALF).values.tolist() == [2048]
    wide = accumulated(values, Reduction.SUM, SINGLE)
    assert (wide.format, wide.values.tolist()) == (BINARY32, [2050])


def test_a_running_mean_does_not_overflow_where_a_sum_does():
    values = [60000.0] * 4
    assert accumulated(values, Reduction.SUM, HALF).values.tolist() == [65504]
    running = accumulated(values, Reduction.RUNNING_MEAN, HALF)
    assert abs(running.values[0] / 60000 - 1) < 2e-3


def test_one_micro_batch_needs_no_accumulator():
    assert accumulated([0.1], Reduction.SUM, SINGLE).format == BINARY16


def test_random_bits_belong_to_the_micro_batch():
    """Not to the time: what is added in between does not matter."""
    values = [1.0, 2.0**-11, 2.0**-11, 2.0**-11]
    device = machine(sr=True)
    parameters = [torch.nn.Parameter(torch.zeros(64).half()) for _ in range(2)]
    results = []
    for mixed in (False, True):
        types = dict.fromkeys(map(id, parameters), HALF)
        gradients = MicroBatchGradients(device, 4, 1, Reduction.SUM, types)
        for m, value in enumerate(values):
            gradients.add(0, m, "a", parameters[0], torch.full((64,), value).half())
            if mixed:
                gradients.add(0, m, "b", parameters[1], torch.full((64,), value).half())
        results.append(gradients.of(parameters[0])[0].values)
        device.session.clock.forget()
    assert np.array_equal(results[0], results[1])
    assert len(set(results[0].tolist())) > 1


def test_replicas_are_summed_in_the_declared_order():
    """The known answer of docs/semantics.md: FP16 to nearest, x_0 = 1, the others 2^-11."""
    device = machine()
    values = np.array([[1.0] * 4] + [[2.0**-11] * 4] * 3)
    arrays = [as_array(device, torch.tensor(row).half()) for row in values]
    replicas = ReplicaAdditions(device, 4)
    codes = {order: [hex(code)[2:] for code in replicas.sum(arrays, 0, order).codes().tolist()]
             for order in (Order.TF_RING, Order.CLOCKWISE_RING, Order.TREE)}
    assert codes[Order.TF_RING] == ["3c00", "3c02", "3c02", "3c00"]
    assert codes[Order.CLOCKWISE_RING] == ["3c02", "3c02", "3c00", "3c00"]
    assert codes[Order.TREE] == ["3c01"] * 4


def test_flags_of_a_sum_reach_the_models_device():
    device = machine()
    arrays = [as_array(device, torch.tensor([60000.0]).half()) for _ in range(2)]
    device.device.clear_status()
    total = ReplicaAdditions(device, 2).sum(arrays, 0, "sequential")
    assert total.values.tolist() == [65504]
    assert device.device.status.oflo
    assert total.context is device.device.context(BINARY16)


@pytest.mark.parametrize("replicas", [1, 3])
def test_one_gradient_is_no_sum(replicas):
    device = machine()
    array = as_array(device, torch.ones(2))
    assert ReplicaAdditions(device, replicas).sum([array], 0, "auto") is array
