"""Trainings on few digits, in this process, for tests that need a whole run in seconds."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from fpsim import get_threads, set_threads
from ipu.experiments.training import digits


@pytest.fixture
def few_digits(monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """160 digits to learn from, 40 to test with; 5 batches make an epoch."""
    every = digits.load()
    few = digits.Digits(every.images[:200], every.labels[:200])
    monkeypatch.setattr(digits, "load", lambda: few)
    monkeypatch.setattr(digits, "HELD_BACK", 40)
    before = get_threads()
    set_threads(1)
    yield 5
    set_threads(before)
