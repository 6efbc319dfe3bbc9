"""The result of an experiment: rows of plain values, an answer with its number, the evidence."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from fpsim.records.units import MatrixUnit

Value = str | int | float | bool | None
Row = Mapping[str, Value]

WORDS: dict[str, Value] = {"": None, "true": True, "false": False}


@dataclass(frozen=True)
class UnitUsed:
    """A unit or rule of arithmetic that a result rests on, and how well it is known.

    `evidence` is DOCUMENTED, MEASURED, INFERRED or ASSUMED.
    """

    name: str
    evidence: str
    source: str


#: For experiments that use a format's own operations and no machine.
ELEMENTWISE = UnitUsed(
    "element-wise operations", "DOCUMENTED", "IEEE 754-2019; docs/semantics.md §1"
)
STOCHASTIC = UnitUsed(
    "stochastic rounding, Philox bits", "DOCUMENTED", "docs/semantics.md §1 and §2"
)


def unit_used(unit: MatrixUnit) -> tuple[UnitUsed, ...]:
    """Every constant of a matrix unit with its evidence, for `Result.units`."""
    return tuple(
        UnitUsed(f"{unit.name}: {constant} = {fact.value}", str(fact.evidence), fact.source)
        for constant, fact in unit.facts.items()
    )


@dataclass(frozen=True)
class Result:
    """Rows, parameters, the answer in one sentence with its number, policy and evidence.

    local    rows that another machine would not repeat (BLAS, times): drawn, but not in data.csv.
    files    texts beside data.csv, by file name: traces and accounts that other tools read.

    >>> result = Result([{"n": 1, "sum": 0.25}], answer="It stalls at 0.25.", policy="c=f16")
    >>> print(result.to_csv(), end="")
    n,sum
    1,0.25
    >>> rows_from_csv(result.to_csv()) == result.rows
    True
    """

    rows: Sequence[Row]
    answer: str
    policy: str
    parameters: Mapping[str, object] = field(default_factory=dict)
    units: tuple[UnitUsed, ...] = ()
    local: Sequence[Row] = ()
    files: Mapping[str, str] = field(default_factory=dict)

    def select(self, **where: Value) -> list[Row]:
        """The rows in which every named column has that value."""
        return [r for r in self.rows if all(r.get(k) == v for k, v in where.items())]

    def column(self, name: str, **where: Value) -> np.ndarray:
        """One column of the selected rows."""
        return np.array([row[name] for row in self.select(**where)])

    def to_csv(self) -> str:
        """The rows as CSV."""
        return to_csv(self.rows)


@dataclass(frozen=True)
class Table:
    """A table of a report page; every line has as many cells as there are heads."""

    title: str
    heads: Sequence[str]
    lines: Sequence[Sequence[str]]
    note: str = ""


class Collected:
    """Rows of the parts of an experiment as they come, and each unit once.

    >>> collected = Collected()
    >>> collected.add([{"sum": 0.25}], (ELEMENTWISE,), format="binary16")
    >>> collected.add([{"sum": 1.0}], (ELEMENTWISE,), format="binary32")
    >>> collected.rows[1], len(collected.units)
    ({'format': 'binary32', 'sum': 1.0}, 1)
    """

    def __init__(self) -> None:
        self.rows: list[Row] = []
        self._units: dict[UnitUsed, None] = {}

    def add(self, rows: Iterable[Row], units: Iterable[UnitUsed], **label: Value) -> None:
        """Rows, labelled, and the units behind them."""
        self.rows += [{**label, **row} for row in rows]
        self._units |= dict.fromkeys(units)

    @property
    def units(self) -> tuple[UnitUsed, ...]:
        """Every unit so far, in the order of first use."""
        return tuple(self._units)


def to_csv(rows: Sequence[Row]) -> str:
    """Rows as CSV: shortest digits that give the same number back, LF line ends."""
    names = list(dict.fromkeys(name for row in rows for name in row))
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(names)
    writer.writerows([_cell(row.get(name)) for name in names] for row in rows)
    return text.getvalue()


def rows_from_csv(text: str) -> list[Row]:
    """Rows of a file that `to_csv` wrote; empty cells are left out."""
    names, *lines = csv.reader(io.StringIO(text))
    pairs = ((zip(names, map(_value, line), strict=True)) for line in lines)
    return [{name: value for name, value in row if value is not None} for row in pairs]


def summary(values: Iterable[float]) -> tuple[float, float]:
    """Mean and sample standard deviation."""
    array = np.asarray(list(values), dtype=np.float64)
    return float(array.mean()), float(array.std(ddof=1)) if array.size > 1 else 0.0


def _cell(value: object) -> str:
    if isinstance(value, np.generic):
        value = value.item()
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, (int, float)):
        return repr(value)
    if isinstance(value, str) and _value(value) == value:
        return value
    raise TypeError(f"value={value!r} cannot be a cell; use a number, a bool, None or a word")


def _value(cell: str) -> Value:
    if cell in WORDS:
        return WORDS[cell]
    for kind in (int, float):
        try:
            return kind(cell)
        except ValueError:
            continue
    return cell
