"""Checkpoints of several workers: means of what is private, at the first one's time (law)."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from ipu.frontends.tensorflow.workers.saving import SavingHook, _TimerOfRoot
from tests.ipu.frontends.tensorflow.framework import session, tf

v1 = tf.compat.v1


class Two:
    """This worker, and another whose values are twice as large, but for slots."""

    rank, size = 0, 2

    def __init__(self, root=None):
        self.members = SimpleNamespace(saved=None)
        self.root, self.told = root, []

    def texts(self, text, what):
        self.told.append(text)
        return [text, text if self.is_slot(text) else f"another {text}"]

    def is_slot(self, value):
        return len(self.told) == 2  # the second variable

    def reduced(self, x, *, mean, name):
        assert mean
        return (x + 2 * x) / np.float32(2)

    def of_root(self, x, name=""):
        return x if self.root is None else np.int64(self.root)


def test_private_values_are_saved_as_means_and_go_on_as_they_were(tmp_path):
    with session() as opened:
        step = v1.train.create_global_step()
        trained = v1.get_variable("w", initializer=np.float32([5.0]))
        moving = v1.get_variable("moving", initializer=np.float32([1.0, 3.0]), trainable=False)
        v1.get_variable("slot", initializer=np.float32([7.0]), trainable=False)
        count = v1.get_variable("count", initializer=np.int32(4), trainable=False)
        v1.train.Saver()
        v1.add_to_collection(v1.GraphKeys.SAVERS, v1.train.Saver())
        hook = SavingHook(Two(), str(tmp_path), None, 10)
        hook.begin()
        opened.run(v1.global_variables_initializer())
        hook.after_create_session(opened, None)
        hook.end(opened)
        assert opened.run([moving, trained, count, step])[0].tolist() == [1.0, 3.0]
    saved = {name: tf.train.load_variable(str(tmp_path), name)
             for name, _ in tf.train.list_variables(str(tmp_path))}
    assert saved["moving"].tolist() == [1.5, 4.5]
    assert (saved["w"].tolist(), saved["slot"].tolist(), saved["count"]) == ([5.0], [7.0], 4)


@pytest.mark.parametrize("root", [False, True])
def test_the_first_workers_time_is_that_of_all(root):
    class Timer:
        def should_trigger_for_step(self, step):
            return not root

        def last_triggered_step(self):
            return 3

    timer = _TimerOfRoot(Timer(), Two(root))
    assert timer.should_trigger_for_step(9) is root
    assert timer.last_triggered_step() == 3
