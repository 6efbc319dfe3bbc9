"""Graphs of functions that nodes call, as they were traced (law)."""

from __future__ import annotations

import gc

from tests.ipu.frontends.tensorflow.framework import tf

from ipu.frontends.tensorflow.engine.functions import called_graphs  # isort: skip
from ipu.frontends.tensorflow.engine.node import Node  # isort: skip


def calls(function, *arguments):
    graph = tf.function(function).get_concrete_function(*arguments).graph
    nodes = [Node(op) for op in graph.get_operations()]
    return {node.type: called_graphs(node) for node in nodes if called_graphs(node)}


def test_a_loop_has_a_condition_and_a_body():
    actual = calls(lambda: tf.while_loop(lambda i: i < 3, lambda i: (i + 1,), (0,)))
    (condition, first), (body, _) = actual["StatelessWhile"]
    assert first == 0
    assert "Less" in {op.type for op in condition.get_operations()}
    assert "AddV2" in {op.type for op in body.get_operations()}


def test_branches_keep_the_condition_to_the_node():
    actual = calls(lambda x: tf.cond(x > 0, lambda: x + 1, lambda: x * 2), tf.constant(1.0))
    (otherwise, first), (then, _) = actual["StatelessIf"]
    assert first == 1
    assert "Mul" in {op.type for op in otherwise.get_operations()}
    assert "AddV2" in {op.type for op in then.get_operations()}


def test_a_called_function_is_there_after_python_forgot_it():
    def program(x):
        inner = tf.function(lambda y: y * 3)
        result = inner(x)
        del inner
        gc.collect()
        return result

    ((graph, _),) = calls(program, tf.constant(1.0))["PartitionedCall"]
    assert "Mul" in {op.type for op in graph.get_operations()}
