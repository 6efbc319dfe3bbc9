"""Nodes in float64 on tensors in memory of their own (differential, corners)."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from fpsim.state import blas
from ipu.run.shadow import Shadow
from tests.blas import BlasLibrary
from tests.ipu.frontends.tensorflow.framework import tf

from ipu.frontends.tensorflow.engine.program import program_of  # isort: skip
from ipu.frontends.tensorflow.reports.twins import (  # isort: skip
    ElementwiseTwin, twin_of, wide_copy,
)

RNG = np.random.default_rng(5)


class Site:
    """What a twin asks of the place where a node runs."""

    def __init__(self, node):
        self.node, self.attr = node, node.attr


def twin_in(function, *values):
    """The twin of the only node of a function that computes, and its result."""
    graph = tf.function(function).get_concrete_function(
        *(tf.TensorSpec(x.shape, tf.float32) for x in values)).graph
    node = next(n for n in program_of(graph).nodes if n.type not in ("Identity", "Const"))
    outputs, variables = twin_of(Site(node))([wide_copy(x) for x in values], [])
    assert variables == []
    return outputs[0]


def sum_in(function, x):
    """The twin of a sum whose axes are a constant."""
    graph = tf.function(function).get_concrete_function(tf.TensorSpec(x.shape, tf.float32)).graph
    node = next(n for n in program_of(graph).nodes if n.type in ("Sum", "Mean"))
    axes = tf.get_static_value(node.inputs[1])
    (result,), _ = twin_of(Site(node))([x, axes], [])
    return result


@pytest.mark.parametrize(("turned_x", "turned_y"), list(product((False, True), repeat=2)))
@pytest.mark.parametrize("batch", [(), (3,), (2, 3)])
def test_products_are_those_of_fractions_of_tensorflow(turned_x, turned_y, batch):
    """To the roundings of sums of 5 terms."""
    x = RNG.normal(size=(*batch, *((5, 4) if turned_x else (4, 5))))
    y = RNG.normal(size=(*batch, *((6, 5) if turned_y else (5, 6))))
    result = twin_in(
        lambda a, b: tf.matmul(a, b, transpose_a=turned_x, transpose_b=turned_y), x, y)
    expected = tf.matmul(x, y, transpose_a=turned_x, transpose_b=turned_y).numpy()
    assert result.dtype == np.float64
    np.testing.assert_allclose(result, expected, rtol=0, atol=1e-14)


def test_batches_of_products_broadcast():
    x, y = RNG.normal(size=(2, 1, 3, 4)), RNG.normal(size=(5, 4, 2))
    np.testing.assert_allclose(twin_in(tf.matmul, x, y), x @ y, rtol=0, atol=1e-14)


@pytest.mark.parametrize(("turned_x", "turned_y"), list(product((False, True), repeat=2)))
def test_a_batch_meets_one_matrix(turned_x, turned_y):
    x, y = RNG.normal(size=(2, 3, 5, 5)), RNG.normal(size=(5, 5))
    result = twin_in(
        lambda a, b: tf.matmul(a, b, transpose_a=turned_x, transpose_b=turned_y), x, y)
    expected = (x.swapaxes(-1, -2) if turned_x else x) @ (y.T if turned_y else y)
    assert result.shape == (2, 3, 5, 5)
    np.testing.assert_allclose(result, expected, rtol=0, atol=1e-14)


@pytest.mark.parametrize("x", [
    RNG.normal(size=(7,)), RNG.normal(size=(2, 3, 4)), [[-np.inf, 0.0, 1.0], [800.0, 1e-9, -800.0]],
    [[np.nan, 1.0], [np.inf, 1.0]]])
def test_softmax_is_that_of_tensorflow(x):
    expected = tf.nn.softmax(tf.constant(x, tf.float64)).numpy()
    np.testing.assert_allclose(twin_in(tf.nn.softmax, np.array(x)), expected, rtol=1e-14)


def outputs_in(function, kind, *operands):
    """What the twin of the node of this type gives for operands as they are."""
    specs = [tf.TensorSpec(np.shape(x), np.asarray(x).dtype) for x in operands]
    graph = tf.function(function).get_concrete_function(*specs).graph
    node = next(n for n in program_of(graph).nodes if n.type == kind)
    return lambda *values: twin_of(Site(node))(values, [])[0]


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_tensors_are_joined_and_parted_as_in_tensorflow(axis):
    x, y = RNG.normal(size=(2, 4, 6)), RNG.normal(size=(2, 4, 6))
    (joined,) = outputs_in(lambda a, b: tf.concat([a, b], axis), "ConcatV2", x, y)(
        x, y, np.int32(axis))
    np.testing.assert_array_equal(joined, np.concatenate([x, y], axis))
    parts = outputs_in(lambda a: tf.split(a, 2, axis), "Split", x)(np.int32(axis), x)
    for part, expected in zip(parts, np.split(x, 2, axis), strict=True):
        np.testing.assert_array_equal(part, expected)
        assert part.flags.c_contiguous


def test_rows_of_a_variable_are_those_of_tensorflow():
    x, places = RNG.normal(size=(5, 3)), np.array([[4, 0], [0, 2]], np.int32)
    variable = tf.Variable(x)
    (rows,) = outputs_in(lambda i: tf.gather(variable, i), "ResourceGather", places)(x, places)
    np.testing.assert_array_equal(rows, tf.gather(variable, places).numpy())


@pytest.mark.parametrize("shape", [(), (1,), (3, 5), (0, 4)])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_copies_have_memory_of_their_own(shape, dtype):
    values = np.asarray(RNG.normal(size=shape), dtype)
    before, numbers = values.copy(), wide_copy(values)
    values[...] = 7.0
    assert numbers.dtype == np.float64
    assert numbers.shape == shape
    np.testing.assert_array_equal(numbers, before)


UNARY = {
    "Exp": tf.exp, "Neg": tf.negative, "Rsqrt": tf.math.rsqrt, "Sqrt": tf.sqrt,
    "Square": tf.square,
}


@pytest.mark.parametrize("kind", sorted(UNARY))
@pytest.mark.parametrize("shape", [(), (5,), (3, 70)])
def test_functions_of_one_operand_are_those_of_tensorflow(kind, shape):
    """To the last digits of a function; by a pass over the elements to the bit."""
    x = np.abs(np.asarray(RNG.normal(size=shape), np.float32)) + np.float32(0.1)
    expected = UNARY[kind](tf.constant(x, tf.float64)).numpy()
    np.testing.assert_allclose(twin_in(UNARY[kind], x), expected, rtol=1e-15)
    if kind in ElementwiseTwin.OPERATIONS:
        twin, far, result = ElementwiseTwin(kind), np.float64(x), UNARY[kind](x).numpy()
        shadow, _ = twin.beside(x, twin.partner(x), far, twin.partner(far), result)
        assert shadow.tobytes() == expected.tobytes()


@pytest.mark.parametrize("function", [tf.reduce_sum, tf.reduce_mean])
@pytest.mark.parametrize("axes", [None, 0, -1, (0, 2), ()])
@pytest.mark.parametrize("keepdims", [False, True])
def test_sums_and_means_are_those_of_tensorflow(function, axes, keepdims):
    x = np.asarray(RNG.normal(size=(3, 4, 5)), np.float32)
    expected = function(tf.constant(x, tf.float64), axes, keepdims).numpy()
    result = sum_in(lambda a: function(a, axes, keepdims), x)
    assert np.shape(result) == expected.shape
    np.testing.assert_allclose(result, expected, rtol=1e-14)


@pytest.mark.parametrize("function", [
    lambda a: tf.tile(a, [1, 3]), lambda a: tf.reshape(a, [5, 4]), lambda a: a[None] * 1.0,
    lambda a: tf.add_n([a, a, a])])
def test_moves_and_additions_are_those_of_tensorflow(function):
    x = np.asarray(RNG.normal(size=(4, 5)), np.float32)
    graph = tf.function(function).get_concrete_function(tf.TensorSpec(x.shape, tf.float32)).graph
    node = next(n for n in program_of(graph).nodes if n.type not in ("Identity", "Const"))
    operands = [
        wide_copy(x) if t.dtype == tf.float32 else tf.get_static_value(t) for t in node.inputs]
    (result,), _ = twin_of(Site(node))(operands, [])
    raw = {
        "Tile": lambda: np.tile(x, (1, 3)), "Reshape": lambda: x.reshape(5, 4),
        "ExpandDims": lambda: x[None], "StridedSlice": lambda: x[None],
        "AddN": lambda: np.float64(x) + x + x,
    }
    expected = raw[node.type]()
    np.testing.assert_allclose(result, expected, rtol=1e-15)


def test_the_gradient_of_a_reciprocal_root_is_that_of_tensorflow():
    root, gradient = np.abs(RNG.normal(size=(2, 7))) + 0.1
    expected = tf.raw_ops.RsqrtGrad(y=tf.constant(root), dy=tf.constant(gradient)).numpy()
    result = twin_in(
        lambda y, dy: tf.raw_ops.RsqrtGrad(y=y, dy=dy), root, gradient)
    np.testing.assert_allclose(result, expected, rtol=1e-14)


KINDS = {
    "AddV2": tf.add, "Sub": tf.subtract, "Mul": tf.multiply, "RealDiv": tf.divide,
    "SquaredDifference": tf.math.squared_difference,
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("shape_x", "shape_y"), [
    ((3, 4), (3, 4)), ((3, 4), ()), ((1,), (3, 4)), ((2, 3, 4), (3, 1)), ((4,), (3, 4)), ((), ())])
def test_elementwise_nodes_in_one_pass_are_those_of_tensorflow(kind, shape_x, shape_y):
    x, y = (np.asarray(RNG.normal(size=s), np.float32) for s in (shape_x, shape_y))
    far_x, far_y = x + 1e-3, np.float64(y) * 1.5
    function = KINDS[kind]
    result = function(x, y).numpy()
    shadow, squares = ElementwiseTwin(kind).beside(x, y, far_x, far_y, result)
    far = function(tf.constant(far_x, tf.float64), tf.constant(far_y, tf.float64)).numpy()
    local = function(tf.cast(x, tf.float64), tf.cast(y, tf.float64)).numpy()
    assert shadow.tobytes() == far.tobytes()
    assert shadow.shape == result.shape
    account = Shadow(1)
    by_results = account.compared(("", "", ""), result, local, far, 0.0)
    assert Shadow(1).added(("", "", ""), squares, result.size, 0.0) == by_results


def test_what_is_not_finite_is_left_to_the_other_way():
    x = np.float32([1.0, np.inf])
    wide = np.float64(x)
    assert ElementwiseTwin("Sub").beside(x, x, wide, wide, x - np.float32(1.0)) is None


def test_products_run_on_one_thread_of_blas(monkeypatch):
    library, multiply, threads = BlasLibrary(4), np.matmul, []
    monkeypatch.setattr(blas, "_control", lambda: library)

    def product(*operands, **options):
        threads.append(library.threads)
        return multiply(*operands, **options)

    monkeypatch.setattr(np, "matmul", product)
    twin_in(tf.matmul, np.eye(3, dtype=np.float32), np.eye(3, dtype=np.float32))
    assert (threads, library.threads) == ([1], 4)
