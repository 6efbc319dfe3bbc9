"""Bounded buffers: law (nothing lost, doubled or reordered; never over the depth; no dead-lock)."""

from __future__ import annotations

import threading
import time
from random import Random

import pytest

from ipu.feed.buffer import Buffer, End
from ipu.feed.counters import QueueWaits
from tests.ipu.feed.threads import Beside, wait
from tests.tiers import pick

RUNS = pick(1_000, 1_000, 20_000)


def pause(random: Random) -> None:
    """Nothing, the other thread's turn, or some microseconds."""
    kind = random.randrange(4)
    if kind == 1:
        time.sleep(0)
    elif kind == 2:
        time.sleep(random.random() * 1e-4)


def produce(buffer, n, random):
    for i in range(n):
        pause(random)
        assert buffer.reserve()
        buffer.put(i)
    buffer.finish()


def consume(buffer, random):
    elements = []
    while not isinstance(element := buffer.take(), End):
        elements.append(element)
        pause(random)
    return elements


def runs(first):
    for seed in range(first, RUNS, 2):
        random = Random(seed)
        buffer, n = Buffer(1 + seed % 4), random.randrange(12)
        buffer.start(produce, n, Random(~seed), name="infeed")
        assert consume(buffer, random) == list(range(n)), seed
        assert buffer.occupancy <= 1 + seed % 4
        buffer.join()
        assert not buffer._thread.is_alive()


def test_random_delays_lose_double_and_reorder_nothing():
    """A thousand runs, two at a time."""
    for reader in [Beside(lambda first=first: runs(first)) for first in range(2)]:
        reader.result()


@pytest.mark.source("S3-21")
@pytest.mark.parametrize("depth", [1, 2, 3, 7])
def test_the_side_that_fills_is_stopped_at_the_depth(depth):
    buffer, full, waits = Buffer(depth), threading.Event(), QueueWaits()

    def fill():
        for i in range(depth):
            buffer.reserve()
            buffer.put(i)
        full.set()
        assert buffer.reserve(waits)  # waits until the main thread has taken one

    filling = Beside(fill)
    wait(full)
    filling.thread.join(0.02)
    assert filling.thread.is_alive()
    assert buffer.occupancy == depth
    assert buffer.take() == 0
    filling.result()
    assert waits.times == 1
    assert waits.seconds > 0


def test_waiting_is_counted_where_there_is_nothing_to_take():
    buffer, waits = Buffer(3), QueueWaits()
    taking = Beside(lambda: buffer.take(waits))
    taking.thread.join(0.02)
    assert taking.thread.is_alive()
    buffer.reserve()
    buffer.put("x")
    assert taking.result() == "x"
    assert waits.times == 1
    buffer.put("y")
    assert buffer.take(waits) == "y"
    assert waits.times == 1


def test_closing_frees_a_side_that_waits_for_a_place():
    buffer = Buffer(1)
    assert buffer.reserve()
    waiting = Beside(buffer.reserve)
    buffer.close()
    assert waiting.result() is False
    assert Buffer(3).reserve() is True


def test_a_closed_buffer_gives_no_place_though_some_are_free():
    buffer = Buffer(3)
    buffer.close()
    assert buffer.reserve() is False


def test_the_end_needs_no_place_and_carries_the_error():
    buffer, error = Buffer(1), ValueError("x")
    buffer.reserve()
    buffer.put(1)
    buffer.finish(error)
    assert buffer.take() == 1
    assert buffer.take() == End(error)
    assert buffer.occupancy == 1


def test_a_thread_that_is_gone_without_an_end_is_reported():
    buffer = Buffer(3)
    buffer.start(lambda buffer: None, name="infeed")
    with pytest.raises(RuntimeError, match="the thread 'infeed' is gone, as after a fork"):
        buffer.take()


def test_joining_does_not_wait_for_a_thread_that_is_stuck_in_a_users_code(monkeypatch):
    monkeypatch.setattr("ipu.feed.buffer._JOIN", 0.01)
    buffer, event = Buffer(3), threading.Event()
    buffer.start(lambda buffer: event.wait(), name="infeed")
    buffer.join()
    assert buffer._thread.is_alive()
    event.set()
