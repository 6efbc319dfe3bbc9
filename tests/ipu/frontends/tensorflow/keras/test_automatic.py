"""The automatic loss scale in training steps: when it moves; it changes no weight (law)."""

from __future__ import annotations

import numpy as np
import pytest

from tests.ipu.frontends.tensorflow.framework import configured, ipu, machine, tf

ALSOptimizer = ipu.keras.optimizers.ALSOptimizer
X = np.random.default_rng(0).normal(size=(8, 3)).astype(np.float16)


def steps(n, size=1.0, dtype=tf.half, **options):
    """The optimiser after each of n steps, by its scale, histogram and counter; and the weights."""
    strategy = ipu.ipu_strategy.IPUStrategyV1()
    with machine(), strategy.scope():
        configured()
        weights = tf.Variable([[0.5], [0.25], [1.0]], dtype=dtype)
        inner = tf.keras.optimizers.SGD(0.125)
        optimizer = inner if options.get("plain") else ALSOptimizer(inner, **options)

        @tf.function
        def step():
            with tf.GradientTape() as tape:
                outputs = tf.matmul(tf.constant(X, dtype), weights)
                loss = tf.reduce_mean(outputs * tf.constant(size, dtype))
            optimizer.minimize(loss, [weights], tape)

        states = []
        for _ in range(n):
            strategy.run(step)
            if optimizer is not inner:
                states.append((
                    float(optimizer.loss_scaling_factor), optimizer.histogram.numpy().tolist(),
                    int(optimizer.update_counter),
                ))
        return states, weights.numpy(), optimizer


def test_the_scale_moves_at_the_call_after_the_period():
    history, _, optimizer = steps(7, update_frequency=2)
    assert history == [
        (1, [3, 0], 1), (1, [6, 0], 2), (2, [0, 0], 0), (2, [3, 0], 1), (2, [6, 0], 2),
        (4, [0, 0], 0), (4, [3, 0], 1),
    ]
    np.testing.assert_array_equal(optimizer.normalized_histogram, [1, 0])
    optimizer.reset()
    assert float(optimizer.loss_scaling_factor) == 1
    assert int(optimizer.update_counter) == 0


def test_it_falls_while_gradients_are_large():
    history, *_ = steps(3, size=2048.0, update_frequency=1, initial_loss_scaling_factor=64,
                     histogram_bin_edge=64)
    assert [scale for scale, *_ in history] == [32, 16, 8]


def test_powers_of_two_change_no_weight():
    _, scaled, _ = steps(6, update_frequency=1)
    _, plain, _ = steps(6, plain=True)
    np.testing.assert_array_equal(scaled, plain)
    assert (scaled != np.float16([[0.5], [0.25], [1.0]])).any()


def test_other_types_are_not_counted():
    history, *_ = steps(2, dtype=tf.float32, update_frequency=1)
    assert history == [(2, [0, 0], 0), (4, [0, 0], 0)]


@pytest.mark.parametrize("only", [False, True])
def test_captured_gradients_are_counted_too(only):
    layers = ipu.keras.layers
    strategy = ipu.ipu_strategy.IPUStrategyV1()
    with machine(), strategy.scope():
        configured()
        dense = tf.keras.layers.Dense(2, dtype=tf.half, use_bias=False)
        model = tf.keras.Sequential([layers.CaptureUpstreamGradients(dense)])
        optimizer = ALSOptimizer(tf.keras.optimizers.SGD(0.1), captured_grads_only=only)
        model.compile(optimizer, "mse")
        model.fit(X, X[:, :2], batch_size=8, verbose=0)
        np.testing.assert_array_equal(optimizer.histogram, [16 if only else 22, 0])


def test_numbers_out_of_range_are_refused():
    inner = tf.keras.optimizers.SGD(0.1)
    with pytest.raises(ValueError, match=r"initial=10.0 is not a power of two"):
        ALSOptimizer(inner, initial_loss_scaling_factor=10)
    with pytest.raises(ValueError, match="frequency=0 is out of range"):
        ALSOptimizer(inner, update_frequency=0)
    with pytest.raises(ValueError, match="threshold"):
        ALSOptimizer(inner, ratio_threshold=2)
    again = ALSOptimizer.from_config(ALSOptimizer(inner, lpf_alpha=0.5).get_config())
    assert again._rule.filter == 0.5
