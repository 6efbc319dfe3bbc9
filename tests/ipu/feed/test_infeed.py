"""Infeeds: law (order, position, never over the depth), corners (ends, errors, ^C, no use)."""

from __future__ import annotations

import gc
import itertools
import signal
import threading
import time
from random import Random

import numpy as np
import pytest

from ipu.feed.batches import Batches
from ipu.feed.buffer import Buffer
from ipu.feed.counters import record_launches
from ipu.feed.data import Images, digits
from ipu.feed.infeed import EndOfDataError, Infeed, _fill
from ipu.feed.loops import repeat
from ipu.feed.source import Source
from ipu.learn.nn import dense, flatten
from ipu.learn.optim import SGD
from ipu.learn.train import Trainer
from tests.ipu.feed.threads import PATIENCE, Beside, queue_threads, until, wait
from tests.tiers import pick


def numbers():
    return map(float, itertools.count())


def take(infeed, n):
    return [float(infeed.dequeue()) for _ in range(n)]


@pytest.mark.source("S3-19")
@pytest.mark.source("S3-20")
@pytest.mark.parametrize("prefetch", [1, 2, 3, 5])
def test_a_buffer_is_filled_as_soon_as_it_is_free_and_no_earlier(prefetch):
    """The data set is read exactly `prefetch` elements ahead of what was taken."""
    count = []

    def data():
        for n in itertools.count():
            count.append(n)
            yield float(n)

    with Infeed(data, prefetch) as infeed:
        assert count == []  # nothing is read before it is asked for
        for taken in range(1, 8):
            infeed.dequeue()
            until(lambda: len(count) >= taken + prefetch)  # noqa: B023
            time.sleep(0.002)
            assert len(count) == taken + prefetch


@pytest.mark.source("S3-21")
def test_the_filling_is_recorded_and_never_above_the_depth():
    with Infeed(numbers, 3) as infeed, record_launches() as record:
        repeat(1, lambda x: until(lambda: infeed._buffer.occupancy == 3), infeed=infeed)
        repeat(20, lambda x: None, infeed=infeed)
    assert record.launches[1].waits.infeed.occupancy == 3


def test_a_wait_for_the_host_is_recorded(main_waits):
    def data():
        wait(main_waits)
        yield from (0.0, 1.0)

    def body(x):
        until(lambda: infeed._buffer._elements.qsize() == 2)  # 1.0 and the end

    with Infeed(data) as infeed, record_launches() as record:
        repeat(1, body, infeed=infeed)
        repeat(1, lambda x: None, infeed=infeed)
    first, second = (one.waits.infeed for one in record.launches)
    assert (first.times, first.seconds > 0) == (1, True)
    assert (second.times, second.seconds) == (0, 0)


def test_an_infeed_goes_on_where_it_stopped():
    with Infeed(numbers) as infeed:
        sums = [repeat(n, lambda s, x: s + float(x), 0.0, infeed=infeed) for n in (3, 0, 4)]
    assert sums == [0 + 1 + 2, 0, 3 + 4 + 5 + 6]
    assert infeed.position == 7


def test_elements_are_copies_of_memory_that_the_data_set_uses_again():
    memory = np.zeros(4)

    def data():
        for n in range(10):
            memory[:] = n
            yield memory

    with Infeed(data) as infeed:
        for n in range(10):
            assert infeed.dequeue().tolist() == [n] * 4


@pytest.mark.parametrize("data", [numbers, [float(n) for n in range(40)]])
def test_the_position_decides_what_comes_next(data):
    random = Random(0)
    with Infeed(data) as infeed:
        for _ in range(20):
            infeed.position = position = random.randrange(30)
            n = random.randrange(6)
            assert take(infeed, n) == [float(position + i) for i in range(n)]
            assert infeed.position == position + n


def test_a_closed_infeed_loses_nothing_that_was_read_ahead():
    infeed = Infeed(numbers)
    for n in range(5):
        assert take(infeed, 2) == [2.0 * n, 2 * n + 1.0]
        infeed.close()
        assert queue_threads() == []


def test_a_source_with_a_position_goes_on_where_the_infeed_is():
    def batches():
        return Batches(Images(np.arange(10.0)[:, np.newaxis], np.arange(10)), 3, seed=2)

    complete = batches()
    expected = [next(complete)[1].tolist() for _ in range(9)]
    source = batches()
    source.position = 2
    with Infeed(source) as infeed:
        assert infeed.position == 2
        assert [infeed.dequeue()[1].tolist() for _ in range(3)] == expected[2:5]
        saved = infeed.position
    with Infeed(batches()) as infeed:
        infeed.position = saved
        assert [infeed.dequeue()[1].tolist() for _ in range(4)] == expected[5:]


def test_a_training_is_resumed_with_its_data():
    def training():
        images = digits((8, 8, 1)).learn
        return Trainer(lambda x: dense(flatten(x), 10, "only"), SGD(0.1)), Batches(images, 16)

    def run(trainer, infeed, n):
        losses = []
        repeat(n, lambda *batch: losses.append(trainer.step(*batch)), infeed=infeed)
        return losses

    trainer, batches = training()
    with Infeed(batches) as infeed:
        run(trainer, infeed, 3)
        state = trainer.state(infeed)
        expected = run(trainer, infeed, 4)
    trainer, batches = training()
    trainer.forward(next(training()[1])[0])
    with Infeed(batches) as infeed:
        trainer.restore(state, infeed)
        assert infeed.position == 3
        assert run(trainer, infeed, 4) == expected


def test_the_end_of_a_set_ends_the_run():
    with Infeed([1.0, 2.0]) as infeed:
        with pytest.raises(EndOfDataError, match="ends after 2 elements; use a longer one"):
            repeat(3, lambda x: None, infeed=infeed)
        assert queue_threads() == []
        with pytest.raises(EndOfDataError, match="ends after 2 elements"):
            infeed.dequeue()
        infeed.position = 1
        assert take(infeed, 1) == [2.0]


def test_an_empty_set_is_reported():
    with pytest.raises(EndOfDataError, match="the data set of the infeed is empty"):
        Infeed([]).dequeue()
    assert queue_threads() == []


def test_a_ragged_last_batch_comes_after_the_whole_ones():
    infeed = Infeed([np.zeros((4, 2))] * 5 + [np.zeros((1, 2))])
    taken = []
    with pytest.raises(ValueError, match="element 5 of the data set cannot be fed"):
        repeat(6, lambda x: taken.append(x), infeed=infeed)
    assert len(taken) == infeed.position == 5
    assert queue_threads() == []


@pytest.mark.parametrize("error", [ValueError("broken"), KeyboardInterrupt(), SystemExit(3)])
def test_an_error_of_the_data_set_comes_at_its_place(error):
    healed = []

    def data():
        for n in range(6):
            if n == 4 and not healed:
                raise error
            yield float(n)

    infeed = Infeed(data)
    assert take(infeed, 4) == [0, 1, 2, 3]
    with pytest.raises(type(error)) as caught:
        infeed.dequeue()
    assert caught.value is error
    assert "in the thread that reads the data set of an infeed, at element 4" in error.__notes__
    assert queue_threads() == []
    healed.append(True)
    assert take(infeed, 2) == [4, 5]
    infeed.close()


def test_an_error_of_the_body_ends_the_thread_and_its_element_comes_again():
    elements = []

    def body(x):
        elements.append(float(x))
        if len(elements) == 3:
            raise ValueError("once")

    infeed = Infeed(numbers)
    with pytest.raises(ValueError, match="once"):
        repeat(5, body, infeed=infeed)
    assert queue_threads() == []
    assert infeed.position == 2
    repeat(3, body, infeed=infeed)
    assert elements == [0, 1, 2, 2, 3, 4]
    infeed.close()


def test_ctrl_c_reaches_a_device_that_waits_for_the_host():
    stuck, go = threading.Event(), threading.Event()

    def data():
        yield 0.0
        stuck.set()
        wait(go)
        yield 1.0

    def interrupt():
        wait(stuck)
        signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)

    infeed = Infeed(data)
    beside = Beside(interrupt)
    try:
        started = time.monotonic()
        with pytest.raises(KeyboardInterrupt):
            repeat(2, lambda x: None, infeed=infeed)
        assert time.monotonic() - started < PATIENCE
    finally:
        go.set()
        beside.result()
    position = infeed.position
    assert take(infeed, 1) == [float(position)]
    infeed.close()


def test_ctrl_c_in_the_body_ends_the_thread():
    infeed = Infeed(numbers)
    with pytest.raises(KeyboardInterrupt):
        repeat(9, lambda x: signal.raise_signal(signal.SIGINT), infeed=infeed)
    assert queue_threads() == []
    assert infeed.position == 0


def test_closing_during_a_wait_loses_nothing(main_waits):
    go = threading.Event()

    def data():
        wait(go)
        yield from numbers()

    infeed = Infeed(data)
    waiting = Beside(infeed.dequeue)
    wait(main_waits)
    closing = Beside(infeed.close)
    until(lambda: infeed._buffer is None)
    go.set()
    closing.result()
    assert float(waiting.result()) == 0.0  # it was on its way
    assert take(infeed, 2) == [1.0, 2.0]
    infeed.close()


def test_a_thread_that_was_closed_says_so_to_a_device_that_still_asks():
    buffer = Buffer(3)
    buffer.close()
    _fill(buffer, Source([1.0]), 0)
    assert "the infeed was closed while the device waited" in str(buffer.take().error)


def test_an_infeed_that_nobody_uses_ends_its_thread():
    infeed = Infeed(numbers)
    infeed.dequeue()
    (thread,) = queue_threads()
    del infeed
    gc.collect()
    thread.join(PATIENCE)
    assert not thread.is_alive()


def test_a_generator_is_closed_when_the_infeed_is():
    closed = threading.Event()

    def data():
        try:
            yield from numbers()
        finally:
            closed.set()

    with Infeed(data) as infeed:
        infeed.dequeue()
    wait(closed)


def test_random_delays_on_both_sides_keep_the_order():
    for seed in range(pick(50, 300, 3_000)):
        random, other = Random(seed), Random(~seed)

        def data(other=other):
            for n in range(12):
                time.sleep(other.choice((0, 0, 1e-5)))
                yield n

        with Infeed(data, 1 + seed % 4) as infeed:
            for n in range(random.randrange(13)):
                assert infeed.dequeue() == n
                time.sleep(random.choice((0, 0, 1e-5)))
        assert queue_threads() == []


@pytest.mark.parametrize("prefetch", [0, 256, 2.0, True, None])
def test_depths_are_checked(prefetch):
    with pytest.raises(ValueError, match="is not a depth; use 1 to 255"):
        Infeed([1.0], prefetch)


@pytest.mark.parametrize("position", [-1, 1.5, True, None])
def test_positions_are_checked(position):
    infeed = Infeed([1.0])
    with pytest.raises(ValueError, match="is not a number of elements; use 0 or more"):
        infeed.position = position
