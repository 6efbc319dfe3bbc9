"""Composites: one node with a kernel's mark, whose gradient knows it (law)."""

from __future__ import annotations

from ipu.frontends.tensorflow.engine.node import Node
from ipu.frontends.tensorflow.engine.trace import tracing
from tests.ipu.frontends.tensorflow.framework import ipu, tf


def nodes(scope):
    """Nodes of a gelu and its gradient, inside of a scope."""

    @tf.function
    def compute(x):
        with tf.GradientTape() as tape, scope:
            tape.watch(x)
            y = ipu.nn_ops.gelu(x)
        return tape.gradient(y, x)

    with tracing():
        graph = compute.get_concrete_function(tf.TensorSpec((3,), tf.float32)).graph
    return {n.marks["kernel"]: n for n in map(Node, graph.get_operations()) if "kernel" in n.marks}


def test_a_gradient_has_its_own_kernel_and_the_marks_of_its_forward_node():
    actual = nodes(ipu.scopes.stochastic_rounding(False))
    assert set(actual) == {"Gelu", "GeluGrad"}
    forward, backward = actual["Gelu"], actual["GeluGrad"]
    assert backward.forward.name == forward.name
    assert (forward.direction, backward.marks["direction"]) == ("forward", "backward")
    assert forward.marks["sr"] is backward.marks["sr"] is False
    assert backward.layer == forward.layer
    assert tuple(forward.outputs[0].shape) == (3,)
