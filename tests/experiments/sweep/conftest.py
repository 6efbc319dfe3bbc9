"""The room with the experiment `dice`, and workers that have it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import ipu.experiments
from tests.experiments.sweep import room


@pytest.fixture
def moody(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[..., Path]]:
    """moody(once=[3], …) makes the experiment and its seeds' moods; returns its folder."""
    folder = tmp_path_factory.mktemp("room")
    monkeypatch.setenv(room.VARIABLE, str(folder))
    monkeypatch.setattr(ipu.experiments, "__path__", [*ipu.experiments.__path__, str(folder)])

    def make(**moods: list[int]) -> Path:
        room.write(folder, **moods)
        return folder

    yield make
    for name in [n for n in sys.modules if n.startswith("ipu.experiments.games")]:
        del sys.modules[name]
    if hasattr(ipu.experiments, "games"):
        del ipu.experiments.games
