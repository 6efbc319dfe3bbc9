"""The package of captured gradients by the vendor's names (law)."""

from __future__ import annotations

import importlib

from tests.ipu.frontends.tensorflow.framework import ipu


def test_backprop_is_found_by_both_names():
    module = importlib.import_module("tensorflow.python.ipu.eager.backprop")
    assert module.GradientCaptureTape is ipu.eager.backprop.GradientCaptureTape
