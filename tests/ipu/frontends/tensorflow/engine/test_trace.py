"""Tracing leaves TensorFlow's tape as it was; private names it rests on (law)."""

from __future__ import annotations

import pytest

from tests.ipu.frontends.tensorflow.framework import tf

from ipu.frontends.tensorflow.engine.trace import tracing  # isort: skip
from tensorflow.python import pywrap_tfe  # isort: skip
from tensorflow.python.eager import backprop  # isort: skip
from tensorflow.python.framework import ops  # isort: skip


def slope(x):
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = x * x * x
    return tape.gradient(y, x)


def test_gradients_inside_and_outside_are_equal():
    x = tf.constant(2.0)
    with tracing():
        inside = tf.function(slope)(x)
        eager = slope(x)
    assert float(inside) == float(eager) == float(slope(x)) == 12


def test_an_error_leaves_the_tape_as_it_was():
    with pytest.raises(KeyError), tracing():
        raise KeyError("inside")
    assert float(slope(tf.constant(1.0))) == 3


@pytest.mark.parametrize(
    ("owner", "name"),
    [
        (pywrap_tfe, "TFE_Py_RegisterGradientFunction"), (backprop, "_gradient_function"),
        (ops.Graph, "_original_op"), (ops.Graph, "_attr_scope"), (ops.Graph, "_get_function"),
        (tf.Operation, "traceback"),
    ],
)
def test_private_names_are_there(owner, name):
    assert hasattr(owner, name)
