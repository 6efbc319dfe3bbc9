"""The functions written in Python that an action begins: what small operations cost."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable
from types import CodeType, FrameType


def codes_called(action: Callable[[], object], warm: int = 2) -> list[CodeType]:
    """The code of every call that `action` makes, its own left out, once caches are full.

    The collector waits meanwhile: it would call the finalizers that other tests left, and what
    Hypothesis hangs on it, which are no calls of the action.
    """
    for _ in range(warm):
        action()
    codes: list[CodeType] = []

    def note(frame: FrameType, event: str, _argument: object) -> None:
        if event == "call":
            codes.append(frame.f_code)

    before, collecting = sys.getprofile(), gc.isenabled()
    gc.disable()
    sys.setprofile(note)
    try:
        action()
    finally:
        sys.setprofile(before)
        if collecting:
            gc.enable()
    return codes[1:]
