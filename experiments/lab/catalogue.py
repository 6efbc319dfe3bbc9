"""Which experiments there are; found by looking, not by registration.

A module of this package is an experiment when it assigns QUESTION, BUDGET and DEFAULT as plain
constants. They are read from the source text, so listing imports nothing.
"""

from __future__ import annotations

import ast
import difflib
import importlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import experiments.sums
import experiments.training

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from experiments.lab.result import Result

#: Where experiments live.
ROOMS = (experiments.sums, experiments.training)

CONSTANTS = ("QUESTION", "BUDGET", "DEFAULT")


@dataclass(frozen=True)
class Experiment:
    """One experiment: its name, what it asks, and the seconds it may take on two cores."""

    name: str
    room: str
    question: str
    budget: float
    default: bool

    def run(self, quick: bool, seed: int) -> Result:
        """Do the experiment."""
        result: Result = self._function("run")(quick=quick, seed=seed)
        return result

    def plot(self, result: Result) -> Figure:
        """Draw the figure of a result, fresh or loaded."""
        figure: Figure = self._function("plot")(result)
        return figure

    def _function(self, name: str) -> Callable[..., Any]:
        module = importlib.import_module(f"{self.room}.{self.name}")
        function: Callable[..., Any] = getattr(module, name)
        return function


def catalogue() -> dict[str, Experiment]:
    """All experiments by name, the default report's first, the quick before the slow.

    >>> "swamping" in catalogue()
    True
    """
    found = sorted(_find(ROOMS), key=lambda e: (not e.default, e.budget, e.name))
    return {experiment.name: experiment for experiment in found}


def find(name: str) -> Experiment:
    """The experiment of that name.

    >>> find("swampin")
    Traceback (most recent call last):
    ...
    ValueError: experiment='swampin' is not known. Did you mean 'swamping'? See: fpsim list
    """
    known = catalogue()
    key = name.replace("-", "_")
    if key in known:
        return known[key]
    close = difflib.get_close_matches(key, known, 1)
    hint = f" Did you mean {close[0]!r}?" if close else ""
    raise ValueError(f"experiment={name!r} is not known.{hint} See: fpsim list")


def _find(rooms: Iterable[ModuleType]) -> Iterator[Experiment]:
    for room in rooms:
        for source in sorted(Path(room.__path__[0]).glob("*.py")):
            constants = _constants(source)
            if constants.keys() != set(CONSTANTS):
                continue
            yield Experiment(
                source.stem,
                room.__name__,
                str(constants["QUESTION"]),
                float(str(constants["BUDGET"])),
                bool(constants["DEFAULT"]),
            )


def _constants(source: Path) -> dict[str, object]:
    """The experiment's constants among the module's top-level assignments."""
    found: dict[str, object] = {}
    for node in ast.parse(source.read_text(encoding="utf-8")).body:
        if not isinstance(node, ast.Assign) or not isinstance(node.targets[0], ast.Name):
            continue
        if node.targets[0].id in CONSTANTS:
            found[node.targets[0].id] = ast.literal_eval(node.value)
    return found
