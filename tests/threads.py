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


def on_threads(n: int, work: Callable[[], T]) -> T:
    """What work() returns with n threads; if n > 1, others than the caller's have had a share."""
    seen = set()

    def run_blocks(
        part: Callable[[int, int], int], first: int, last: int, smallest: int, step: int = 1
    ) -> int:
        def noted(begin: int, end: int) -> int:
            seen.add(threading.get_ident())
            return part(begin, end)

        return parallel.run_blocks(noted, first, last, 1, step)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(parallel, "_threads", n)
        patch.setattr(arithmetic, "_SMALLEST_STREAMING", 1)
        patch.setattr(arithmetic, "_SMALLEST_COMPUTING", 1)
        for name in [name for name in sys.modules if name.startswith("fpsim.")]:
            module = sys.modules[name]
            if module is not parallel and "run_blocks" in vars(module):
                patch.setattr(module, "run_blocks", run_blocks)
        result = work()
    assert (len(seen) > 1) == (n > 1), f"{len(seen)} of {n} threads had a share"
    return result
