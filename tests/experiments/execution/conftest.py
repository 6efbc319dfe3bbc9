"""Trainings on few digits, in this process, for tests that share one run."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from fpsim import get_threads, set_threads
from ipu.experiments.training import digits


@pytest.fixture(scope="module")
def few() -> Iterator[pytest.MonkeyPatch]:
    """160 digits to learn from, 40 to test with; what else is patched lasts as long."""
    every, before = digits.load(), get_threads()
    small = digits.Digits(every.images[:200], every.labels[:200])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(digits, "load", lambda: small)
        patch.setattr(digits, "HELD_BACK", 40)
        set_threads(1)
        yield patch
    set_threads(before)
