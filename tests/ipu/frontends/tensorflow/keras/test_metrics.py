"""What a metric builds carries its name; outside of graphs nothing changes (golden)."""

from __future__ import annotations

from tests.ipu.frontends.tensorflow.framework import tf

from ipu.frontends.tensorflow.engine.node import Node  # isort: skip
from ipu.frontends.tensorflow.keras.metrics import mark_metrics  # isort: skip


def test_updates_and_results_are_marked():
    mark_metrics()  # again: once is enough
    mean = tf.keras.metrics.Mean(name="score")

    @tf.function
    def program(x):
        y = tf.square(x, name="y")
        mean.update_state(y)
        return mean.result()

    nodes = [
        Node(op) for op in program.get_concrete_function(tf.constant(2.0)).graph.get_operations()
    ]
    marked = {node.type for node in nodes if node.marks.get("metric") == "score"}
    assert {"AssignAddVariableOp", "DivNoNan"} <= marked
    assert "Square" not in marked
    assert float(program(tf.constant(2.0))) == 4.0


def test_a_metric_works_eagerly_and_keeps_its_methods_names():
    mean = tf.keras.metrics.Mean()
    mean.update_state([1.0, 3.0])
    assert float(mean.result()) == 2.0
    assert float(mean([5.0])) == 3.0
    assert mean.update_state.__name__
