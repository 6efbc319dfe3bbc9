"""Hooks of sessions (law)."""

from __future__ import annotations

import pytest

from ipu.frontends.tensorflow.estimator.hooks import InfeedHook, StepHook
from tests.ipu.frontends.tensorflow.framework import ipu, session, tf

v1 = tf.compat.v1


def test_a_run_ends_at_its_last_step():
    with session() as run:
        step = v1.get_variable("step", [], tf.int64, v1.zeros_initializer())
        infeed = ipu.ipu_infeed_queue.IPUInfeedQueue(tf.data.Dataset.from_tensors(1.0).repeat())
        hooks = [StepHook(step, 2, 6, None), InfeedHook(infeed)]
        taken = infeed._dequeue()
        with v1.train.MonitoredSession(hooks=hooks) as monitored:
            launches = 0
            while not monitored.should_stop():
                assert monitored.run(taken) == 1
                launches += 1
        assert launches == 3
        del run


def test_one_end_is_given():
    with session():
        step = v1.get_variable("step", [], tf.int64, v1.zeros_initializer())
        with pytest.raises(ValueError, match="One of `num_steps` or `final_step`"):
            StepHook(step, 1, None, None)
        with pytest.raises(ValueError, match="Only one of `num_steps` or `final_step`"):
            StepHook(step, 1, 1, 1)
