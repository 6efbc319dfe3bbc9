"""Medians, ratios and threads of a measurement (golden)."""

from __future__ import annotations

import time
from dataclasses import replace

import pytest

from fpsim.state.threads import get_threads, set_threads
from ipu.experiments.bench.timing import TimedCase, Turns, in_turn, run, seconds, wall_seconds
from ipu.experiments.commands.bench import check_quiet


def test_a_rate_is_multiply_adds_by_time():
    ticks = iter([2.0, 1.0, 4.0])
    case = TimedCase(
        "t", "f", lambda: lambda: None, None, 1000, 3, clock=lambda _: next(ticks), kind="k"
    )
    (record,) = run([case], 1)
    assert record.gmac_per_s == 0.5


def test_medians_and_ratio_come_from_the_clock():
    ticks = iter([5.0, 1.0, 3.0])
    case = TimedCase("t", "f", lambda: lambda: None, None, 10, 3, clock=lambda call: next(ticks))
    (record,) = run([case], 1)
    assert record.ns_per_element == 3.0 / 10 * 1e9
    assert record.ratio is None


def test_threads_are_set_and_given_back():
    before = get_threads()
    thread_counts = []
    case = TimedCase("t", "f", lambda: lambda: thread_counts.append(get_threads()), None, 1, 1)
    (record,) = run([case], 3)
    assert record.threads == 3
    assert set(thread_counts) == {3}
    assert get_threads() == before


def wait():
    time.sleep(0.02)


def compute():
    end = time.thread_time() + 0.005
    while time.thread_time() < end:
        pass


@pytest.fixture
def one_thread():
    before = get_threads()
    set_threads(1)
    yield
    set_threads(before)


@pytest.mark.usefixtures("one_thread")
def test_one_thread_is_timed_by_its_processor_time_and_waiting_shows():
    (record,) = run([TimedCase("t", "f", lambda: wait, None, 1, 2)], 1)
    assert record.ns_per_element < 0.01e9
    assert record.share < 0.5
    turns = in_turn([(compute, seconds)], 1)
    assert turns.seconds[0][0] >= 0.005
    assert 0 < turns.share <= 1.01


def test_several_threads_and_waiting_calls_are_timed_by_the_wall():
    (record,) = run([TimedCase("t", "f", lambda: wait, None, 1, 1)], 2)
    assert record.ns_per_element >= 0.02e9
    assert record.share is None
    (record,) = run([TimedCase("t", "f", lambda: wait, None, 1, 1, clock=wall_seconds)], 1)
    assert record.ns_per_element >= 0.02e9
    assert record.share is None


@pytest.mark.usefixtures("one_thread")
def test_the_share_is_that_of_the_most_disturbed_call_in_its_best_round(monkeypatch):
    cpu, wall = iter([0, 1, 1, 2, 2, 3, 3, 4]), iter([0, 2, 2, 3, 3, 4, 4, 6])
    monkeypatch.setattr("time.thread_time", lambda: next(cpu))
    monkeypatch.setattr("time.perf_counter", lambda: next(wall))
    # First call: 1 of 2 and 1 of 1 seconds; second: 1 of 1 and 1 of 2.
    turns = in_turn([(str, seconds), (str, seconds)], 2)
    assert turns == Turns([[1, 1], [1, 1]], 1.0)


@pytest.mark.parametrize(("share", "busy", "refused"), [
    (0.96, False, True), (0.96, True, False), (0.97, False, False), (None, False, False),
])
def test_a_disturbed_measurement_is_refused_unless_it_is_asked_for(share, busy, refused):
    (record,) = run([TimedCase("t", "f", lambda: compute, None, 1, 1)], 1)
    record = replace(record, share=share)
    if not refused:
        return check_quiet(record, busy)
    with pytest.raises(ValueError, match=r"processor time was 0\.96 of wall time .* --busy"):
        check_quiet(record, busy)
    return None
