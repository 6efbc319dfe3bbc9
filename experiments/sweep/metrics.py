"""What can be compared between runs: numbers and curves, from rows of any experiment.

Rows of a run with the same words (part, policy, format …) are one group. A group of one row gives a
number for each of its columns. In a longer one the first column that grows from row to row is x,
the others are curves over it; the last point of a curve counts as its number. Without such a column
the means of the columns count. Where an experiment has seeds of its own (a column `seed`), numbers
and curves are means over these.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

from ipu.experiments.lab.result import Row

#: The words of a group of rows.
Words = tuple[tuple[str, str], ...]


#: The column of an experiment's own seeds.
SEED = "seed"


class Curve(NamedTuple):
    """One column over another, of one run."""

    x_name: str
    x: tuple[float, ...]
    y: tuple[float, ...]


class ComparedRuns(NamedTuple):
    """Numbers and curves by their titles: one entry for each run, None where it has none.

    >>> rows = [{"of": "a", "epoch": 1, "loss": 2.0}, {"of": "a", "epoch": 2, "loss": 1.0}]
    >>> compared([rows]).numbers
    {'loss: a, at epoch 2': [1.0]}
    """

    numbers: dict[str, list[float | None]]
    curves: dict[str, list[Curve | None]]


def compared(runs: Sequence[Sequence[Row]]) -> ComparedRuns:
    """Every number and curve of the runs, in the order of their first rows."""
    numbers: dict[str, list[float | None]] = {}
    curves: dict[str, list[Curve | None]] = {}
    every = [_groups(rows) for rows in runs]
    names = _names(list(dict.fromkeys(words for groups in every for words in groups)))
    for place, groups in enumerate(every):
        for words, group in groups.items():
            for title, value in _measures(names[words], group):
                if isinstance(value, Curve):
                    curves.setdefault(title, [None] * len(runs))[place] = value
                else:
                    numbers.setdefault(title, [None] * len(runs))[place] = value
    return ComparedRuns(numbers, curves)


def differs(values: Sequence[object]) -> bool:
    """Whether the runs disagree; nan equals nan.

    >>> differs([1.0, 1.0]), differs([math.nan, math.nan]), differs([1.0, None])
    (False, False, True)
    """
    return len({repr(value) for value in values}) > 1


def _groups(rows: Sequence[Row]) -> dict[Words, list[Row]]:
    groups: dict[Words, list[Row]] = {}
    for row in rows:
        words = tuple((name, str(v)) for name, v in row.items() if isinstance(v, (str, bool)))
        groups.setdefault(words, []).append(row)
    return groups


def _names(groups: Sequence[Words]) -> dict[Words, str]:
    """Groups of rows as a person would call them: by their words, with names where they clash."""
    short = {words: ", ".join(_word(name, value) for name, value in words) for words in groups}
    counts = Counter(short.values())
    return {
        words: text if counts[text] == 1 else ", ".join(f"{n} {value}" for n, value in words)
        for words, text in short.items()
    }


def _word(name: str, value: str) -> str:
    return {"True": name, "False": f"no {name}"}.get(value, value)


def _measures(group: str, rows: Sequence[Row]) -> Iterator[tuple[str, float | Curve]]:
    """Titles with what they measure."""
    suffix = f": {group}" if group else ""
    columns = _mean_columns(rows)
    if all(len(values) == 1 for values in columns.values()):
        yield from ((_plain(name) + suffix, values[0]) for name, values in columns.items())
        return
    x_name = next((name for name, values in columns.items() if _grows(values)), None)
    for name, values in columns.items():
        if name == x_name:
            continue
        if x_name is None:
            yield f"mean {_plain(name)}{suffix}", math.fsum(values) / len(values)
            continue
        x = columns[x_name]
        title = f"{_plain(name)}{suffix}"
        yield title, Curve(x_name, x, values)
        yield f"{title}, at {_plain(x_name)} {x[-1]:g}", values[-1]


def _plain(name: str) -> str:
    """The name of a column for people."""
    return name.replace("_", " ")


def _mean_columns(rows: Sequence[Row]) -> Mapping[str, tuple[float, ...]]:
    """Columns as means over the experiment's own seeds, where all of these have the same ones."""
    by_seed: dict[object, list[Row]] = {}
    for row in rows:
        without_seed = {name: value for name, value in row.items() if name != SEED}
        by_seed.setdefault(row.get(SEED), []).append(without_seed)
    every = [_columns(of_seed) for of_seed in by_seed.values()]
    shapes = {(tuple(columns), *(len(v) for v in columns.values())) for columns in every}
    if len(shapes) > 1:
        return _columns([row for of_seed in by_seed.values() for row in of_seed])
    return {
        name: tuple(math.fsum(v) / len(v) for v in zip(*(c[name] for c in every), strict=True))
        for name in every[0]
    }


def _columns(rows: Sequence[Row]) -> Mapping[str, tuple[float, ...]]:
    """Columns that hold a number in every row."""
    columns = {}
    for name in rows[0]:
        values = [row.get(name) for row in rows]
        if all(isinstance(v, (int, float)) and not isinstance(v, bool) for v in values):
            columns[name] = tuple(float(str(v)) for v in values)
    return columns


def _grows(values: Sequence[float]) -> bool:
    return all(before < after for before, after in pairwise(values))
