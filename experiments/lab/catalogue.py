"""The catalogue of experiments: every module of every room is looked at, none is registered.

A module `ipu.experiments.ROOM.NAME` is an experiment when it assigns QUESTION, BUDGET and DEFAULT
as plain constants; NEEDS, if it is there, names a package that is no dependency of fpsim. They are
read from the source text, so listing imports nothing.
"""

from __future__ import annotations

import ast
import difflib
import importlib
import importlib.util
import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_type_hints

import ipu.experiments
from ipu.installation import how_to_install

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from ipu.experiments.lab.result import Result, Table, Value

CONSTANTS = ("QUESTION", "BUDGET", "DEFAULT")
#: An optional one.
NEEDS = "NEEDS"


@dataclass(frozen=True)
class Experiment(ABC):
    """One experiment: its name, what it asks, and the seconds it may take on two cores."""

    name: str
    question: str
    budget: float
    default: bool

    @abstractmethod
    def run(self, quick: bool, seed: int) -> Result:
        """Do the experiment."""

    @abstractmethod
    def plot(self, result: Result) -> Figure | None:
        """Draw the figure of a result, fresh or loaded; None where a table says it all."""

    def tables(self, result: Result) -> list[Table]:
        """Tables of a result, for the report page."""
        return []

    def pictures(self, result: Result) -> dict[str, Figure]:
        """Pictures of a result that the report page lets zoom, by their titles."""
        return {}

    def command(self, quick: bool, seed: int) -> str:
        """The command line that runs this again."""
        return f"fpsim run {self.name}{' --quick' if quick else ''} --seed {seed}"


@dataclass(frozen=True)
class Listed(Experiment):
    """An experiment of the catalogue: a module of a room with `run` and what shows its result.

    That is `plot` or `tables`, and `pictures` for what needs zooming.
    """

    room: str
    needs: str = ""

    @property
    def missing(self) -> str:
        """Why it cannot run here; "" where it can."""
        if not self.needs or importlib.util.find_spec(self.needs) is not None:
            return ""
        return (
            f"{self.name} needs {self.needs}, which is not installed; install it with: "
            f"{how_to_install(self.needs)}"
        )

    def run(self, quick: bool, seed: int) -> Result:
        function = self._function("run")
        assert function is not None
        result: Result = function(quick=quick, seed=seed)
        return result

    def run_with(self, quick: bool, seed: int, settings: Mapping[str, Value]) -> Result:
        """Do the experiment with other values of its settings."""
        function = self._function("run")
        assert function is not None
        result: Result = function(quick=quick, seed=seed, **settings)
        return result

    def settings(self) -> dict[str, Any]:
        """Arguments of `run` beside quick and seed, with the types of their values."""
        function = self._function("run")
        assert function is not None
        types = get_type_hints(function)
        names = inspect.signature(function).parameters
        return {name: types[name] for name in names if name not in ("quick", "seed")}

    def check_setting(self, name: str, value: Value) -> None:
        """Raises    ValueError for a setting that there is not, and for a value of another kind."""
        settings = self.settings()
        if name not in settings:
            there = ", ".join(settings) or "none"
            raise ValueError(
                f"set={name!r} is no setting of {self.name}; its settings are: {there}"
            )
        kind = settings[name]
        is_number = kind is float and isinstance(value, int) and not isinstance(value, bool)
        if not is_number and (
            not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool)
        ):
            word = getattr(kind, "__name__", str(kind))
            raise ValueError(f"{name}={value!r} is not of the kind {word}, as {self.name} wants it")

    def plot(self, result: Result) -> Figure | None:
        plot = self._function("plot")
        return None if plot is None else plot(result)

    def tables(self, result: Result) -> list[Table]:
        tables = self._function("tables")
        return [] if tables is None else tables(result)

    def pictures(self, result: Result) -> dict[str, Figure]:
        pictures = self._function("pictures")
        return {} if pictures is None else pictures(result)

    def _function(self, name: str) -> Callable[..., Any] | None:
        module = importlib.import_module(f"{self.room}.{self.name}")
        function: Callable[..., Any] | None = getattr(module, name, None)
        return function


def catalogue() -> dict[str, Listed]:
    """All experiments by name, the default report's first, the quick before the slow.

    >>> "swamping" in catalogue()
    True
    """
    ordered = sorted(_find(), key=lambda e: (not e.default, e.budget, e.name))
    return {experiment.name: experiment for experiment in ordered}


def find(name: str) -> Listed:
    """The experiment of that name.

    >>> find("swampin")
    Traceback (most recent call last):
    ...
    ValueError: experiment='swampin' is not known. Did you mean 'swamping'? See: fpsim list
    """
    experiments = catalogue()
    key = name.replace("-", "_")
    if key in experiments:
        return experiments[key]
    close = difflib.get_close_matches(key, experiments, 1)
    hint = f" Did you mean {close[0]!r}?" if close else ""
    raise ValueError(f"experiment={name!r} is not known.{hint} See: fpsim list")


def _find() -> Iterator[Listed]:
    for folder in ipu.experiments.__path__:
        for source in sorted(Path(folder).glob("*/*.py")):
            constants = _constants(source.read_text(encoding="utf-8"))
            if constants.keys() - {NEEDS} == set(CONSTANTS):
                yield Listed(
                    source.stem,
                    str(constants["QUESTION"]),
                    float(str(constants["BUDGET"])),
                    bool(constants["DEFAULT"]),
                    f"{ipu.experiments.__name__}.{source.parent.name}",
                    str(constants.get(NEEDS, "")),
                )


def _constants(text: str) -> dict[str, object]:
    """The experiment's constants among the module's top-level assignments."""
    constants: dict[str, object] = {}
    if not all(f"\n{name} = " in text for name in CONSTANTS):
        return constants  # parsing every module of machinery would double the time of a listing
    for node in ast.parse(text).body:
        if not isinstance(node, ast.Assign) or not isinstance(node.targets[0], ast.Name):
            continue
        if node.targets[0].id in (*CONSTANTS, NEEDS):
            constants[node.targets[0].id] = ast.literal_eval(node.value)
    return constants
