"""Layers that capture gradients, for optimisers that ask for them (law)."""

from __future__ import annotations

import numpy as np
import pytest

from tests.ipu.frontends.tensorflow.framework import configured, ipu, machine, tf

layers = ipu.keras.layers
X = np.random.default_rng(0).normal(size=(8, 3)).astype(np.float32)


class Asking(tf.keras.optimizers.SGD):
    """Asks for captured gradients and remembers their sizes."""

    supports_captured_grads = True

    def apply_gradients(self, grads_and_vars, captured_grads=None, **named):
        self.sizes = {tag: [tuple(g.shape) for g in gs] for tag, gs in captured_grads.items()}
        return super().apply_gradients(grads_and_vars, **named)


def test_an_optimiser_gets_what_flows_into_layers():
    first = layers.CaptureUpstreamGradients(tf.keras.layers.Dense(4, name="first"))
    second = layers.CaptureActivationGradients(tf.keras.layers.Dense(2, "relu", name="second"))
    with machine(), ipu.ipu_strategy.IPUStrategyV1().scope():
        configured()
        model = tf.keras.Sequential([first, second])
        model.compile(Asking(0.1), "mse")
        model.fit(X, X[:, :2], batch_size=8, verbose=0)
        model.predict(X, verbose=0)
    assert model.optimizer.sizes == {
        "first_cug": [(8, 4)], "second_cag_activation": [(8, 2)],
    }


def test_messages():
    with pytest.raises(ValueError, match="Layer plain does not use an activation function"):
        layers.CaptureActivationGradients(tf.keras.layers.Dense(2, name="plain"))
    for kind in (layers.CaptureUpstreamGradients, layers.CaptureActivationGradients):
        with pytest.raises(ValueError, match="is not a layer of Keras"):
            kind("dense")
