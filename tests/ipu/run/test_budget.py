"""Budgets: what is left of a diagnosis' seconds (law). Time is set by hand."""

from __future__ import annotations

import pytest

from ipu.run.budget import Budget


@pytest.fixture
def now(monkeypatch):
    now = [100.0]
    monkeypatch.setattr("ipu.run.budget.time.monotonic", lambda: now[0])
    return now


def test_what_was_spent_before_counts_and_writing_has_its_part(now):
    budget = Budget(60.0, spent=10.0)
    assert (budget.spent, budget.left) == (10.0, 48.0)
    now[0] += 48.5
    assert budget.left < 0
    assert not budget.has_time()
    assert Budget(10.0).left == 9.5


def test_a_search_leaves_time_for_what_verifies_it(now):
    budget = Budget(62.0)
    assert budget.has_time()
    assert budget.has_time_to_search()
    budget.note(20.0)
    assert budget.has_time_to_search()  # 60 of 50
    now[0] += 11.0
    assert budget.has_time()
    assert not budget.has_time_to_search()
    now[0] += 38.0  # 11 are left, half of a trial's 20 are asked for
    assert budget.has_time()
    now[0] += 2.0
    assert not budget.has_time()


def test_later_trials_move_what_is_expected(now):
    budget = Budget(102.0)
    for seconds in (40.0, 4.0, 4.0):
        budget.note(seconds)
    now[0] += 90.0
    assert budget.has_time()
    assert Budget().has_time_to_search()


def test_longer_trials_need_as_many_times_as_much(now):
    budget = Budget(62.0)
    budget.note(4.0)
    assert budget.has_time_for(14)  # 56 of 60
    now[0] += 5.0
    assert not budget.has_time_for(14)
