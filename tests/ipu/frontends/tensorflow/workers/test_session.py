"""Sessions of several workers start with root's values and end with equal ones (law)."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from ipu.frontends.tensorflow.workers.session import CHECK_EVERY, SyncHook
from tests.ipu.frontends.tensorflow.framework import session, tf

v1 = tf.compat.v1


class Second:
    """The second worker of two; root is at a step of its own, and all its values are 7."""

    rank, size = 1, 2

    def __init__(self, step):
        self.members = SimpleNamespace(saved=None)
        self.root, self.checked, self.lines = step, [], []

    def of_root(self, x, name):
        return np.full_like(x, self.root if name == "global_step" else 7)

    def reduced(self, x, *, mean):
        return x

    def compare(self, lines):
        self.lines = lines

    def check_equal(self, digest, step):
        self.checked.append((len(digest), step))


@pytest.mark.source("S1-23")
@pytest.mark.parametrize(("root", "expected"), [(0, [7, 1]), (5, [7, 7])])
def test_trained_variables_are_roots_and_others_where_root_stands_elsewhere(root, expected):
    workers = Second(root)
    with session() as opened:
        step = v1.train.get_or_create_global_step()
        trained = v1.get_variable("trained", [2], initializer=v1.zeros_initializer())
        private = v1.get_variable("mean", [], initializer=v1.ones_initializer(), trainable=False)
        hook = SyncHook(workers, step)
        hook.begin()
        opened.run(v1.global_variables_initializer())
        hook.after_create_session(opened, None)
        assert (workers.step, workers.members.saved) == (root, root or None)
        values = opened.run([trained, private])
        assert [values[0].tolist(), values[1]] == [[expected[0]] * 2, expected[1]]
        assert "variable trained:0: float32 (2,)" in workers.lines
        run = type("Run", (), {"session": opened})
        for _ in range(2 * CHECK_EVERY):
            hook.after_run(run, None)
        hook.end(opened)
    assert [length for length, _ in workers.checked] == [64] * 3
