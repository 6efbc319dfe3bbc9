"""A data set is freed before the session that built it (law); without it this is a crash."""

from __future__ import annotations

import gc
import threading
import weakref

import numpy as np
import pytest

from tests.ipu.frontends.tensorflow.framework import ipu, machine, tf

from ipu.frontends.tensorflow import feeds, reading  # isort: skip
from tensorflow.python.client import session as client  # isort: skip

v1 = tf.compat.v1
Infeed = ipu.ipu_infeed_queue.IPUInfeedQueue


def total_of(data, n):
    """A queue, and the sum of n of its elements."""
    infeed = Infeed(data)
    (total,) = ipu.ipu_compiler.compile(
        lambda: ipu.loops.repeat(n, lambda t, x: t + x, [tf.constant(0.0)], infeed)
    )
    return infeed, total


@pytest.fixture
def gated():
    """Reads of a data set whose second element waits for a gate, and what happened in order."""
    gate, is_inside, order = threading.Event(), threading.Event(), []

    def numbers():
        yield np.float32(1)
        is_inside.set()
        gate.wait()
        order.append("read")
        yield np.float32(2)

    yield numbers, gate, is_inside, order
    gate.set()


def test_a_session_closes_after_the_element_that_is_being_read(gated, monkeypatch):
    numbers, gate, is_inside, order = gated
    has_closed = threading.Event()
    close = client.tf_session.TF_CloseSession

    def closing(session):
        close(session)
        order.append("closed")
        has_closed.set()

    monkeypatch.setattr(client.tf_session, "TF_CloseSession", closing)
    with machine(), tf.Graph().as_default():
        data = tf.data.Dataset.from_generator(numbers, tf.float32, [])
        infeed, total = total_of(data, 1)
        session = v1.Session()
        session.run(infeed.initializer)
        assert session.run(total) == 1
        assert is_inside.wait(240)
        closer = threading.Thread(target=session.close)
        closer.start()
        assert not has_closed.wait(1.5)
        gate.set()
        closer.join(240)
    assert order == ["read", "closed"]


@pytest.mark.parametrize("delete", [False, True])
def test_nothing_of_a_data_set_is_left_when_its_session_closes(monkeypatch, delete):
    """As the memory of `cache` and the generator of `shuffle` are the session's."""
    references, left = [], []
    close = client.tf_session.TF_CloseSession

    def remembered(data, *others):
        references.extend([weakref.ref(data), weakref.ref(data._variant_tensor)])
        return reading.Reader(data, *others)

    def closing(session):
        left.append([reference() is not None for reference in references])
        close(session)

    monkeypatch.setattr(feeds, "Reader", remembered)
    monkeypatch.setattr(client.tf_session, "TF_CloseSession", closing)
    with machine(), tf.Graph().as_default(), v1.Session() as session:
        data = tf.data.Dataset.range(8).map(lambda x: tf.cast(x, tf.float32))
        infeed, total = total_of(data.shuffle(8).cache().repeat(), 8)
        session.run(infeed.initializer)
        assert session.run(total) == 28
        if delete:
            session.run(infeed.deleter)
    assert left == [[False, False]]


def test_an_error_of_a_data_set_holds_neither_it_nor_its_iterator():
    data = tf.data.Dataset.range(3).map(lambda x: tf.debugging.check_numerics(1 / (x - 1), "at 1"))
    iterators = []

    class Data:
        """A data set whose iterators are known."""

        def __iter__(self):
            iterator = iter(data)
            iterators.append(weakref.ref(iterator))
            return iterator

    data_set = Data()
    reference = weakref.ref(data_set)
    reader = reading.Reader(data_set, 1)
    del data_set
    assert reader.infeed.dequeue()[0] == -1
    with pytest.raises(tf.errors.InvalidArgumentError, match="at 1") as caught:
        reader.infeed.dequeue()
    assert reader.end()
    gc.collect()
    assert [of_iterator() for of_iterator in iterators] == [None]
    assert reference() is None
    assert caught.value.__traceback__ is not None


def test_a_reader_that_is_busy_is_not_ended_in_time(gated):
    numbers, gate, is_inside, _ = gated
    reader = reading.Reader(tf.data.Dataset.from_generator(numbers, tf.float32, []), 1)
    assert reader.infeed.dequeue()[0] == 1
    assert is_inside.wait(240)
    assert not reader.end(0)
    assert reader in reading._open
    gate.set()
    assert reader.end()
    assert reader not in reading._open
    with pytest.raises(RuntimeError, match="data set"):
        reader.infeed.dequeue()


def test_readers_end_with_the_interpreter():
    reader = reading.Reader(tf.data.Dataset.range(3).repeat(), 1)
    assert reader.infeed.dequeue()[0] == 0
    reading._end_all()
    assert reader not in reading._open


def test_a_queue_that_is_made_ready_again_begins_anew_without_its_first_reader():
    with machine(), tf.Graph().as_default(), v1.Session() as session:
        data = tf.data.Dataset.range(8).map(lambda x: tf.cast(x, tf.float32)).shuffle(1).repeat()
        infeed, total = total_of(data, 3)
        ready = infeed.initializer
        for _ in range(2):
            session.run(ready)
            assert session.run(total) == 3
            assert sum(reader.is_of(session) for reader in reading._open) == 1
    assert not any(reader.is_of(session) for reader in reading._open)
