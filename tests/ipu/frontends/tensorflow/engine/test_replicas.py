"""What replicas keep to themselves from launch to launch (law)."""

from __future__ import annotations

import numpy as np

from ipu.frontends.tensorflow.engine.replicas import forget_private, in_replicas
from ipu.frontends.tensorflow.training.gathering import stacked
from tests.ipu.frontends.tensorflow.framework import configured, ipu, machine, tf


def test_totals_of_replicas_go_on_until_the_host_writes():
    elements = tf.data.Dataset.from_tensor_slices(np.float32([1, 10, 2, 20, 3, 30, 4, 40, 5, 50]))
    with machine():
        used = configured(2)
        strategy = ipu.ipu_strategy.IPUStrategyV1()
        with strategy.scope():
            iterator, total = iter(elements), tf.Variable(0.0)

        @tf.function
        def step(source):
            return stacked(total.assign_add(next(source)))

        def run():
            return strategy.run(step, (iterator,)).numpy().tolist()

        assert [run(), run()] == [[1, 10], [3, 30]]
        assert float(total) == 3
        total.assign(100.0)
        assert run() == [103, 130]
        forget_private(used, total.handle)
        assert run() == [107, 143]
        with in_replicas(used, 1):
            assert run() == [112]
        assert used.replicas == 2
