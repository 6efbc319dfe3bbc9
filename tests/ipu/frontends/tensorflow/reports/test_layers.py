"""Names of layers: those of variables, models and scopes that were opened again (golden)."""

from __future__ import annotations

import pytest

from tests.ipu.frontends.tensorflow import framework  # noqa: F401

from ipu.frontends.tensorflow.reports.layers import ScopeLayers, layer_of_variable  # isort: skip

VARIABLES = [
    "dense/kernel", "dense/bias", "net/conv1/w", "dense_1/kernel", "w", "Adam/m/dense/kernel",
]
SCOPES = {
    "dense": "dense",
    "sequential/dense": "dense",
    "sequential/dense/Tensordot": "dense",
    "sequential/dense_1": "dense_1",
    "sequential/flatten": "flatten",
    "dense_7": "dense",
    "net/conv1": "net/conv1",
    "net_2/conv1": "net/conv1",
    "other/net/conv1/pad": "net/conv1",
    "Relu_1": "Relu_1",
    "w": "w",
}


def test_the_layer_of_a_scope():
    layers = ScopeLayers(SCOPES, VARIABLES)
    assert {scope: layers[scope] for scope in SCOPES} == SCOPES
    assert layers["never/seen"] == "never/seen"


@pytest.mark.parametrize(("name", "layer"), [("a/b/w", "a/b"), ("w", "w")])
def test_the_layer_of_a_variable(name, layer):
    assert layer_of_variable(name) == layer
