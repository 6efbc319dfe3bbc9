"""The node of an accumulation is ipu.learn's (differential, by code); types (law)."""

from __future__ import annotations

import numpy as np
import pytest

from fpsim.records.formats import BINARY16, BINARY32
from ipu.frontends.tensorflow.training.composites import Accumulators, accumulator_dtype, label
from ipu.frontends.tensorflow.training.reductions import GradientAccumulationReductionMethod
from ipu.learn.accumulate import Accumulation
from ipu.learn.variables import Variable
from ipu.machine.device import Device
from tests.ipu.frontends.tensorflow.framework import launch, machine, tf

G = np.random.default_rng(3).normal(size=(4, 5)).astype(np.float16)


@pytest.mark.parametrize("method", list(GradientAccumulationReductionMethod))
@pytest.mark.parametrize("kind", [tf.float16, tf.float32])
def test_the_node_adds_as_ipu_learn_does(method, kind):
    with machine():
        variable = tf.Variable(tf.zeros([5], tf.float16), name="layer/w")
        accumulators = Accumulators(8, method, kind)

        @tf.function
        def step(gradient):
            added = accumulators.add([(gradient, variable)])
            accumulators.update([variable], added, lambda pairs: None)
            with tf.control_dependencies(added):
                return accumulators._accumulator(variable).read_value()

        values = [launch(step, tf.constant(row)).numpy() for row in G]
    device = Device()
    fmt = BINARY16 if kind == tf.float16 else BINARY32
    ours = Variable(device.zeros(5, BINARY16), device, "layer/w")
    accumulator = Accumulation(8, method.name, fmt).start([ours])
    for row, value in zip(G, values, strict=True):
        accumulator = accumulator.add([(device.from_host(row, BINARY16), ours)])
        np.testing.assert_array_equal(value, accumulator.values[0].values.astype(value.dtype))


def test_types_of_accumulators():
    variable = tf.Variable([1.0], dtype=tf.float16, name="scope/w")
    assert accumulator_dtype(variable, None) == tf.float16
    assert accumulator_dtype(variable, tf.float32) == tf.float32
    assert accumulator_dtype(variable, np.float32) == tf.float32
    assert accumulator_dtype(variable, lambda v: v.dtype) == tf.float16
    assert label(variable) == "scope/w"
