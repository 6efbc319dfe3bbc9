"""Threads beside that of a session: what torch computes there is counted as native.

A mode below autograd sees one thread. In the others a program loads data or writes logs, so they
go on; but the first operation that rounds there is told, and the report counts them all: in threads
that start inside of the session, and in what pools are given to do, whenever their threads began.
"""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from ipu.frontends.torch.errors import user_line
from ipu.frontends.torch.exact import is_exact

__all__ = ["watching"]

#: Conversions: of data from outside.
_CONVERSIONS = frozenset({"aten::_to_copy", "aten::copy_"})


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
