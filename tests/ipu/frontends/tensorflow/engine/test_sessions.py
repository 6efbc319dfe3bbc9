"""Sessions that run are known by their graph (law)."""

from __future__ import annotations

import gc
import weakref

from tests.ipu.frontends.tensorflow.framework import tf

from ipu.frontends.tensorflow.engine.program import program_of  # isort: skip
from ipu.frontends.tensorflow.engine.sessions import running, running_on  # isort: skip


class Session:
    """Stands for a session."""

    def __init__(self, graph):
        self.graph = graph


def test_sessions_run_until_they_do_not():
    one, other = Session("a"), Session("b")
    with running(one), running(other):
        assert running_on("a") == [one]
        assert running_on("b") == [other]
    assert running_on("a") == []


def test_a_program_goes_with_its_graph():
    def build():
        graph = tf.function(lambda x: x + 1).get_concrete_function(tf.TensorSpec([])).graph
        return weakref.ref(program_of(graph)), program_of(graph) is program_of(graph)

    reference, is_one = build()
    gc.collect()
    assert is_one
    assert reference() is None
