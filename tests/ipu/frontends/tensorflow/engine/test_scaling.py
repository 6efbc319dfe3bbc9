"""A loss scale from outside: gradients beside numpy's roundings, by hand (differential, law)."""

from __future__ import annotations

import numpy as np
import pytest

from tests.ipu.frontends.tensorflow.framework import ipu, tf

from fpsim.tf import machine  # isort: skip
from ipu.run.changes import Changes  # isort: skip

X = np.array([1.1e-5, -3.3e-6, 7.7e-7, 2.0e-6, 5e-5, -1e-7, 3e-8, 4e-6], np.float32)


def strategy():
    return ipu.ipu_strategy.IPUStrategyV1()


def gradient_in(policy, scale, factor=1.0, dtype=tf.float32):
    """The gradient of a mean of products, and the report; `factor`: the program's loss scale."""
    changes = Changes(loss_scale=scale)
    with machine(policy, count=True, unconfigured=True, changes=changes) as run:
        w = tf.Variable(tf.ones(8, dtype), name="net/w")

        @tf.function
        def step(x):
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean(w * x)
                root = loss if factor == 1 else loss * tf.constant(factor, dtype)
            return loss, tape.gradient(root, w)

        loss, gradient = strategy().run(step, [tf.constant(X, dtype)])
    return float(loss), gradient.numpy(), run.report()


@pytest.mark.parametrize("scale", [1.0, 4096.0, 2.0**18])
def test_gradients_begin_at_the_scale_and_are_divided_in_binary32(scale):
    """The first gradient, scale / 8, is rounded into the layer's format after binary32's mean."""
    loss, gradient, report = gradient_in("fp16", scale)
    first = np.float16(scale / 8)
    expected = (first * X.astype(np.float16)).astype(np.float16).astype(np.float32)
    assert np.array_equal(gradient, expected / np.float32(scale))
    assert report["loss_scale"]["present"] == scale
    assert report["losses"] == [loss] == [gradient_in("fp16", 1.0)[0]]
    assert np.count_nonzero(gradient) == (8 if scale > 1 else 6)


def test_a_half_program_has_halves_again():
    _, gradient, _ = gradient_in("fp32", 4096.0, dtype=tf.half)
    scaled = np.float16(512) * X.astype(np.float16)
    assert gradient.dtype == np.float16
    assert np.array_equal(gradient, (scaled.astype(np.float32) / 4096).astype(np.float16))


def test_it_multiplies_the_scale_that_the_program_has():
    loss, gradient, report = gradient_in("fp32", 1 / 16, factor=64.0)
    assert report["losses"] == [loss]
    np.testing.assert_array_equal(gradient, gradient_in("fp32", 1.0)[1] * 64)
    assert gradient_in("fp16", 1 / 16, factor=64.0)[2]["loss_scale"]["present"] == 4.0


def test_a_keras_model_with_rows_of_an_embedding_trains_as_before():
    """A power of two moves no bit where nothing is subnormal or too large."""

    def trained(policy, scale):
        tf.keras.backend.clear_session()
        tf.keras.utils.set_random_seed(1)
        changes = Changes(loss_scale=scale)
        with machine(policy, unconfigured=True, changes=changes), strategy().scope():
            layers = [
                tf.keras.layers.Embedding(5, 4, input_length=2), tf.keras.layers.Flatten(),
                tf.keras.layers.Dense(3),
            ]
            model = tf.keras.Sequential(layers)
            loss = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
            model.compile(tf.keras.optimizers.SGD(0.5), loss, steps_per_execution=4)
            x = np.arange(32, dtype=np.int32).reshape(16, 2) % 5
            history = model.fit(x, np.arange(16) % 3, batch_size=4, shuffle=False, verbose=0)
            return history.history["loss"], [w.tolist() for w in model.get_weights()]

    assert trained("fp32", 1.0) == trained("fp32", 16.0)
    assert trained("fp16", 1.0) != trained("fp16", 2.0**19)  # the first gradients saturate


def test_a_graph_of_before_the_run_is_refused():
    w = tf.Variable(1.0)

    @tf.function
    def step(x):
        with tf.GradientTape() as tape:
            loss = w * x
        return tape.gradient(loss, w)

    with machine(unconfigured=True):
        assert float(strategy().run(step, [tf.constant(3.0)])) == 3.0
    with machine(unconfigured=True, changes=Changes(loss_scale=8.0)), pytest.raises(
        ValueError, match="scale=8 is for gradients that are built inside of the run"
    ):
        strategy().run(step, [tf.constant(3.0)])
