"""Live nodes: what outputs and effects need, and nothing else (golden, law)."""

from __future__ import annotations

from tests.ipu.frontends.tensorflow.framework import tf

from ipu.frontends.tensorflow.engine.node import marked  # isort: skip
from ipu.frontends.tensorflow.engine.program import has_effect, program_of  # isort: skip
from tensorflow.python.framework import func_graph  # isort: skip

v1 = tf.compat.v1


def traced(build):
    """The program of what `build` returns: outputs, and operations that have to run."""
    outer = tf.Graph()
    with outer.as_default():
        graph = func_graph.FuncGraph("program")
        with graph.as_default():
            outputs, effects = build()
            graph.outputs = [graph.capture(t) for t in outputs]
            graph.control_outputs = effects
        graph.inputs = [inner for _, inner in graph.captures]
        return program_of(graph)


def test_an_unused_gradient_in_a_group_does_not_run():
    def build():
        x = tf.constant([[1.0, 2.0]], name="x")
        w = v1.get_variable("w", [2, 2], use_resource=True)
        value = w.value()
        loss = tf.reduce_sum(tf.matmul(x, value))
        to_x, to_w = v1.gradients(loss, [x, value])
        return [], [tf.group(w.assign_sub(to_w, read_value=False), to_x.op)]

    types = [node.type for node in traced(build).nodes]
    assert "AssignSubVariableOp" in types
    assert types.count("MatMul") == 1  # forward and the gradient to x have no effect


def test_a_control_edge_keeps_effects_alone():
    def build():
        w = v1.get_variable("w", [], use_resource=True)
        unused = tf.exp(w, name="unused")
        update = w.assign_add(1.0, read_value=False)
        with tf.control_dependencies([unused, update]):
            return [tf.constant(2.0)], []

    types = [node.type for node in traced(build).nodes]
    assert "AssignAddVariableOp" in types
    assert "Exp" not in types


def test_nodes_run_in_the_order_of_the_program():
    def build():
        a = tf.constant(1.0)
        b = tf.sin(a, name="b")
        c = tf.cos(a, name="c")
        return [c + b], []

    names = [node.name for node in traced(build).nodes]
    assert names.index("b") < names.index("c")


def test_the_accumulation_of_a_program_is_a_mark():
    def build():
        with marked(accumulation=4):
            a = tf.constant(1.0)
        return [a], []

    assert traced(build).accumulation == 4


def test_effects():
    with tf.Graph().as_default():
        w = v1.get_variable("w", [], use_resource=True)
        assert has_effect(w.assign(1.0, read_value=False))
        assert not has_effect(w.value().op)
        assert has_effect(tf.numpy_function(lambda: None, [], []))
