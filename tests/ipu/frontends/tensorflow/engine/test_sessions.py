"""Sessions whose data sets are in use outside stay (law); without it this is a crash at times."""

from __future__ import annotations

import gc
import weakref

from tests.ipu.frontends.tensorflow.framework import ipu, machine, tf

from ipu.frontends.tensorflow.engine.program import program_of  # isort: skip
from ipu.frontends.tensorflow.engine.sessions import keep_running_sessions, running  # isort: skip

v1 = tf.compat.v1


class Session:
    """Stands for a session."""


def alive(keeps):
    session = Session()
    reference = weakref.ref(session)
    with running(session):
        if keeps:
            keep_running_sessions()
    del session
    gc.collect()
    return reference() is not None


def test_a_session_stays_if_it_ran_when_it_was_asked_for():
    assert alive(keeps=True)
    assert not alive(keeps=False)


def launched(delete):
    """A launch fed by a shuffled data set; its session closes while the queue is there."""
    with machine(), tf.Graph().as_default(), v1.Session() as session:
        data = tf.data.Dataset.range(8).map(lambda x: tf.cast(x, tf.float32)).shuffle(8).repeat()
        infeed = ipu.ipu_infeed_queue.IPUInfeedQueue(data)
        (total,) = ipu.ipu_compiler.compile(
            lambda: ipu.loops.repeat(8, lambda t, x: t + x, [tf.constant(0.0)], infeed)
        )
        session.run(infeed.initializer)
        result = float(session.run(total))
        if delete:
            session.run(infeed.deleter)
    return result


def test_shuffled_data_sets_are_freed_after_their_sessions():
    assert [launched(delete) for delete in (False, True, False)] == [28, 28, 28]
    gc.collect()


def test_a_program_goes_with_its_graph():
    def build():
        graph = tf.function(lambda x: x + 1).get_concrete_function(tf.TensorSpec([])).graph
        return weakref.ref(program_of(graph)), program_of(graph) is program_of(graph)

    reference, is_one = build()
    gc.collect()
    assert is_one
    assert reference() is None
