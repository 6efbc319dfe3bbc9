"""Sessions that run, and those that stay because a data set that they built is in use outside.

A data set with `shuffle` has its generator in the resources of the session that built it, and
deletes it there when it is freed. TensorFlow frees these resources with the session, so a session
that goes before such a data set is a crash.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

__all__ = ["keep_running_sessions", "running"]

_running: list[Any] = []


@contextmanager
def running(session: Any) -> Iterator[None]:
    """Inside, the session runs."""
    _running.append(session)
    try:
        yield
    finally:
        _running.remove(session)


def keep_running_sessions() -> None:
    """The sessions that run now stay until the process ends."""
    for session in _running:
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(session))
