"""Which variables a program writes, also through loops, branches and calls (golden)."""

from __future__ import annotations

import pytest

from tests.ipu.frontends.tensorflow.framework import tf

from ipu.frontends.tensorflow.engine.writes import written_inputs  # isort: skip

one, two = tf.Variable(1.0), tf.Variable(2.0)


@tf.function
def inner():
    two.assign_add(one)


def loop():
    for _ in tf.range(3):
        inner()


def branch():
    if one > 0:
        two.assign(one)


@pytest.mark.parametrize("function", [inner, loop, branch, lambda: inner()])
def test_the_variable_that_is_assigned_is_written(function):
    graph = tf.function(function).get_concrete_function().graph
    outer = [tensor for tensor, _ in graph.captures]
    written = [outer[i] for i in written_inputs(graph)]
    assert len(written) == 1
    assert written[0] is two.handle


def test_a_program_that_reads_writes_nothing():
    graph = tf.function(lambda: one + two).get_concrete_function().graph
    assert written_inputs(graph) == set()
