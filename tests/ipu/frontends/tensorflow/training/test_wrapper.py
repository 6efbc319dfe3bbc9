"""A wrapped optimiser is the inner one where nothing else is said (law)."""

from __future__ import annotations

import pytest

from ipu.frontends.tensorflow.training.wrapper import IpuOptimizer, applied
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
