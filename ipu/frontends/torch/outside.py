"""What a session does not see: processes that a program starts, and its older threads.

They are named in the report. A spawned process begins without the session, so torch itself computes
there, which is told once; a forked one computes on the machine, and in no count. Of threads that
began before the session those are named that run code of the program; work that a pool gets inside
is watched (`threads`).
"""

from __future__ import annotations

import multiprocessing
import os
import sys
import sysconfig
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.process import BaseProcess
from pathlib import Path
from types import FrameType
from typing import Any

from ipu.frontends.torch.errors import user_line

__all__ = ["Outside"]

_LIBRARIES = tuple(
    os.path.join(os.path.realpath(folder), "")
    for folder in (
        *(sysconfig.get_paths()[kind] for kind in ("stdlib", "platstdlib", "purelib", "platlib")),
        *(str(Path(__file__).parents[3] / package) for package in ("fpsim", "ipu")),
    )
)


class Outside:
    """Processes and threads beside a session.

    >>> outside = Outside()
    >>> outside.names
    []
    """

    def __init__(self) -> None:
        #: Names by the method that started them, and of threads.
        self._processes: dict[str, list[str]] = {}
        self._threads: list[str] = []

    @property
    def names(self) -> list[str]:
        """Sentences of a report."""
        return [
            *(_sentence(how, names) for how, names in self._processes.items()),
            *(f"thread {name!r} began before the session: what torch computes there is its own and "
              "in no count" for name in self._threads),
        ]

    @contextmanager
    def noting(self) -> Iterator[None]:
        """Processes that start inside are noted, and threads that run already."""
        start, told = BaseProcess.start, False
        self._note_threads()

        def started(process: Any) -> None:
            nonlocal told
            how = _method(process)
            start(process)
            self._processes.setdefault(how, []).append(process.name)
            if how != "fork" and not told:
                told = True
                warnings.warn(
                    f"process {process.name!r} ({how}), at {user_line()}: it begins without the "
                    "session, so torch itself computes there and nothing is counted; start it by "
                    "fork, or open fpsim.torch.machine in it",
                    RuntimeWarning,
                    stacklevel=2,
                )

        BaseProcess.start = started  # type: ignore[method-assign, assignment]
        try:
            yield
        finally:
            BaseProcess.start = start  # type: ignore[method-assign]

    def _note_threads(self) -> None:
        frames = sys._current_frames()
        for thread in threading.enumerate():
            frame = frames.get(thread.ident or 0)
            is_beside = thread is not threading.current_thread() and frame is not None
            if is_beside and _is_of_program(frame):
                self._threads.append(thread.name)


def _sentence(how: str, names: list[str]) -> str:
    """What is told of the processes of a method: an epoch's workers are many."""
    more = f" and {len(names) - 1} more" if len(names) > 1 else ""
    whose = "computed on the machine" if how == "fork" else "torch's own"
    return f"process {names[0]!r}{more}, started by {how}: {whose}, in no count"


def _method(process: Any) -> str:
    """How a process starts: fork, spawn or forkserver."""
    of_process = getattr(process, "_start_method", None)
    return str(of_process or multiprocessing.get_start_method())


def _is_of_program(frame: FrameType | None) -> bool:
    """Whether a thread runs a file that is no part of Python, a library or this package."""
    while frame is not None:
        file = frame.f_code.co_filename
        if not file.startswith("<") and not os.path.realpath(file).startswith(_LIBRARIES):
            return True
        frame = frame.f_back
    return False
