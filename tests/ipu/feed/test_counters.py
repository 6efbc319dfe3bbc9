"""Launches are counted as the documents count them (golden), and what a record holds (law)."""

from __future__ import annotations

import numpy as np
import pytest

from ipu.feed.counters import Counters, QueueWaits, Waits, launch, launching, record_launches
from ipu.feed.infeed import Infeed
from ipu.feed.loops import repeat
from ipu.feed.outfeed import Outfeed


def step(n):
    return n + 1


@pytest.mark.source("S0-02")
@pytest.mark.source("S3-30")
def test_calling_a_step_n_times_is_n_launches_and_a_loop_is_one():
    with record_launches() as calls:
        n = 0
        for _ in range(100):
            n = launch(step, n)
    with record_launches() as loop:
        assert repeat(100, step, 0) == n
    assert calls.counters == Counters(launches=100)
    assert loop.counters == Counters(launches=1, iterations=100)


@pytest.mark.source("S0-01")
def test_a_program_is_one_launch_whatever_it_has_inside():
    def program(x):
        for _ in range(50):
            x = np.sqrt(x + 1)
        x = repeat(3, lambda y: repeat(4, np.negative, y), x)
        return repeat(2, np.negative, x)

    with record_launches() as record:
        launch(program, np.ones(8))
    assert record.counters == Counters(launches=1, iterations=3 + 3 * 4 + 2)


def test_bytes_and_elements_are_those_of_the_queues():
    data = [(np.zeros(8, np.uint8), np.float16(1))] * 6
    with Infeed(data) as infeed, Outfeed() as outfeed, record_launches() as record:
        repeat(4, lambda x, y: outfeed.enqueue((x[:2], y)), infeed=infeed)
        repeat(2, lambda x, y: None, infeed=infeed)
    first, second = (one.counters for one in record.launches)
    assert first == Counters(1, 4, 4, 4 * 10, 4, 4 * 4)
    assert second == Counters(1, 2, 2, 2 * 10, 0, 0)
    assert record.counters == first + second == Counters(2, 6, 6, 60, 4, 16)


def test_queues_outside_a_launch_count_for_none():
    with Infeed([1.0]) as infeed, Outfeed() as outfeed, record_launches() as record:
        outfeed.enqueue(infeed.dequeue())
        assert outfeed.dequeue().tolist() == [1.0]
    assert record.launches == []


def test_records_nest_and_end():
    with record_launches() as outer:
        launch(step, 0)
        with record_launches() as inner:
            launch(step, 0)
    launch(step, 0)
    assert (outer.counters.launches, inner.counters.launches) == (2, 1)


def test_a_launch_that_failed_is_one_too():
    def body(n):
        if n == 3:
            raise ValueError("three")
        return n + 1

    with record_launches() as record, pytest.raises(ValueError, match="three"):
        repeat(10, body, 0)
    assert record.counters == Counters(launches=1, iterations=3)
    with launching() as after:
        assert after is not record.launches[0]


def test_sums_of_waits_keep_the_largest_filling():
    a, b = QueueWaits(1, 0.5, 3), QueueWaits(2, 0.25, 2)
    assert a + b == QueueWaits(3, 0.75, 3)
    assert (Waits(a, b) + Waits(b, b)).outfeed == QueueWaits(4, 0.5, 2)
