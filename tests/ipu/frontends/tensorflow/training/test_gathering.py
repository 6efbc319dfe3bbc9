"""What replicas have side by side (law)."""

from __future__ import annotations

import numpy as np
import pytest

from ipu.frontends.tensorflow.training.gathering import concatenated, of_last_replica, stacked
from tests.ipu.frontends.tensorflow.framework import configured, ipu, machine, tf


@pytest.mark.parametrize(
    ("gather", "expected"),
    [(concatenated, [1, 2, 3, 4]), (stacked, [[1, 2], [3, 4]]), (of_last_replica, [3, 4])],
)
def test_two_replicas_side_by_side(gather, expected):
    """An implicit infeed gives each replica its own element."""
    elements = tf.data.Dataset.from_tensor_slices(np.float32([[1, 2], [3, 4]]))
    with machine():
        configured(2)
        strategy = ipu.ipu_strategy.IPUStrategyV1()
        with strategy.scope():
            iterator = iter(elements)
        step = tf.function(lambda source: gather(next(source)))
        np.testing.assert_array_equal(strategy.run(step, (iterator,)), expected)


def test_one_replica_is_alone():
    with machine():
        run = ipu.ipu_strategy.IPUStrategyV1().run
        for gather, expected in ((concatenated, [1, 2]), (stacked, [[1, 2]])):
            step = tf.function(lambda x, gather=gather: gather(x))
            np.testing.assert_array_equal(run(step, (tf.constant([1.0, 2.0]),)), expected)
            np.testing.assert_array_equal(step(tf.constant([1.0, 2.0])), expected)
