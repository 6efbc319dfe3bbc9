"""Keras on the machine beside Keras on TensorFlow (differential)."""

from __future__ import annotations

import numpy as np
import pytest

from ipu.frontends.tensorflow.keras.functions import extend_models, is_on_ipu
from tests.ipu.frontends.tensorflow.framework import configured, ipu, machine, tf

RNG = np.random.default_rng(0)
X = RNG.normal(size=(320, 8)).astype(np.float32)
Y = X[:, :4].argmax(1).astype(np.int32)


def data():
    return tf.data.Dataset.from_tensor_slices((X, Y)).batch(16, drop_remainder=True)


def model(**options):
    tf.keras.utils.set_random_seed(1)
    layers = [tf.keras.layers.Dense(16, "relu", input_shape=(8,)), tf.keras.layers.Dense(4)]
    net = tf.keras.Sequential(layers)
    loss = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    net.compile(tf.keras.optimizers.Adam(0.01), loss, metrics=["accuracy"], **options)
    return net


@pytest.fixture(scope="module")
def reference():
    net = model()
    history = net.fit(data(), epochs=4, verbose=0).history
    return history, net.get_weights(), net.evaluate(data(), verbose=0), net.predict(X, verbose=0)


@pytest.mark.parametrize("steps", [None, 20])
def test_eighty_steps_of_adam_are_those_of_tensorflow(reference, steps):
    options = {} if steps is None else {"steps_per_execution": steps}
    history, weights, scores, predictions = reference
    with machine() as _, ipu.ipu_strategy.IPUStrategyV1().scope():
        used = configured()
        net = model(**options)
        assert is_on_ipu(net)
        ours = net.fit(data(), epochs=4, verbose=0).history
        assert used.launches == 80 // (steps or 1)
        np.testing.assert_allclose(ours["loss"], history["loss"], rtol=0, atol=1e-5)
        np.testing.assert_allclose(ours["accuracy"], history["accuracy"], rtol=0, atol=1e-7)
        for a, b in zip(net.get_weights(), weights, strict=True):
            np.testing.assert_allclose(a, b, rtol=0, atol=1e-5)
        np.testing.assert_allclose(net.evaluate(data(), verbose=0), scores, rtol=0, atol=1e-5)
        actual = net.predict(data(), verbose=0)
        np.testing.assert_allclose(actual, predictions, rtol=0, atol=1e-4)


@pytest.mark.parametrize("method", ["train_on_batch", "test_on_batch", "predict_on_batch"])
def test_a_method_of_one_batch_takes_launches_of_one(method):
    arguments = (X[:16],) if method == "predict_on_batch" else (X[:16], Y[:16])
    with machine() as _, ipu.ipu_strategy.IPUStrategyV1().scope():
        used = configured()
        getattr(model(), method)(*arguments)
        assert used.launches == 1
        with pytest.raises(ValueError, match=rf"takes 2 batches in a launch, and {method} has one"):
            getattr(model(steps_per_execution=2), method)(*arguments)
        assert used.launches == 1


@pytest.mark.source("graphcore/keras, extensions_base.py, _check_mode")
@pytest.mark.parametrize("iterators", [True, False])
def test_no_model_runs_eagerly(iterators):
    strategy = ipu.ipu_strategy.IPUStrategyV1(enable_dataset_iterators=iterators)
    with machine() as used, strategy.scope():
        net = model(run_eagerly=True)
        for method in (net.fit, net.evaluate, net.predict):
            with pytest.raises(RuntimeError, match="cannot run eagerly when using `IPUStrategy`"):
                method(data(), verbose=0)
        assert used.launches == 0


def test_models_of_elsewhere_stay_with_tensorflow():
    extend_models()
    with machine() as used:
        net = model()
        assert not is_on_ipu(net)
        net.fit(data().take(1), verbose=0)
        assert used.launches == 0


# Layers -------------------------------------------------------------------------------------------

L = tf.keras.layers
TOKENS = RNG.integers(0, 5, (8, 4)).astype(np.int32)
SEQUENCES, IMAGES = (RNG.normal(size=s).astype(np.float32) for s in ((8, 4, 6), (8, 6, 6, 2)))


def attention():
    x = tf.keras.Input((4, 6))
    mixed = L.LayerNormalization(epsilon=0.1)(x + L.MultiHeadAttention(2, 3)(x, x))
    return tf.keras.Model(x, L.Dense(4, "gelu")(L.GlobalAveragePooling1D()(mixed)))


MODELS = {
    "grouped convolutions": (lambda: [L.Conv2D(4, 3, groups=2), L.Flatten(), L.Dense(4)], IMAGES),
    "dilated convolutions": (
        lambda: [L.Conv2D(4, 3, dilation_rate=2), L.Flatten(), L.Dense(4)], IMAGES),
    "images of another size": (
        lambda: [L.UpSampling2D(2), L.UpSampling2D((1, 2), interpolation="bilinear"),
                 L.Conv2D(4, 3), L.GlobalMaxPooling2D()], IMAGES),
    "embeddings": (lambda: [L.Embedding(5, 3, input_length=4), L.Flatten(), L.Dense(4)], TOKENS),
    "a recurrent layer": (
        lambda: [L.Embedding(5, 3, mask_zero=True), L.LSTM(3), L.Dense(4)], TOKENS),
    "attention": (attention, SEQUENCES),
}
#: Their graphs take long to build.
FULL = ("a recurrent layer", "attention")


def trained(build, x, optimizer):
    """Predictions, then losses and weights of a model that was trained after them."""
    tf.keras.utils.set_random_seed(1)
    built = build()
    model = tf.keras.Sequential(built) if isinstance(built, list) else built
    loss = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(optimizer, loss)
    before = model.predict(x, batch_size=4, verbose=0)
    history = model.fit(x, Y[: len(x)], batch_size=4, epochs=2, shuffle=False, verbose=0).history
    return before, np.array(history["loss"]), model.get_weights()


@pytest.mark.parametrize(
    ("kind", "optimizer"),
    [*((kind, "sgd") for kind in MODELS if kind not in FULL), ("embeddings", "adam"),
     *(pytest.param(kind, "sgd", marks=pytest.mark.tier("full")) for kind in FULL)],
)
def test_layers_train_as_on_tensorflow(kind, optimizer):
    expected = trained(*MODELS[kind], optimizer)
    with machine(f32_denormals="ieee"), ipu.ipu_strategy.IPUStrategyV1().scope():
        ours = trained(*MODELS[kind], optimizer)
    for a, b in zip(tf.nest.flatten(ours), tf.nest.flatten(expected), strict=True):
        np.testing.assert_allclose(a, b, rtol=0, atol=2e-6)
