"""Nodes: layers, directions, marks and forward nodes (golden)."""

from __future__ import annotations

import pytest

from tests.ipu.frontends.tensorflow.framework import tf

from ipu.frontends.tensorflow.engine.functions import called_graphs  # isort: skip
from ipu.frontends.tensorflow.engine.node import MARK, Node, marked  # isort: skip
from ipu.frontends.tensorflow.engine.trace import tracing  # isort: skip

v1 = tf.compat.v1


def nodes(build):
    with tf.Graph().as_default() as graph:
        build()
    return {op.name: Node(op) for op in graph.get_operations()}


def test_marks_of_a_scope_reach_nodes_and_inner_ones_win():
    def build():
        with marked(partials="half", sr=True, stage=2):
            tf.constant(1.0, name="outer")
            with marked(sr=False):
                tf.constant(1.0, name="inner")
        tf.constant(1.0, name="outside")

    graph = nodes(build)
    assert graph["outer"].marks == {"partials": "half", "sr": True, "stage": 2}
    assert graph["inner"].marks == {"partials": "half", "sr": False, "stage": 2}
    assert graph["outside"].marks == {}
    assert MARK == "_fpsim_"


def test_a_constant_belongs_to_the_layer_of_its_reader():
    """TensorFlow names it after the node that reads it; that one's gradient reads it too."""
    def build():
        x = v1.placeholder(tf.float32, [2], name="x")
        with v1.name_scope("head"):
            v1.gradients(tf.multiply(x, 2.0, name="scaled"), x)
            v1.gradients(tf.minimum(x, 0.5, name="bound"), x)
            with v1.name_scope("inner"):
                both = tf.constant(3.0, name="both")
            _ = (x + both) * both

    graph = nodes(build)
    assert graph["head/scaled/y"].layer == graph["head/scaled"].layer == "head"
    assert graph["head/bound/y"].layer == graph["head/bound"].layer == "head"
    assert graph["head/inner/both"].layer == "head/inner"


def test_a_gradient_follows_its_forward_node():
    def build():
        x = v1.placeholder(tf.float32, [2, 2], name="x")
        with v1.name_scope("net/dense"), marked(partials="half"):
            y = tf.matmul(x, x, name="product")
        v1.gradients(y, x)

    graph = nodes(build)
    slopes = [n for n in graph.values() if n.type == "MatMul" and n.name != "net/dense/product"]
    assert len(slopes) == 2
    for slope in slopes:
        assert slope.forward.name == "net/dense/product"
        assert (slope.layer, slope.direction) == ("net/dense", "backward")
        assert slope.marks["partials"] == "half"


def test_a_tape_knows_forward_nodes_while_tracing():
    @tf.function
    def program(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            with tf.name_scope("dense"):
                y = tf.matmul(x, x) + tf.matmul(x, x, transpose_a=True)
        return tape.gradient(y, x)

    with tracing():
        graph = program.get_concrete_function(tf.ones([2, 2])).graph
    slopes = [Node(op) for op in graph.get_operations() if op.name.startswith("gradient_tape")]
    forward = {node.forward.name for node in slopes if node.type == "MatMul"}
    assert forward == {"dense/MatMul", "dense/MatMul_1"}
    assert {node.layer for node in slopes if node.type == "MatMul"} == {"dense"}


def test_layers_are_those_of_the_program_inside_of_loops_and_for_every_gradient():
    """The tape keeps no tensor of a bias; its node is found by the scope of the gradient."""
    v = tf.Variable(tf.ones([2]))

    @tf.function
    def program(x):
        for _ in tf.range(2):
            with tf.GradientTape() as tape, tf.name_scope("net/dense"):
                y = tf.nn.bias_add(x, v)
            v.assign_sub(tape.gradient(y, v))

    with tracing():
        graph = program.get_concrete_function(tf.ones([1, 2])).graph
    (loop,) = [Node(op) for op in graph.get_operations() if op.type == "While"]
    body = called_graphs(loop)[1][0]
    by_type = {op.type: Node(op) for op in body.get_operations()}
    assert by_type["BiasAdd"].layer == "net/dense"
    assert by_type["BiasAddGrad"].layer == "net/dense"
    assert by_type["BiasAddGrad"].forward is by_type["BiasAdd"].op


@pytest.mark.parametrize(
    ("node", "direction"),
    [("AssignAddVariableOp", "optimizer"), ("ReadVariableOp", "forward"), ("Mul", "forward")],
)
def test_directions(node, direction):
    def build():
        w = v1.get_variable("w", [2], use_resource=True)
        w.assign_add(w * 2.0)

    kinds = {n.type: n.direction for n in nodes(build).values()}
    assert kinds[node] == direction
