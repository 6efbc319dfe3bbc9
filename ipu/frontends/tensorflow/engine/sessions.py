"""Sessions that run."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

__all__ = ["running", "running_on"]

_running: list[Any] = []


@contextmanager
def running(session: Any) -> Iterator[None]:
    """Inside, the session runs."""
    _running.append(session)
    try:
        yield
    finally:
        _running.remove(session)


def running_on(graph: Any) -> list[Any]:
    """The sessions of a graph that run now: a node cannot tell which of them it runs in."""
    return [session for session in _running if session.graph is graph]
