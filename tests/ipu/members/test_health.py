"""Signs of life (law: the first reason holds; who stops to beat is silent, who leaves is not)."""

from __future__ import annotations

import time

import pytest

from ipu.members.health import Health, watched
from ipu.members.transport import Kind, Reason, StoppedError

SILENCE = 0.4


@pytest.fixture
def health():
    told = []
    watch = Health(lambda rank: f"worker {rank}", SILENCE, told.append)
    watch.told = told
    yield watch
    watch.close()


def stopped(health, seconds):
    with health.changed:
        health.changed.wait_for(lambda: health.reason is not None, seconds)
    return health.reason


def test_a_worker_without_beats_is_silent(health):
    health.start([1])
    health.start([2])
    for _ in range(100):
        health.beat(1)
        if health.reason is not None:
            break
        time.sleep(0.02)
    assert health.reason == (Kind.SILENT, 2, "worker 2 has been silent for 0.4 s")
    assert health.told == [health.reason]
    with pytest.raises(StoppedError, match="worker 2 has been silent"):
        health.check()


def test_a_worker_that_has_left_may_be_silent(health):
    health.start([1])
    health.left(1)
    health.beat(1)
    assert stopped(health, 2 * SILENCE) is None


def test_a_worker_whose_connection_ends_is_gone(health):
    health.gone(3)
    health.stop(Reason(Kind.FAILED, 0, "later"))
    assert health.reason == (Kind.GONE, 3, "worker 3 is gone")
    assert health.told == [health.reason]


def test_a_reason_that_others_have_told_is_not_told_again(health):
    health.stop(Reason(Kind.FAILED, 0, "from elsewhere"), tell=False)
    assert health.told == []
    with pytest.raises(StoppedError, match="from elsewhere"):
        health.check()


def test_nothing_is_noticed_after_the_end(health):
    health.start([1])
    health.close()
    health.gone(1)
    assert stopped(health, 2 * SILENCE) is None


@pytest.mark.parametrize("size", [1, 2, 16, 17, 64])
def test_everybody_is_watched_and_few_watch_many(size):
    watchers = [watched(rank, size) for rank in range(size)]
    assert all(rank not in row for rank, row in enumerate(watchers))
    if size > 1:
        assert {rank for row in watchers for rank in row} == set(range(size))
    if size > 16:
        assert max(map(len, watchers)) <= 3
