"""Optimisers around another one: what the inner one gets (law)."""

from __future__ import annotations

import numpy as np
import pytest

from tests.ipu.frontends.tensorflow.framework import configured, ipu, machine, tf

optimizers = ipu.keras.optimizers


def stepped(optimizer, ipus=1):
    """Weights after a step from 5, 4, 3 whose gradients are the numbers themselves."""
    strategy = ipu.ipu_strategy.IPUStrategyV1()
    with machine(), strategy.scope():
        configured(ipus)
        weights = tf.Variable([5.0, 4.0, 3.0])

        @tf.function
        def step():
            with tf.GradientTape() as tape:
                loss = tf.reduce_sum(weights * weights) / 2
            optimizer.minimize(loss, [weights], tape)

        strategy.run(step)
        return weights.numpy()


def test_a_gradient_is_mapped_before_it_is_applied():
    mapped = optimizers.MapGradientOptimizer(
        tf.keras.optimizers.SGD(1.0), lambda gradient, variable: gradient * 0.5 + 0.01 * variable
    )
    np.testing.assert_allclose(stepped(mapped), [2.45, 1.96, 1.47], rtol=1e-6)
    with pytest.raises(NotImplementedError, match="gradient_mapping_function cannot be saved"):
        mapped.get_config()


@pytest.mark.parametrize("ipus", [1, 2])
def test_the_mean_of_equal_gradients_is_the_gradient(ipus):
    wrapped = optimizers.CrossReplicaOptimizer(tf.keras.optimizers.SGD(0.5))
    np.testing.assert_array_equal(stepped(wrapped, ipus), [2.5, 2.0, 1.5])
    assert int(wrapped.iterations) == 1
    again = optimizers.CrossReplicaOptimizer.from_config(wrapped.get_config())
    assert float(again.learning_rate) == 0.5
    again.learning_rate = 0.25
    assert float(again._opt.learning_rate) == 0.25


def test_other_kinds_are_refused():
    with pytest.raises(TypeError, match="opt='sgd' is not an optimiser of Keras"):
        optimizers.CrossReplicaOptimizer("sgd")


def test_what_maps_is_a_function():
    with pytest.raises(TypeError, match="gradient_mapping_function=3 is not a function"):
        optimizers.MapGradientOptimizer(tf.keras.optimizers.SGD(1.0), 3)
