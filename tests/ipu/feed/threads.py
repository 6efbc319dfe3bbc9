"""Threads of tests: work beside the main thread, with a limit that only a dead-lock reaches."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

#: Seconds after which a thread counts as stuck.
PATIENCE = 60.0


class Beside:
    """Work in a thread of its own; `result` is what it returned, or raises what it raised."""

    def __init__(self, work: Callable[[], Any]) -> None:
        self._work = work
        self._result: Any = None
        self._error: BaseException | None = None
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    def _run(self) -> None:
        try:
            self._result = self._work()
        except BaseException as error:
            self._error = error

    def result(self) -> Any:
        self.thread.join(PATIENCE)
        assert not self.thread.is_alive(), "dead-lock"
        if self._error is not None:
            raise self._error
        return self._result


def queue_threads() -> list[threading.Thread]:
    """The threads of infeeds and outfeeds that live."""
    return [t for t in threading.enumerate() if t.name in ("infeed", "outfeed")]


def until(condition: Callable[[], bool]) -> None:
    """Wait for what another thread does."""
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, "dead-lock"
        time.sleep(0.001)


def wait(event: threading.Event) -> None:
    assert event.wait(PATIENCE), "dead-lock"
