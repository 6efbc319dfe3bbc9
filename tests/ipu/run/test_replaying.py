"""Runs of a diagnosis are bound: by steps, by time, and where an earlier one ended (law).

Time is a counter: the processor's passes by one with each look at the clock.
"""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from ipu.learn import SGD, Trainer, dense, relu
from ipu.run import machine
from ipu.run.budget import Budget, TimeOverError
from ipu.run.replaying import EnoughError, RunBound, replaying
from ipu.run.restoring import NOTHING_RESTORED
from ipu.run.ways import Way

FP32, FP16 = Way.parse("fp32"), Way.parse("fp16")
X = np.random.default_rng(0).normal(size=(8, 6)).astype(np.float32)
LABELS = np.arange(8) % 3


@pytest.fixture(autouse=True)
def clock(monkeypatch):
    seconds = itertools.count()
    monkeypatch.setattr("ipu.run.replaying.time.process_time", lambda: float(next(seconds)))
    monkeypatch.setattr("ipu.run.replaying.time.monotonic", lambda: 0.0)


class FixedBudget(Budget):
    """One of which so much is left."""

    left = 1.0


def network(x):
    return dense(relu(dense(x, 8, "body")), 3, "head")


def forward_for_ever(run):
    trainer = Trainer(network, SGD(0.1), run=run)
    while True:
        trainer.forward(X)


def trains_for_ever(run):
    trainer = Trainer(network, SGD(0.1), run=run)
    while True:
        trainer.step(X, LABELS)


def outcomes(body, steps, seconds):
    replay = replaying(machine("fp16", count=True), steps, body, (), FixedBudget(seconds))
    return [replay(way, NOTHING_RESTORED, has_shadow) for way, has_shadow in (
        (FP32, True), (FP16, True), (FP16, False))]


def test_a_program_without_steps_is_stopped_and_all_runs_at_one_operation():
    rows = outcomes(forward_for_ever, 4, 200.0)
    calls = {row.report["operations"]["all"] for row in rows}
    assert len(calls) == 1
    assert calls.pop() >= 50  # a quarter of the seconds, as it began no backward pass
    why = rows[0].report["followed"]["why"]
    assert "ended no step of an optimiser in 50 s" in why
    assert all("followed" not in row.report for row in rows[1:])
    assert all(row.losses == [] for row in rows)


def test_steps_for_which_there_is_no_time_are_left_out_of_all_runs():
    rows = outcomes(trains_for_ever, 1000, 400.0)
    steps = rows[0].report["followed"]["steps"]
    assert 1 <= steps < 1000
    assert [len(row.losses) for row in rows] == [steps] * 3
    assert f"{steps} steps took 1" in rows[0].report["followed"]["why"]


def test_what_is_soon_over_is_not_bound():
    rows = outcomes(trains_for_ever, 3, 1e6)
    assert [len(row.losses) for row in rows] == [3] * 3
    assert all("followed" not in row.report for row in rows)


def test_a_bound_holds_for_a_step():
    bound = RunBound(100.0)
    for calls in range(1, 102):
        bound.check(calls)
    with pytest.raises(EnoughError):
        bound.check(102)
    assert bound.calls == 102
    bound = RunBound(calls=7)
    bound.check(6)
    with pytest.raises(EnoughError):
        bound.check(7)
    assert bound.why == ""


def test_a_program_that_only_waits_is_stopped_too(monkeypatch):
    seconds = itertools.count(0, 6)
    monkeypatch.setattr("ipu.run.replaying.time.process_time", lambda: 0.0)
    monkeypatch.setattr("ipu.run.replaying.time.monotonic", lambda: float(next(seconds)))
    bound = RunBound(25.0)
    for calls in range(13):  # each look takes two of the seconds that are allowed
        bound.check(calls)
    with pytest.raises(EnoughError):
        bound.check(13)


def test_trials_are_cut_where_no_time_is_left_and_the_first_three_runs_are_not(monkeypatch):
    budget = FixedBudget(1e6)
    replay = replaying(machine("fp16", count=True), 3, trains_for_ever, (), budget)
    monkeypatch.setattr(FixedBudget, "left", -1.0)
    for way in (FP32, FP16, FP16):
        assert len(replay(way, NOTHING_RESTORED, True).losses) == 3
    with pytest.raises(TimeOverError):
        replay(FP16, NOTHING_RESTORED, False)
    monkeypatch.setattr(FixedBudget, "left", 1.0)
    assert len(replay(FP16, NOTHING_RESTORED, False).losses) == 3
