"""Optimisers around others: names, methods, mapped gradients (law, golden: the vendor's test)."""

from __future__ import annotations

import numpy as np
import pytest

from ipu.frontends.tensorflow.training import accumulation, cross_replica, map_gradient, names
from ipu.frontends.tensorflow.training.reductions import GradientAccumulationReductionMethod as M
from ipu.frontends.tensorflow.training.wrapper import IpuOptimizer, applied
from ipu.learn.accumulate import Reduction
from tests.ipu.frontends.tensorflow.framework import ipu, session, tf

v1 = tf.compat.v1


def test_gradients_updates_and_slots_are_the_inner_optimisers():
    with session() as run:
        w = v1.get_variable("w", [], initializer=v1.constant_initializer(3.0))
        opt = IpuOptimizer(v1.train.MomentumOptimizer(0.5, 0.9), "wrapped")
        step = v1.train.get_or_create_global_step()
        train = opt.minimize(w * w, global_step=step)
        run.run(v1.global_variables_initializer())
        run.run(train)
        assert run.run([w, step]) == [0.0, 1]
        assert opt.get_slot_names() == ["momentum"]
        assert run.run(opt.get_slot(w, "momentum")) == 6.0
        assert [v.op.name for v in opt.variables()] == ["w/Momentum"]


def test_optimisers_of_keras_know_no_global_step():
    w = tf.Variable(3.0)
    applied(tf.keras.optimizers.SGD(0.5), [(tf.constant(2.0), w)], global_step=None)
    assert w.numpy() == 2.0


@pytest.mark.parametrize("opt", [None, 5, v1.train.GradientDescentOptimizer])
def test_what_is_wrapped_is_an_optimiser(opt):
    with pytest.raises(TypeError, match=r"CrossReplicaOptimizer: .* is not an opt"):
        ipu.optimizers.CrossReplicaOptimizer(opt)


@pytest.mark.source("graphcore/tensorflow, map_gradient_optimizer_test.py")
def test_a_function_of_gradient_and_variable():
    with session() as run:
        initial = v1.constant_initializer
        w = [v1.get_variable(f"w{i}", [], initializer=initial(i)) for i in (1, 2, 3)]
        unused = v1.get_variable("unused", [])
        loss = 5 * w[0] + 4 * w[1] + 3 * w[2]
        opt = ipu.optimizers.MapGradientOptimizer(
            v1.train.GradientDescentOptimizer(1.0), lambda g, v: g + 0.01 * v
        )
        pairs = opt.compute_gradients(loss, [*w, unused])
        run.run(v1.global_variables_initializer())
        np.testing.assert_allclose(run.run([g for g, _ in pairs[:3]]), [5.01, 4.02, 3.03], 1e-6)
        assert pairs[3][0] is None


def test_what_maps_is_a_function():
    with pytest.raises(TypeError, match="gradient_mapping_function=3 is not a function"):
        ipu.optimizers.MapGradientOptimizer(v1.train.GradientDescentOptimizer(1.0), 3)


def test_members_are_those_of_ipu_learn():
    assert {m.name: m.value for m in M} == {m.name: m.value for m in Reduction}
    assert M.parse(M.MEAN) is M.parse("mean") is M.MEAN
    with pytest.raises(ValueError, match="Cannot parse 3 as one of GradientAccumulationReduct"):
        M.parse(3)


@pytest.mark.parametrize("name", names.__all__)
def test_every_name_is_that_of_the_vendors_package(name):
    from tensorflow.python.ipu import optimizers

    assert getattr(optimizers, name) is getattr(names, name)


def test_modules_of_the_package_are_found():
    from tensorflow.python.ipu.optimizers import (
        cross_replica_optimizer,
        gradient_accumulation_optimizer,
        map_gradient_optimizer,
    )

    assert cross_replica_optimizer is cross_replica
    assert gradient_accumulation_optimizer is accumulation
    assert map_gradient_optimizer is map_gradient
