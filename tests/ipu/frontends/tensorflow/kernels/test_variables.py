"""Variables: read, assigned, added to; what they hold afterwards (law)."""

from __future__ import annotations

import numpy as np

from tests.ipu.frontends.tensorflow.framework import launch, machine, tf
from tests.ipu.frontends.tensorflow.kernels.nodes import types_of


def changed(kind, function):
    """A variable's value after a launch, and the types of the program's nodes."""
    variable = tf.Variable(tf.constant([1, 2, 3], kind))
    traced = tf.function(lambda: function(variable))
    with machine():
        launch(traced)
    return variable.numpy(), types_of(traced)


def test_assignments_reach_tensorflow():
    for kind in (tf.float32, tf.float16, tf.int32, tf.bool):
        if kind != tf.bool:
            value, types = changed(kind, lambda v: v.assign(v + v))
            assert value.tolist() == [2, 4, 6]
            assert {"ReadVariableOp", "AssignVariableOp"} <= types


def test_in_place_sums_and_differences():
    for kind in (tf.float32, tf.float16, tf.int32):
        value, types = changed(kind, lambda v: v.assign_add(v))
        assert value.tolist() == [2, 4, 6]
        assert "AssignAddVariableOp" in types
        value, types = changed(kind, lambda v: v.assign_sub(v + v))
        assert value.tolist() == [-1, -2, -3]
        assert "AssignSubVariableOp" in types


def test_a_later_read_sees_an_earlier_assignment():
    value, _ = changed(tf.float32, lambda v: [v.assign_add(v), v.assign(v * v)])
    assert value.tolist() == [4, 16, 36]


def test_rows_of_a_variable():
    table = tf.Variable(np.arange(6, dtype=np.float32).reshape(3, 2))
    traced = tf.function(lambda: tf.nn.embedding_lookup(table, [2, 0]))
    with machine():
        assert launch(traced).numpy().tolist() == [[4, 5], [0, 1]]
    assert "ResourceGather" in types_of(traced)


def test_rows_are_changed():
    changes = {
        "ResourceScatterAdd": ("scatter_add", [3.5, 1, 7]),
        "ResourceScatterSub": ("scatter_sub", [0.5, 1, -3]),
        "ResourceScatterMul": ("scatter_mul", [1.5, 1, 8]),
        "ResourceScatterMax": ("scatter_max", [1.5, 1, 4]),
        "ResourceScatterMin": ("scatter_min", [1, 1, 2]),
        "ResourceScatterUpdate": ("scatter_update", [1.5, 1, 4]),
    }
    for kind in (tf.float32, tf.float16):
        for node, (name, expected) in changes.items():
            rows = tf.IndexedSlices(tf.constant([1, 1.5, 4], kind), tf.constant([0, 0, 2]))
            variable = tf.Variable(tf.constant([1, 1, 2 if name != "scatter_add" else 3], kind))
            if name == "scatter_sub":
                variable.assign(tf.constant([3, 1, 1], kind))
            traced = tf.function(lambda v=variable, n=name, r=rows: getattr(v, n)(r) * 1)
            with machine():
                launch(traced)
            assert variable.numpy().tolist() == expected
            assert node in types_of(traced)


def test_the_shape_of_a_variable():
    table = tf.Variable(np.zeros((3, 2), np.float32))
    traced = tf.function(lambda: tf.raw_ops.VariableShape(input=table.handle))
    with machine():
        assert launch(traced).numpy().tolist() == [3, 2]


def test_variables_hold_the_parameters_format():
    weight = tf.Variable([0.1, 0.2])
    with machine(policy="f16"):
        launch(tf.function(lambda: weight.assign_add([0.0001, 0.0])))
    expected = np.float16(0.1) + np.float16(0.0001)
    assert weight.numpy()[0] == np.float32(expected)
