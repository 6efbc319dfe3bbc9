"""Optimisers of Keras by the vendor's names (law)."""

from __future__ import annotations

from ipu.frontends.tensorflow.keras import optimizers
from tests.ipu.frontends.tensorflow.framework import ipu, tf


def test_every_name_is_there_under_both_packages():
    for name in optimizers.__all__:
        assert getattr(ipu.keras.optimizers, name) is getattr(tf.keras.ipu.optimizers, name)
