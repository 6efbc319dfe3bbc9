"""A refused layer of Keras is told by its name and the line that made it (golden)."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.ipu.frontends.tensorflow.framework import ipu, machine, tf

from ipu.frontends.tensorflow.keras.lines import note_lines  # isort: skip

layers = tf.keras.layers
VOLUMES = np.zeros((2, 4, 4, 4, 1), np.float32)


def line_of(text):
    lines = Path(__file__).read_text().splitlines()
    (number,) = [i for i, line in enumerate(lines, 1) if line.endswith(f"# {text}")]
    return f"{__file__}:{number}"


def refused(build):
    """The sentence with which fit refuses a model; nothing ran."""
    with machine() as used, ipu.ipu_strategy.IPUStrategyV1().scope():
        model = build()
        model.compile("sgd", "mse")
        with pytest.raises(NotImplementedError) as caught:
            model.fit(VOLUMES, VOLUMES[:, 0, 0, 0], batch_size=2, verbose=0)
        assert used.launches == 0
    return str(caught.value)


class Cubes(layers.Layer):
    """A layer of the user's, with a layer of Keras and with operations of its own."""

    def __init__(self):
        super().__init__(name="cubes")
        self.inner = layers.Conv3D(1, 2, name="inner")  # the inner layer
        self.is_own = False

    def call(self, inputs):
        if self.is_own:
            return tf.nn.max_pool3d(inputs, 2, 2, "SAME")  # the operation
        return self.inner(inputs)


def test_a_layer_of_a_model_is_located_where_it_was_made():
    def build():
        return tf.keras.Sequential([
            layers.Conv3D(1, 2, name="cubic"),  # the layer
            layers.GlobalAveragePooling3D(),
        ])

    sentence = refused(build)
    assert sentence.startswith("node sequential")
    assert sentence.endswith(f"it was built at {line_of('the layer')}, layer cubic (Conv3D)")


@pytest.mark.parametrize(
    ("is_own", "text", "end"),
    [(False, "the inner layer", ", layer inner (Conv3D)"), (True, "the operation", "")],
)
def test_the_innermost_line_of_the_program_counts(is_own, text, end):
    def build():
        cubes = Cubes()
        cubes.is_own = is_own
        return tf.keras.Sequential([cubes, layers.GlobalAveragePooling3D()])

    assert refused(build).endswith(f"it was built at {line_of(text)}{end}")


def test_layers_are_extended_once():
    call = layers.Layer.__call__
    note_lines()
    assert layers.Layer.__call__ is call
