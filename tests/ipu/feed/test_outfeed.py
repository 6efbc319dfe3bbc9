"""Outfeeds: golden (the documents' shapes), law (order, nothing lost), corners (ends, errors)."""

from __future__ import annotations

import gc
import signal
import threading
import time
from random import Random

import numpy as np
import pytest

from fpsim import BINARY16, Array, Context
from ipu.feed.batches import Batches
from ipu.feed.counters import record_launches
from ipu.feed.data import digits
from ipu.feed.infeed import Infeed
from ipu.feed.loops import repeat
from ipu.feed.outfeed import ALL, LAST, Outfeed
from ipu.learn.nn import dense, flatten, relu
from ipu.learn.optim import SGD
from ipu.learn.train import Trainer
from tests.ipu.feed.threads import PATIENCE, Beside, queue_threads, until, wait
from tests.tiers import pick


def fill(outfeed, n, first=0):
    return repeat(n, lambda i: (outfeed.enqueue(i), i + 1)[1], first)


@pytest.mark.source("S0-09")
@pytest.mark.source("S0-11")
@pytest.mark.source("S0-12")
def test_the_first_example_of_the_documents():
    def pairs():
        while True:
            x = np.ones(800, np.float32)
            yield [x, x]

    def body(counter, x1, x2):
        outfeed.enqueue({"d1": x1 + x2, "d2": x1 - x2})
        return counter + 1

    with Infeed(pairs) as infeed, Outfeed() as outfeed:
        assert repeat(10, body, 0, infeed=infeed) == 10
        result = outfeed.dequeue()
    assert list(result) == ["d1", "d2"]
    assert result["d1"].shape == result["d2"].shape == (10, 800)
    assert result["d1"].dtype == np.float32
    assert (result["d1"] == 2).all()
    assert (result["d2"] == 0).all()


@pytest.mark.source("S0-11")
@pytest.mark.parametrize("value", [np.float32([1, 2]), (1.0, [2, 3]), {"a": 1, "b": (2,)}, 0.5])
def test_the_structure_of_what_was_enqueued_is_kept(value):
    with Outfeed() as outfeed:
        for _ in range(3):
            outfeed.enqueue(value)
        stacked = outfeed.dequeue()

    def check(one, many):
        if isinstance(one, dict):
            assert list(one) == list(many)
            one, many = tuple(one.values()), tuple(many.values())
        if isinstance(one, tuple | list):
            assert isinstance(many, type(one))
            for inner in zip(one, many, strict=True):
                check(*inner)
        else:
            assert np.array_equal(many, np.stack([one] * 3))

    check(value, stacked)


def test_arrays_are_stacked_in_their_format():
    half = Context(BINARY16)
    with Outfeed() as outfeed:
        for n in range(4):
            outfeed.enqueue(half.wrap(np.float32([n, -0.0])))
        stack = outfeed.dequeue()
    assert isinstance(stack, Array)
    assert (stack.format, stack.shape) == (BINARY16, (4, 2))
    assert stack.codes()[:, 1].tolist() == [0x8000] * 4


def test_later_changes_of_memory_do_not_reach_what_was_enqueued():
    memory = np.zeros(2)
    with Outfeed() as outfeed:
        for n in range(5):
            memory[:] = n
            outfeed.enqueue(memory)
        assert outfeed.dequeue()[:, 0].tolist() == [0, 1, 2, 3, 4]


def test_a_thread_may_enqueue_more_than_the_depth_before_it_dequeues():
    for depth in (1, 3):
        with Outfeed(depth=depth) as outfeed, record_launches() as record:
            fill(outfeed, 100)
            assert outfeed.dequeue().tolist() == list(range(100))
        assert 1 <= record.waits.outfeed.occupancy <= depth


@pytest.mark.source("S0-20")
@pytest.mark.source("S0-22")
def test_what_was_taken_is_gone_and_an_empty_queue_is_no_error():
    with Outfeed() as outfeed:
        assert outfeed.dequeue() == []
        assert list(outfeed) == []
        fill(outfeed, 3)
        assert outfeed.dequeue().tolist() == [0, 1, 2]
        assert outfeed.dequeue().shape == (0,)
        fill(outfeed, 2, 3)
        assert [int(n) for n in outfeed] == [3, 4]
        assert list(outfeed) == []


@pytest.mark.source("S0-19")
def test_sums_of_an_outfeed_are_sums_of_its_elements():
    with Outfeed() as outfeed:
        fill(outfeed, 10)
        assert sum(outfeed) / 10 == 4.5


@pytest.mark.source("S0-18")
@pytest.mark.source("S3-30")
def test_a_thousand_steps_in_executions_of_ten():
    losses = []
    with Outfeed() as outfeed, record_launches() as record:
        for begin in range(0, 1000, 10):
            fill(outfeed, 10, begin)
            block = [int(loss) for loss in outfeed]
            assert len(block) == 10
            losses += block
    assert record.counters.launches == 100
    assert losses == list(range(1000))


def test_leaving_an_iteration_early_loses_nothing():
    with Outfeed() as outfeed:
        fill(outfeed, 5)
        assert int(next(iter(outfeed))) == 0
        assert outfeed.dequeue().tolist() == [1, 2, 3, 4]


def test_last_keeps_the_latest_element():
    with Outfeed(LAST) as outfeed:
        with pytest.raises(RuntimeError, match="nothing was enqueued since the last dequeue"):
            outfeed.dequeue()
        repeat(7, lambda i: (outfeed.enqueue({"i": i}), i + 1)[1], 0)
        assert outfeed.dequeue() == {"i": 6}
        with pytest.raises(RuntimeError, match="run the loop first"):
            outfeed.dequeue()
        with pytest.raises(RuntimeError, match="mode=LAST keeps one element"):
            iter(outfeed)


@pytest.mark.source("S0-21")
@pytest.mark.source("S0-24")
def test_another_thread_sees_every_element_in_order_while_the_device_runs():
    first_seen, running = threading.Event(), True
    early = []

    def consume():
        losses = []
        while len(losses) != 100:
            for loss in outfeed:
                losses.append(int(loss))
                early.append(running)
                first_seen.set()
        return losses

    def body(n):
        outfeed.enqueue(n)
        if n == 10:
            wait(first_seen)
        return n + 1

    with Outfeed() as outfeed:
        consumer = Beside(consume)
        repeat(100, body, 0)
        running = False
        assert consumer.result() == list(range(100))
    assert early[0] is True


def test_a_thread_that_polls_waits_for_an_element(monkeypatch):
    """Else it would keep the interpreter from the device; the device's own thread never waits."""
    monkeypatch.setattr("ipu.feed.outfeed._POLL", PATIENCE)
    with Outfeed() as outfeed:
        outfeed.enqueue(1)
        assert [int(n) for n in outfeed] == [1]
        poll = Beside(outfeed.dequeue)
        poll.thread.join(0.05)
        assert poll.thread.is_alive()
        outfeed.enqueue(2)
        assert poll.result().tolist() == [2]


def test_partial_results_of_dequeue_join_to_the_whole():
    def consume():
        blocks = []
        while sum(map(len, blocks)) != 200:
            blocks.append(outfeed.dequeue())
        return np.concatenate([block for block in blocks if len(block)])

    with Outfeed() as outfeed:
        consumer = Beside(consume)
        fill(outfeed, 200)
        assert consumer.result().tolist() == list(range(200))


def test_random_delays_between_three_threads_lose_nothing():
    for seed in range(pick(100, 1_000, 5_000)):
        random, other = Random(seed), Random(~seed)
        n = random.randrange(1, 10)

        def body(x, random=random):
            time.sleep(random.choice((0, 0, 1e-5)))
            outfeed.enqueue(x)

        def consume(n=n, other=other):
            numbers = []
            while len(numbers) != n:
                numbers += [int(x) for x in outfeed]
                time.sleep(other.choice((0, 0, 1e-5)))
            return numbers

        infeed = Infeed(list(range(n)), 1 + seed % 3)
        with infeed, Outfeed(depth=1 + seed % 2) as outfeed:
            consumer = Beside(consume)
            repeat(n, body, infeed=infeed)
            assert consumer.result() == list(range(n))


def test_a_full_outfeed_stops_the_device(main_waits):
    enqueued = []

    def run():
        with record_launches() as record:
            repeat(10, lambda i: (outfeed.enqueue(i), enqueued.append(i), i + 1)[2], 0)
        return record

    with Outfeed(depth=2) as outfeed:
        outfeed.enqueue(-1)
        assert outfeed.dequeue().tolist() == [-1]
        main_waits.clear()
        with outfeed._store._changed:  # the host cannot store: one in its hand, two on their way
            running = Beside(run)
            until(lambda: len(enqueued) == 3 and main_waits.is_set())
            assert running.thread.is_alive()
            assert len(enqueued) == 3
        record = running.result()
        assert outfeed.dequeue().tolist() == list(range(10))
    assert record.waits.outfeed.times >= 1
    assert record.waits.outfeed.seconds > 0
    assert record.waits.outfeed.occupancy == 2


def test_an_error_of_the_run_reaches_the_thread_that_reads():
    def body(n):
        outfeed.enqueue(n)
        if n == 4:
            raise ValueError("diverged")
        return n + 1

    def consume():
        while True:
            numbers.extend(int(n) for n in outfeed)

    numbers = []
    outfeed = Outfeed()
    consumer = Beside(consume)
    with pytest.raises(ValueError, match="diverged"):
        repeat(10, body, 0)
    with pytest.raises(RuntimeError, match="the run that filled the outfeed ended: ValueError"):
        consumer.result()
    assert queue_threads() == []
    assert numbers == [0, 1, 2, 3, 4]
    assert outfeed.dequeue().shape == (0,)  # the thread of the device knows of it


def test_ctrl_c_reaches_the_thread_that_reads():
    def body():
        outfeed.enqueue(1)
        signal.raise_signal(signal.SIGINT)

    outfeed = Outfeed()
    with pytest.raises(KeyboardInterrupt):
        repeat(3, body)
    assert queue_threads() == []
    assert Beside(outfeed.dequeue).result().tolist() == [1]
    with pytest.raises(RuntimeError, match="KeyboardInterrupt"):
        Beside(outfeed.dequeue).result()


def test_an_error_before_the_first_element_reaches_readers_through_the_context_manager():
    outfeed = Outfeed()

    def run():
        with outfeed:
            raise ValueError("early")

    with pytest.raises(ValueError, match="early"):
        run()
    with pytest.raises(RuntimeError, match="early"):
        Beside(lambda: list(outfeed)).result()


def test_a_new_run_forgets_the_error_of_the_last():
    outfeed = Outfeed()
    outfeed.launch_failed(ValueError("x"))
    fill(outfeed, 2)
    assert Beside(outfeed.dequeue).result().tolist() == [0, 1]
    assert Beside(outfeed.dequeue).result().shape == (0,)
    outfeed.close()


def test_a_closed_outfeed_keeps_its_elements_and_opens_again():
    outfeed = Outfeed()
    for n in range(3):
        fill(outfeed, 2, 2 * n)
        outfeed.close()
        assert queue_threads() == []
    assert outfeed.dequeue().tolist() == list(range(6))


def test_closing_during_a_run_loses_and_reorders_nothing():
    stop = threading.Event()

    def close():
        while not stop.is_set():
            outfeed.close()

    with Outfeed(depth=2) as outfeed:
        closing = Beside(close)
        running = Beside(lambda: (fill(outfeed, 200), outfeed.dequeue())[1])
        try:
            assert running.result().tolist() == list(range(200))
        finally:
            stop.set()
            closing.result()


def test_an_outfeed_that_nobody_uses_ends_its_thread():
    outfeed = Outfeed()
    outfeed.enqueue(1)
    (thread,) = queue_threads()
    del outfeed
    gc.collect()
    thread.join(PATIENCE)
    assert not thread.is_alive()


def test_an_error_of_the_storing_thread_is_no_dead_lock():
    def broken(element):
        raise MemoryError("full")

    outfeed = Outfeed(depth=1)
    outfeed._store.add = broken
    outfeed.enqueue(1)
    with pytest.raises(RuntimeError, match="full"):
        Beside(outfeed.dequeue).result()


@pytest.mark.parametrize("other", [(1, 2), 1.0, np.zeros(3)])
def test_values_unlike_the_first_are_refused(other):
    with Outfeed() as outfeed:
        outfeed.enqueue(1)
        with pytest.raises((TypeError, ValueError), match="the value cannot be enqueued: it is"):
            outfeed.enqueue(other)
        assert outfeed.dequeue().tolist() == [1]


def test_what_holds_no_numbers_cannot_be_enqueued():
    with pytest.raises(TypeError, match="it holds a str"):
        Outfeed().enqueue("text")


@pytest.mark.parametrize("depth", [0, 1.5, True, None])
def test_depths_are_checked(depth):
    with pytest.raises(ValueError, match="is not a depth; use 1 or more"):
        Outfeed(depth=depth)


def test_modes_are_checked():
    assert Outfeed().mode == ALL
    with pytest.raises(ValueError, match="mode='get_last' is not a mode"):
        Outfeed("get_last")


@pytest.mark.source("S0-23")
def test_the_custom_loop_of_the_documents_learns_while_a_thread_prints():
    """Dense 128, dense 10, SGD 0.01, whole batches of 32; digits of 28 × 28 stand in for MNIST."""

    def network(images):
        x = relu(dense(flatten(images), 128, "hidden"))
        return dense(x, 10, "output")

    def step(images, labels):
        outfeed.enqueue(trainer.step(images, labels))

    def consume():
        losses = []
        while len(losses) != 100:
            losses += [float(loss) for loss in outfeed]
        return losses

    batches = Batches(digits((28, 28, 1)).learn, 32)
    trainer = Trainer(network, SGD(0.01))
    with Infeed(batches) as infeed, Outfeed() as outfeed:
        consumer = Beside(consume)
        repeat(100, step, infeed=infeed)
        losses = consumer.result()
    assert np.mean(losses[-20:]) < np.mean(losses[:20]) - 0.2
    again, batches.position = Trainer(network, SGD(0.01)), 0
    assert losses == [again.step(*next(batches)) for _ in range(100)]
