"""A tiny experiment that lives outside the package, for tests of what surrounds experiments."""

from __future__ import annotations

import shutil
import sys
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import ipu.experiments
from ipu.experiments.cli import main

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
    from ipu.run.pages.drawing import new_figure
    figure, (axes,) = new_figure(4, 3)
    axes.plot(result.column("roll"), result.column("shown"))
    return figure
"""


@contextmanager
def listed(folder: Path, *names: str) -> Iterator[None]:
    """The catalogue holds these experiments more, each a die, in a room of its own.

    What one does is told by the variable of its name.
    """
    (folder / "games").mkdir()
    for name in names:
        text = textwrap.dedent(DICE).replace('"DICE"', f'"{name.upper()}"')
        (folder / "games" / f"{name}.py").write_text(text)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ipu.experiments, "__path__", [*ipu.experiments.__path__, str(folder)])
        yield
    for name in [n for n in sys.modules if n.startswith("ipu.experiments.games")]:
        del sys.modules[name]
    if hasattr(ipu.experiments, "games"):
        del ipu.experiments.games


@pytest.fixture(autouse=True)
def closed_figures():
    """Figures of a test are closed after it, so that no number of tests has too many open."""
    yield
    if "matplotlib.pyplot" in sys.modules:
        sys.modules["matplotlib.pyplot"].close("all")


@pytest.fixture
def dice(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The catalogue holds one experiment more: dice."""
    with listed(tmp_path_factory.mktemp("more"), "dice"):
        yield "dice"


@pytest.fixture(scope="session")
def dice_ran(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What running dice with seed 3 leaves; for copies."""
    out = tmp_path_factory.mktemp("ran")
    with listed(tmp_path_factory.mktemp("more"), "dice"):
        assert main(["run", "dice", "--out", str(out), "--seed", "3"]) == 0
    return out


@pytest.fixture
def out(dice_ran: Path, tmp_path: Path, dice: str) -> Path:
    """A folder in which dice ran with seed 3."""
    shutil.copytree(dice_ran, tmp_path, dirs_exist_ok=True)
    return tmp_path
