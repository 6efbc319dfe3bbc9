"""A tiny experiment that lives outside the package, for tests of what surrounds experiments."""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Iterator

import pytest

import ipu.experiments

DICE = """
QUESTION = "What does a die show?"
BUDGET = 1
DEFAULT = True

import os
import numpy as np
from ipu.experiments.lab.result import Result, UnitUsed

def run(quick, seed):
    if os.environ.get("DICE") == "break":
        raise KeyboardInterrupt
    if os.environ.get("DICE") == "fail":
        raise RuntimeError("the die rolled off the table")
    rolls = np.random.default_rng(seed).integers(1, 7, 3 if quick else 30)
    rows = [{"roll": i, "shown": int(n), "share": n / 6} for i, n in enumerate(rolls)]
    units = (UnitUsed("die", "ASSUMED", "a game"),)
    return Result(rows, f"It shows {rolls[0]}.", "p=fair", {"sides": 6}, units)

def plot(result):
    from ipu.pages.drawing import new_figure
    figure, (axes,) = new_figure(4, 3)
    axes.plot(result.column("roll"), result.column("shown"))
    return figure
"""


@pytest.fixture
def dice(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> Iterator[str]:
    """The catalogue holds one experiment more: dice, in a room of its own."""
    folder = tmp_path_factory.mktemp("more")
    (folder / "games").mkdir()
    (folder / "games" / "dice.py").write_text(textwrap.dedent(DICE))
    monkeypatch.setattr(ipu.experiments, "__path__", [*ipu.experiments.__path__, str(folder)])
    yield "dice"
    for name in [n for n in sys.modules if n.startswith("ipu.experiments.games")]:
        del sys.modules[name]
    if hasattr(ipu.experiments, "games"):
        del ipu.experiments.games
