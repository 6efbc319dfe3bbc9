"""A training that may be interrupted: its states are saved in a folder now and then."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ipu.learn.checkpoint.file import check_folder, load, save
from ipu.learn.checkpoint.lock import FolderLock
from ipu.learn.checkpoint.state import TrainingState

__all__ = ["NAME", "Keeper", "interrupt_later"]


NAME = "checkpoint.npz"


class Keeper:
    """Saves states of one training in a folder, not more often than every `seconds`.

    The folder is this training's until `close`, or the end of the process.

    Raises    ValueError at once where no file can be written in the folder, and where another
              training saves there.
    """

    def __init__(self, folder: Path, seconds: float = 30.0) -> None:
        check_folder(folder)
        self._lock = FolderLock(folder)
        self.path = folder / NAME
        self.seconds = seconds
        self._saved = time.monotonic()

    def load(self) -> TrainingState | None:
        """The saved state; None if there is none."""
        return load(self.path) if self.path.exists() else None

    def save(self, state: TrainingState) -> None:
        """Save now."""
        save(self.path, state)
        self._saved = time.monotonic()

    def close(self) -> None:
        """Leave the folder to other trainings."""
        self._lock.release()

    @property
    def due(self) -> bool:
        """Whether the time has come to save."""
        return time.monotonic() - self._saved >= self.seconds


@contextmanager
def interrupt_later() -> Iterator[Callable[[], bool]]:
    """Inside, ^C only sets what the yielded function returns; a second ^C interrupts at once.

    A step is then never cut in two: the loop asks after each step, saves, and stops.
    """
    asked = False

    def remember(number: int, frame: Any) -> None:
        nonlocal asked
        asked = True
        signal.signal(signal.SIGINT, before)

    before = signal.getsignal(signal.SIGINT)
    signal.signal(signal.SIGINT, remember)
    try:
        yield lambda: asked
    finally:
        signal.signal(signal.SIGINT, before)
