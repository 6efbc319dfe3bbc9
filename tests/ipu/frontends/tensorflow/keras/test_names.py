"""Layers and optimisers of Keras by the vendor's names (law)."""

from __future__ import annotations

import importlib

from ipu.frontends.tensorflow.keras import optimizers
from tests.ipu.frontends.tensorflow.framework import ipu, tf


def test_layers_are_found_by_every_name():
    module = importlib.import_module("tensorflow.python.ipu.keras.layers")
    assert module is ipu.layers is ipu.keras.layers is tf.keras.ipu.layers


def test_every_name_is_there_under_both_packages():
    for name in optimizers.__all__:
        assert getattr(ipu.keras.optimizers, name) is getattr(tf.keras.ipu.optimizers, name)
