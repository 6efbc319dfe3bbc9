"""What a session does not see: processes that a program starts, and its other threads.

They are named in the report. A spawned process begins without the session, so torch itself computes
there, which is told once; a forked one computes on the machine, and in no count. A mode below
autograd sees one thread. In the others a program loads data or writes logs, so they go on; but the
first operation that rounds there is told, and the report counts them all as native: in threads that
start inside of the session, and in what pools are given to do, whenever their threads began. Of
threads that began before the session those are named that run code of the program.
"""

from __future__ import annotations

import multiprocessing
import os
import sys
import sysconfig
import threading
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from multiprocessing.process import BaseProcess
from pathlib import Path
from types import FrameType
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from ipu.frontends.torch.errors import user_line
from ipu.frontends.torch.exact import is_exact

__all__ = ["Outside", "watching"]

_LIBRARIES = tuple(
    os.path.join(os.path.realpath(folder), "")
    for folder in (
        *(sysconfig.get_paths()[kind] for kind in ("stdlib", "platstdlib", "purelib", "platlib")),
        *(str(Path(__file__).parents[3] / package) for package in ("fpsim", "ipu")),
    )
)
#: Conversions: of data from outside.
_CONVERSIONS = frozenset({"aten::_to_copy", "aten::copy_"})


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


# Threads ---------------------------------------------------------------------------------------


class _Watch(TorchDispatchMode):  # type: ignore[misc]
    """Tells of operations in its thread whose results are rounded."""

    def __init__(self, native: Callable[[str], None]) -> None:
        super().__init__()
        self._native = native

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        if func._schema.name not in _CONVERSIONS and not is_exact(func) and _has_floats(result):
            self._native(str(func))
        return result


def _has_floats(result: Any) -> bool:
    results = result if isinstance(result, (tuple, list)) else (result,)
    return any(isinstance(x, torch.Tensor) and x.is_floating_point() for x in results)


@contextmanager
def watching(native: Callable[[str], None]) -> Iterator[None]:
    """Threads that start inside, and work that pools get inside, are watched until the end.

    native    called with each operation that rounds there.
    """
    start, submit = threading.Thread.start, ThreadPoolExecutor.submit
    older = set(threading.enumerate())
    is_open, is_told = True, False

    def tell(operation: str) -> None:
        nonlocal is_told
        if not is_open:
            return
        native(operation)
        if not is_told:
            is_told = True
            warnings.warn(
                f"{operation} in thread {threading.current_thread().name!r}, at {user_line()}: a "
                "session computes in the thread that opened it; what other threads compute is "
                "torch's own, and counted as native",
                RuntimeWarning,
                stacklevel=2,
            )

    def started(thread: threading.Thread) -> None:
        run = thread.run

        def watched() -> None:
            with _Watch(tell):
                run()

        thread.run = watched  # type: ignore[method-assign]
        start(thread)

    def submitted(pool: Any, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        def work(*args: Any, **kwargs: Any) -> Any:
            is_unseen = is_open and threading.current_thread() in older
            with _Watch(tell) if is_unseen else nullcontext():
                return function(*args, **kwargs)

        return submit(pool, work, *args, **kwargs)

    threading.Thread.start = started  # type: ignore[method-assign, assignment]
    ThreadPoolExecutor.submit = submitted  # type: ignore[method-assign]
    try:
        yield
    finally:
        is_open = False
        threading.Thread.start = start  # type: ignore[method-assign]
        ThreadPoolExecutor.submit = submit  # type: ignore[method-assign]
