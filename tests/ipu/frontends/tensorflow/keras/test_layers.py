"""The vendor's layers of Keras in models on the machine (differential, law)."""

from __future__ import annotations

import numpy as np
import pytest

from tests.ipu.frontends.tensorflow.framework import configured, ipu, machine, tf

layers = ipu.keras.layers
X = np.random.default_rng(0).normal(size=(16, 4, 4, 6)).astype(np.float32)


def fitted(*net, x=X):
    """Losses of a model with these layers, and the model."""
    tf.keras.utils.set_random_seed(1)
    with machine(), ipu.ipu_strategy.IPUStrategyV1().scope():
        configured()
        model = tf.keras.Sequential([*net, tf.keras.layers.Flatten(), tf.keras.layers.Dense(1)])
        model.compile(tf.keras.optimizers.SGD(0.01), "mse", steps_per_execution=2)
        data = tf.data.Dataset.from_tensor_slices((x, x[:, 0, 0, :1])).batch(8, True).repeat(4)
        return model.fit(data, verbose=0).history["loss"], model


@pytest.mark.parametrize(
    ("layer", "groups"),
    [(layers.GroupNorm(groups=3), 3), (layers.InstanceNorm(), 6), (layers.LayerNormalization(), 1)],
)
def test_norms_have_their_groups_and_train(layer, groups):
    _, model = fitted(layer)
    assert layer.groups == groups
    assert [tuple(w.shape) for w in layer.trainable_weights] == [(6,), (6,)]
    assert (np.abs(layer.beta.numpy()) > 0).all()
    assert model.count_params() == 12 + 97


def test_a_layer_norm_is_that_of_keras():
    ours, theirs = layers.LayerNorm(epsilon=1e-3), tf.keras.layers.LayerNormalization()
    x = tf.constant(X[:, 0, 0])
    np.testing.assert_allclose(ours(x), theirs(x), rtol=1e-5, atol=1e-6)


def test_weights_have_the_type_of_the_argument_and_inputs_keep_theirs():
    layer = layers.GroupNormalization(dtype=tf.float32, center=False, channels_axis=1)
    y = layer(tf.ones((2, 4, 3), tf.half))
    assert (y.dtype, layer.gamma.dtype) == (tf.half, tf.float32)
    assert not hasattr(layer, "beta")
    with pytest.raises(ValueError, match="5 channels is not commensurate with 2 groups"):
        layers.GroupNorm()(tf.ones((2, 5)))


def test_dropout_drops_in_training_alone():
    layer = layers.Dropout(0.5, seed=[1, 2])
    x = tf.ones((4, 32))
    np.testing.assert_array_equal(layer(x, training=False), x)
    assert set(np.unique(layer(x, training=True))) == {0, 2}
    assert layers.Dropout.from_config(layer.get_config()).seed == [1, 2]
    losses, model = fitted(layers.Dropout(0.5))
    assert np.isfinite(losses).all()
    with pytest.raises(ValueError, match="The rate must be in the range"):
        layers.Dropout(1)
    assert model.layers[0].rate == 0.5


def test_a_checkpoint_of_recomputation_changes_no_bit():
    with_one, plain = fitted(layers.RecomputationCheckpoint()), fitted()
    assert with_one[0] == plain[0]
    for a, b in zip(with_one[1].get_weights(), plain[1].get_weights(), strict=True):
        np.testing.assert_array_equal(a, b)


def test_what_is_missing_has_a_sentence():
    with pytest.raises(NotImplementedError, match=r"layers\.SerialDense is not modelled; there"):
        _ = layers.SerialDense
    with pytest.raises(AttributeError, match=r"keras.layers has no 'Group' here; there are"):
        _ = layers.Group
