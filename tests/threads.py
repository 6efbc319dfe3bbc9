"""Work that the threads share however little it is, and proof that they did."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from typing import TypeVar

import pytest

from fpsim.elementwise import apply as arithmetic
from fpsim.state import threads as parallel

T = TypeVar("T")

#: Seconds after which the caller no longer waits for another thread.
PATIENCE = 20


def on_threads(n: int, work: Callable[[], T]) -> T:
    """What work() returns with n threads; if n > 1, others than the caller's have had a share."""
    threads, caller, other_came = set(), threading.get_ident(), threading.Event()

    def run_blocks(
        part: Callable[[int, int], int], first: int, last: int, smallest: int, step: int = 1,
        *, even: bool = False,
    ) -> int:
        def noted(begin: int, end: int) -> int:
            threads.add(threading.get_ident())
            if threading.get_ident() != caller:
                other_came.set()
            elif (begin, end) != (first, last):  # else the caller may have taken every block
                other_came.wait(PATIENCE)
            return part(begin, end)

        return parallel.run_blocks(noted, first, last, 1, step, even=even)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(parallel, "_threads", n)
        patch.setattr(arithmetic, "_SMALLEST_STREAMING", 1)
        patch.setattr(arithmetic, "_SMALLEST_COMPUTING", 1)
        for name in [name for name in sys.modules if name.startswith("fpsim.")]:
            module = sys.modules[name]
            if module is not parallel and "run_blocks" in vars(module):
                patch.setattr(module, "run_blocks", run_blocks)
        result = work()
    assert bool(threads - {caller}) == (n > 1), f"{len(threads)} of {n} threads had a share"
    return result
