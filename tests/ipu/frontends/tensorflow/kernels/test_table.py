"""The table: every entry has a case beside TensorFlow, and says where it rounds (law)."""

from __future__ import annotations

import importlib
import pkgutil

import numpy as np
import pytest

from fpsim import BINARY16
from ipu import ops
from ipu.machine.device import Device
from ipu.ops.updates import UPDATES
from tests.ipu.frontends.tensorflow import kernels as tests
from tests.ipu.frontends.tensorflow.framework import launch, machine, tf
from tests.ipu.frontends.tensorflow.kernels.nodes import half, on_machine

from ipu.frontends.tensorflow import kernels  # isort: skip
from ipu.frontends.tensorflow.kernels.table import TABLE, moved, single  # isort: skip

#: Types that tests by other names hold.
ELSEWHERE = {
    "NoOp", "While", "Case", "BatchMatMul", "Inv", "ReadVariableOp", "AssignVariableOp",
    "AssignAddVariableOp", "AssignSubVariableOp", "VariableShape", "ResourceScatterAdd",
    "ResourceScatterMul", "ResourceScatterSub", "ResourceScatterMax", "ResourceScatterMin",
    "ResourceScatterUpdate", "PyFunc", "EagerPyFunc", "Enqueue", "IteratorGetNext",
}


def load_all():
    """Every module of the front end that holds kernels."""
    from ipu.frontends import tensorflow

    for module in pkgutil.walk_packages(tensorflow.__path__, f"{tensorflow.__name__}."):
        if module.name.split(".")[3] in ("kernels", "operations", "training"):
            importlib.import_module(module.name)


def test_every_entry_is_compared_with_tensorflow():
    kernels.load()
    cases = set(ELSEWHERE)
    for module_info in pkgutil.walk_packages(tests.__path__, f"{tests.__name__}."):
        if ".test_" in module_info.name and module_info.name != __name__:
            module = importlib.import_module(module_info.name)
            cases |= {*getattr(module, "CASES", ()), *getattr(module, "ALSO", ())}
    ours = {n for n, entry in TABLE.items() if entry.build.__module__.startswith(kernels.__name__)}
    assert sorted(ours - cases) == []


#: Nodes that name no row, and why: of each kind the module that holds them.
WITHOUT_ROWS = {
    "numbers move, are compared or chosen, or are constants": (
        "kernels.moving.", "kernels.arithmetic", "kernels.host",
    ),
    "the host computes": ("scopes",),
    "graphs inside of graphs": ("kernels.control", "kernels.enqueue", "engine."),
    "variables hold values": ("kernels.variables", "operations.capture"),
    "replicas do it together: the row is ops.add, in the order of a plan": (
        "training.cross_replica", "training.gathering",
    ),
    "accumulation is ipu.learn's": ("training.composites",),
    "random numbers of the device's generator": ("kernels.random",),
}
#: Single nodes, and why.
SINGLE = {
    "CumulativeLogsumexp": "of the host in binary64", "IgammaGradA": "of the host in binary64",
}


def test_every_node_names_a_row_or_has_a_reason():
    load_all()
    allowed = tuple(f"ipu.frontends.tensorflow.{m}" for ms in WITHOUT_ROWS.values() for m in ms)
    missing = {
        name: entry.build.__module__ for name, entry in TABLE.items()
        if not entry.rows and name not in SINGLE and not entry.on_host
        and not entry.build.__module__.startswith(allowed)
    }
    assert missing == {}
    assert not [name for name in SINGLE if TABLE[name].rows]


def test_every_update_of_tensorflow_is_reached():
    load_all()
    rows = {row for entry in TABLE.values() for row in entry.rows}
    assert {row for name, row in UPDATES.items() if name.startswith("tensorflow ")} <= rows


def test_entries_say_where_they_round():
    assert all(entry.rounding for entry in TABLE.values())


def test_values_move_and_outputs_are_as_kernels_return_them():
    assert moved(3, lambda v: v + 1) == 4
    assert single([1]) == 1
    assert single([1, 2]) == (1, 2)


def test_a_number_is_a_constant_of_the_nodes_format():
    """Through a kernel that has one: the reciprocal's 1."""
    with machine():
        result = launch(tf.function(lambda a: tf.raw_ops.Reciprocal(x=a)), tf.constant([4.0]))
    assert result.numpy() == pytest.approx(0.25)


a, b = half(2, 6, 6, 4), half(2, 6, 6, 4, seed=1, low=0.1)
#: Functions whose gradients are one node, primitives with options, and arguments.
PRIMITIVES = {
    "tanh": (tf.tanh, {}, a),
    "sigmoid": (tf.sigmoid, {}, a),
    "sqrt": (tf.sqrt, {}, np.abs(b)),
    "relu": (tf.nn.relu, {}, a),
    "add": (tf.add, {}, a, b),
    "subtract": (tf.subtract, {}, a, b),
    "multiply": (tf.multiply, {}, a, b),
    "bias": (tf.nn.bias_add, {}, a, b[0, 0, 0]),
    "max_pool": (lambda x: tf.nn.max_pool2d(x, 3, 2, "SAME"),
                 {"size": 3, "stride": 2, "padding": "SAME", "ties": "all"}, np.round(a)),
    "average_pool": (lambda x: tf.nn.avg_pool2d(x, 3, 2, "VALID"),
                     {"size": 3, "stride": 2, "padding": "VALID"}, a),
    "matmul": (tf.matmul, {}, a[0, 0], b[1, 1].T.copy()),
    "reduce_sum": (lambda x: tf.reduce_sum(x, 0), {"axis": 0}, a),
    "reshape": (lambda x: tf.reshape(x, [12, 24]), {"shape": (12, 24)}, a),
}


@pytest.mark.parametrize("name", PRIMITIVES)
def test_halves_and_their_gradients_are_those_of_the_primitive(name):
    function, options, *arguments = PRIMITIVES[name]
    seed = half(*np.shape(function(*(x.astype(np.float32) for x in arguments))), seed=2)

    def compute(seed, *xs):
        with tf.GradientTape() as tape:
            tape.watch(xs)
            y = function(*xs)
        return [y, *tape.gradient(y, xs, output_gradients=seed)]

    results, _ = on_machine(compute, seed, *arguments)
    device = Device()
    slope, *xs = (device.from_host(x, BINARY16) for x in (seed, *arguments))
    primitive = ops.PRIMITIVES[name]
    y, saved = primitive.forward(device, *xs, **options)
    expected = [y, *(vjp(device, slope, saved) for vjp in primitive.vjps)]
    assert len(results) == len(expected) == 1 + len(arguments)
    for ours, theirs in zip(results, expected, strict=True):
        np.testing.assert_array_equal(ours.view("u2"), np.float16(theirs.values).view("u2"))
