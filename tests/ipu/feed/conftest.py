"""No test of a queue may leave a thread behind; and a way to know that a side waits."""

from __future__ import annotations

import gc
import queue
import threading
from collections.abc import Iterator

import pytest

from ipu.feed.buffer import Buffer
from tests.ipu.feed.threads import PATIENCE, queue_threads


@pytest.fixture(autouse=True)
def no_thread_is_left() -> Iterator[None]:
    yield
    if queue_threads():
        gc.collect()
    for thread in queue_threads():
        thread.join(PATIENCE)
        assert not thread.is_alive(), thread.name


@pytest.fixture
def main_waits(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """Set as soon as a thread that is not a queue's own waits for a queue."""
    event, original = threading.Event(), Buffer._wait

    def wait(self: Buffer[object], source: queue.SimpleQueue[object]) -> object:
        if threading.current_thread() not in queue_threads():
            event.set()
        return original(self, source)

    monkeypatch.setattr(Buffer, "_wait", wait)
    return event
