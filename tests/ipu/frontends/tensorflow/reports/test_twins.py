"""Nodes in float64 on tensors in memory of their own (differential, corners)."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from ipu.run.shadow import Shadow
from tests.ipu.frontends.tensorflow.framework import tf

from ipu.frontends.tensorflow.engine.program import program_of  # isort: skip
from ipu.frontends.tensorflow.reports.twins import (  # isort: skip
    ElementwiseTwin, numbers_of, tensor_of, twin_of,
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
    outputs, variables = twin_of(Site(node))([tensor_of(x) for x in values], [])
    assert variables == []
    return numbers_of(outputs[0])


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


@pytest.mark.parametrize("shape", [(), (1,), (3, 5), (0, 4)])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_tensors_have_memory_of_their_own(shape, dtype):
    values = np.asarray(RNG.normal(size=shape), dtype)
    before, tensor = values.copy(), tensor_of(values)
    values[...] = 7.0
    assert tensor.dtype == tf.float64
    np.testing.assert_array_equal(tensor.numpy(), before)
    np.testing.assert_array_equal(numbers_of(tensor), before)
    assert numbers_of(tensor).shape == shape


KINDS = {"AddV2": tf.add, "Sub": tf.subtract, "Mul": tf.multiply, "RealDiv": tf.divide}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("shape_x", "shape_y"), [
    ((3, 4), (3, 4)), ((3, 4), ()), ((1,), (3, 4)), ((2, 3, 4), (3, 1)), ((4,), (3, 4)), ((), ())])
def test_elementwise_nodes_in_one_pass_are_those_of_tensorflow(kind, shape_x, shape_y):
    x, y = (np.asarray(RNG.normal(size=s), np.float32) for s in (shape_x, shape_y))
    far_x, far_y = x + 1e-3, np.float64(y) * 1.5
    function = KINDS[kind]
    result = function(x, y).numpy()
    tensor, squares = ElementwiseTwin(kind).beside(x, y, far_x, far_y, result)
    far = function(tf.constant(far_x, tf.float64), tf.constant(far_y, tf.float64)).numpy()
    local = function(tf.cast(x, tf.float64), tf.cast(y, tf.float64)).numpy()
    assert tensor.numpy().tobytes() == far.tobytes()
    assert tensor.shape == result.shape
    account = Shadow(1)
    by_results = account.compared(("", "", ""), result, local, far, 0.0)
    assert Shadow(1).added(("", "", ""), squares, result.size, 0.0) == by_results


def test_what_is_not_finite_is_left_to_the_other_way():
    x = np.float32([1.0, np.inf])
    wide = np.float64(x)
    assert ElementwiseTwin("Sub").beside(x, x, wide, wide, x - np.float32(1.0)) is None
