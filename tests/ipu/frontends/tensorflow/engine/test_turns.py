"""Updates of variables by several threads are all kept (law)."""

from __future__ import annotations

import threading

import numpy as np
import pytest

from tests.ipu.frontends.tensorflow.framework import ipu, machine, tf

from ipu.frontends.tensorflow.engine import turns  # isort: skip

v1 = tf.compat.v1


class Counting:
    """A session with a variable, a launch that adds 1 to it, and one that is inside of it."""

    def __init__(self):
        self.gate, self.is_inside = threading.Event(), threading.Event()

        def ones():
            self.is_inside.set()
            self.gate.wait()
            while True:
                yield np.float32(1)

        self.graph = tf.Graph()
        with self.graph.as_default():
            data = tf.data.Dataset.from_generator(ones, tf.float32, [])
            infeed = ipu.ipu_infeed_queue.IPUInfeedQueue(data)
            w = self.w = v1.get_variable("w", [], initializer=v1.zeros_initializer(),
                                         use_resource=True)
            self.launch = ipu.ipu_compiler.compile(
                lambda: ipu.loops.repeat(1, lambda x: w.assign_add(x).op, [], infeed)
            )
            self.again = ipu.ipu_compiler.compile(lambda: [w.assign_add(100.0)])
            self.assign = w.assign_add(10.0)
            self.set_other = v1.get_variable("other", [], use_resource=True).assign(1.0)
            self.read = w.read_value()
            self.session = v1.Session()
            self.session.run(v1.global_variables_initializer())
            self.session.run(infeed.initializer)


@pytest.fixture
def counting():
    with machine():
        counting = Counting()
        yield counting
        counting.gate.set()
        counting.session.close()


@pytest.mark.parametrize(("fetch", "expected"), [("assign", 11), ("again", 101)])
def test_a_run_that_writes_waits_for_the_launch_that_has_read(counting, fetch, expected):
    session = counting.session
    threads = [
        threading.Thread(target=session.run, args=[fetched])
        for fetched in (counting.launch, getattr(counting, fetch))
    ]
    threads[0].start()
    assert counting.is_inside.wait(240)
    threads[1].start()
    threads[1].join(1)
    assert session.run(counting.read) == 0  # a run that only reads waits for nobody
    session.run(counting.set_other)
    counting.gate.set()
    for thread in threads:
        thread.join(240)
    assert session.run(counting.read) == expected


def test_a_run_that_waits_long_says_so(counting, monkeypatch):
    notes = []
    monkeypatch.setattr(turns, "_LONG", 0.05)
    monkeypatch.setattr(turns, "note", lambda text: (notes.append(text), counting.gate.set()))
    threads = [
        threading.Thread(target=counting.session.run, args=[fetched])
        for fetched in (counting.launch, counting.assign)
    ]
    threads[0].start()
    assert counting.is_inside.wait(240)
    threads[1].start()
    for thread in threads:
        thread.join(240)
    assert counting.session.run(counting.read) == 11
    assert len(notes) == 1
    assert "host function" in notes[0]


def test_what_a_run_writes_is_known_by_its_fetches(counting):
    launches = turns._launches[counting.graph]

    def writes(*fetches):
        return launches.are_written_by(turns._elements(counting.graph, list(fetches)))

    assert writes(counting.launch, counting.read)
    assert writes({"a": counting.assign.op}, "w/Initializer/zeros:0")
    assert writes("w/Assign")
    assert not writes(counting.read, counting.set_other)
    assert not writes("nosuch")
