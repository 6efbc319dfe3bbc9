"""Loops and prefetch: law (equal bits, launches), differential (the model of waiting), golden."""

from __future__ import annotations

import heapq
import itertools

import pytest

from ipu.experiments.execution import training_loop
from tests.experiments.figures import assert_panels


@pytest.fixture(scope="module")
def quick(few):
    few.setattr(training_loop.time, "sleep", lambda seconds: None)
    return training_loop.run(quick=True, seed=1)


@pytest.mark.source("S0-02")
@pytest.mark.source("S0-07")
@pytest.mark.source("S0-18")
@pytest.mark.source("S3-30")
def test_launches_differ_and_bits_do_not(quick):
    call, execution, loop = quick.select(part="launches")
    assert [row["launches"] for row in (call, execution, loop)] == [20, 2, 1]
    assert [row["iterations"] for row in (call, execution, loop)] == [0, 20, 20]
    for column in ("digest", "digest_losses", "loss"):
        assert call[column] == execution[column] == loop[column]
    for row in (call, execution, loop):
        assert row["elements_in"] == row["elements_out"] == 20
        assert row["bytes_in"] == 20 * 32 * (64 * 2 + 8)  # FP16 images, labels of 8 bytes
        assert row["bytes_out"] == 20 * 8


def test_the_sentence_is_computed_a_second_time(quick):
    waits = {(r["pattern"], r["depth"]): r["waiting"] for r in quick.select(part="prefetch")}
    fast = training_loop.FAST
    yes = max(waits[pattern, 3] for pattern in fast) < 0.01
    assert quick.answer.startswith("Yes." if yes else "No.")
    assert "20 for a call for each batch, 2 for executions of 10 batches, 1 for" in quick.answer
    assert f"three leave {waits[fast[-1], 3]:.0%} and 8 are enough" in quick.answer
    assert "the trained weights are the same bits. Measured with threads" in quick.answer


def test_every_panel_shows_data(quick):
    assert_panels(training_loop.plot(quick), 2)


def test_measured_waits_are_no_part_of_the_data(quick):
    assert {row["part"] for row in quick.local} == {"measured"}
    assert not quick.select(part="measured")


def test_other_weights_are_told(quick):
    rows = [dict(row) for row in quick.rows]
    rows[0]["digest"] = "d0"
    answer = training_loop._answer(rows, list(quick.local))
    assert "the trained weights are different bits. Measured" in answer


def test_where_the_measurement_differs_from_the_model_is_told(quick):
    """By threads that sleep the device waits 7 % where the model waits 0, three ahead."""
    pattern = training_loop.FAST[0]
    waits = {(r["pattern"], r["depth"]): r["waiting"] for r in quick.select(part="prefetch")}
    local = [{**row, "waiting": waits[row["pattern"], row["depth"]]} for row in quick.local]
    assert "waits where the model does not" not in training_loop._answer(list(quick.rows), local)
    local = [{**row, "waiting": 0.07} if (row["pattern"], row["depth"]) == (pattern, 3) else row
             for row in local]
    answer = training_loop._answer(list(quick.rows), local)
    assert f"7% of its time instead of the model's 0% where they differ most ({pattern};" in answer
    assert f"with 3 ahead it waits where the model does not: {pattern}: 7%." in answer


def simulated(host, depth, steps):
    """The share of waiting by a simulation of events: two workers and tokens of free places."""
    events, order = [(0.0, 0, "free")] * depth, itertools.count(1)
    heapq.heapify(events)
    free = ready = result = begun = done = 0
    busy = idle_since = None
    running = False
    waited = 0.0
    while done < steps:
        now, _, what = heapq.heappop(events)
        if what == "free":
            free += 1
        elif what == "made":
            busy, ready, result = None, ready + 1, result + 1
        else:
            running, done, idle_since = False, done + 1, now
        if busy is None and free:
            free, busy = free - 1, result
            heapq.heappush(events, (now + host(result), next(order), "made"))
        if not running and ready:
            ready, running, begun = ready - 1, True, begun + 1
            if idle_since is not None:
                waited += now - idle_since
            heapq.heappush(events, (now, next(order), "free"))
            heapq.heappush(events, (now + 1, next(order), "done"))
    return waited / (waited + steps - 1)


@pytest.mark.source("S3-20")
@pytest.mark.parametrize("pattern", training_loop.PATTERNS)
@pytest.mark.parametrize("depth", training_loop.DEPTHS)
def test_the_model_is_that_of_a_simulation_of_events(pattern, depth):
    host = training_loop.PATTERNS[pattern]
    modelled = training_loop.waiting_share(host, depth, 400)
    assert modelled == pytest.approx(simulated(host, depth, 400), abs=1e-9)


@pytest.mark.source("S3-21")
def test_three_batches_hide_a_stall_of_three_steps_and_no_longer_one():
    shares = {
        (pattern, depth): training_loop.waiting_share(host, depth, 1600)
        for pattern, host in training_loop.PATTERNS.items()
        for depth in (1, 2, 3, 8)
    }
    even, short, long, slow = training_loop.PATTERNS
    assert shares[even, 1] == 0
    # by hand: the stall of 3 and the batch before it overlap 1 step each with depth 1
    assert shares[short, 1] == pytest.approx(0.2, abs=1e-3)
    assert shares[short, 3] == 0
    assert shares[long, 3] > 0.15
    assert shares[long, 8] == 0
    assert all(shares[slow, depth] == pytest.approx(1 - 1 / 1.2, abs=1e-3) for depth in (1, 3, 8))


def test_a_host_that_is_hidden_is_answered_with_yes(quick):
    rows = [{**row, "waiting": 0.0} if row.get("depth", 0) >= 3 else row for row in quick.rows]
    assert training_loop._answer(rows, list(quick.local)).startswith("Yes.")
