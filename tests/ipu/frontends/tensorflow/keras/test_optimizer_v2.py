"""One class for every optimiser of Keras (law)."""

from __future__ import annotations

import importlib

import pytest

from ipu.frontends.tensorflow.keras.optimizer_v2 import OptimizerV2
from tests.ipu.frontends.tensorflow.framework import tf

optimizers = tf.keras.optimizers


@pytest.mark.parametrize("package", ["keras", "tensorflow.python.keras"])
def test_programs_get_this_class(package):
    module = importlib.import_module(f"{package}.optimizer_v2.optimizer_v2")
    assert module.OptimizerV2 is OptimizerV2


@pytest.mark.parametrize("optimizer", [
    optimizers.SGD(), optimizers.Adam(), optimizers.legacy.SGD(),
    optimizers.legacy.Adam(),
])
def test_every_optimiser_is_one(optimizer):
    assert isinstance(optimizer, OptimizerV2)
    assert issubclass(type(optimizer), OptimizerV2)


def test_an_optimiser_of_ones_own_is_no_class_of_all():
    class Plain(OptimizerV2):
        """Descends."""

        def _resource_apply_dense(self, grad, var, apply_state=None):
            return var.assign_sub(grad)

        def get_config(self):
            """Nothing."""
            return {}

    assert isinstance(Plain("plain"), OptimizerV2)
    assert not isinstance(optimizers.SGD(), Plain)
    assert not isinstance(3, OptimizerV2)
    variable = tf.Variable(1.0)
    Plain("plain").apply_gradients([(tf.constant(0.25), variable)])
    assert variable.numpy() == 0.75
