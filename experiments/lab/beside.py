"""Two reports side by side: what differs, to the bit, in figures that move together."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path

from ipu.experiments.lab import store
from ipu.experiments.lab.report import Page, pages
from ipu.experiments.lab.result import Row, Value
from ipu.run.pages.rendering import write_page
from ipu.run.pages.vector import Picture, inline

__all__ = ["SideBySide", "compare", "differing", "write_beside"]

#: Rows that differ, as the page lists them.
_SHOWN = 12
#: The sides of the page.
SIDES = ("left", "right")


@dataclass(frozen=True)
class SideBySide:
    """One experiment of both reports.

    pages      left and right.
    differing  rows that are not equal, cell by cell: number, column, left, right.
    """

    pages: tuple[Page, Page]
    differing: list[tuple[int, str, str, str]]

    @property
    def name(self) -> str:
        return self.pages[0].name

    @property
    def question(self) -> str:
        return self.pages[0].experiment.question

    @property
    def verdict(self) -> str:
        """Whether the data are the same bits, and if not, how much of them is not."""
        left, right = (page.result.rows for page in self.pages)
        if not self.differing:
            return f"the same bits: {len(left)} rows"
        rows = len({row for row, *_ in self.differing})
        lengths = "" if len(left) == len(right) else f"; {len(left)} rows left, {len(right)} right"
        return f"{rows} of {max(len(left), len(right))} rows differ{lengths}"

    @property
    def shown(self) -> list[tuple[int, str, str, str]]:
        return self.differing[:_SHOWN]

    @property
    def figures(self) -> list[tuple[str, Picture, str]]:
        """Side, figure and caption; ids of the sides are apart."""
        result = []
        for side, page in zip(SIDES, self.pages, strict=True):
            path = page.folder / store.VECTOR
            if path.exists():
                svg = inline(path.read_text(encoding="utf-8"), f"{side}-{self.name}-")
                result.append((side, svg, page.caption))
        return result


def differing(left: Sequence[Row], right: Sequence[Row]) -> list[tuple[int, str, str, str]]:
    """Cells of two tables that are not the same bits: row, column, left, right.

    Digits of a stored number give the same binary64 number back, so equal texts are equal bits.

    >>> differing([{"n": 1, "sum": 0.25}], [{"n": 1, "sum": 0.5}, {"n": 2}])
    [(1, 'sum', '0.25', '0.5'), (2, 'n', '', '2')]
    """
    return list(_differing(left, right))


def _differing(
    left: Sequence[Row], right: Sequence[Row]
) -> Iterator[tuple[int, str, str, str]]:
    nothing: Row = {}
    for number, (a, b) in enumerate(zip_longest(left, right, fillvalue=nothing), 1):
        for column in dict.fromkeys((*a, *b)):
            before, after = _text(a.get(column)), _text(b.get(column))
            if before != after:
                yield number, column, before, after


def _text(value: Value) -> str:
    return "" if value is None else value if isinstance(value, str) else repr(value)


def compare(left: Path, right: Path) -> tuple[list[SideBySide], list[str], dict[str, str]]:
    """Experiments of both folders, sentences on those of one alone, and why others are missing.

    Raises    ValueError for a folder without results.
    """
    reports: list[dict[str, Page]] = []
    damaged: dict[str, str] = {}
    for side, folder in zip(SIDES, (left, right), strict=True):
        complete, broken = pages(folder)
        if not complete:
            raise ValueError(
                f"{side}={str(folder)!r} has no finished results; give the folder that "
                "`fpsim report --out FOLDER` or `fpsim run NAME --out FOLDER` wrote"
            )
        reports.append({page.name: page for page in complete})
        damaged |= {f"{side}: {name}": reason for name, reason in broken.items()}
    first, second = reports
    both = [
        SideBySide((page, second[name]), differing(page.result.rows, second[name].result.rows))
        for name, page in first.items() if name in second
    ]
    alone = [
        f"{name} stands in the {side} report alone"
        for side, mine, other in (("left", first, second), ("right", second, first))
        for name in mine if name not in other
    ]
    return both, alone, damaged


def write_beside(left: Path, right: Path, path: Path) -> list[SideBySide]:
    """Write the page, self-contained; returns what it compares.

    Raises    ValueError for a folder without results.
    """
    both, alone, damaged = compare(left, right)
    path.parent.mkdir(parents=True, exist_ok=True)
    content = {
        "both": both, "alone": alone, "damaged": damaged, "sides": SIDES,
        "folders": (str(left), str(right)),
    }
    write_page(path, "beside", content)
    return both
