"""docs/sources.md and the marks of the tests: `python -m tests.sources` brings the page in step.

The page's columns ID, feature and place are written by hand. Status and tests follow from the
marks `@pytest.mark.source("S4-38")`: a row with a marked test is built, another one is open, and
one whose place is a document is told there in words.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "sources.md"

IDENTITY = re.compile(r"(S[0-4]|X)-\d\d")
NOWHERE = "–"
BUILT, OPEN, TOLD = "built", "*open*", "in words"


class Row(NamedTuple):
    """One line of the table."""

    identity: str
    feature: str
    place: str
    status: str
    tests: str

    def __str__(self) -> str:
        return "| " + " | ".join(self) + " |"


def rows(text: str) -> list[Row]:
    """The rows of the page."""
    return [row for line in text.splitlines() if (row := _row(line)) is not None]


def _row(line: str) -> Row | None:
    cells = [cell.strip() for cell in line.strip("|").split(" | ")]
    return Row(*cells) if IDENTITY.fullmatch(cells[0]) else None


def marks() -> dict[str, set[str]]:
    """The files whose tests carry each ID."""
    results: dict[str, set[str]] = {}
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        for identity in _marks(path):
            results.setdefault(identity, set()).add(str(path.relative_to(ROOT)))
    return results


def _marks(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "pytest.mark.source":
            for argument in node.args:
                if isinstance(argument, ast.Constant) and IDENTITY.fullmatch(str(argument.value)):
                    yield str(argument.value)


def in_step(text: str) -> str:
    """The page with status and tests as the marks have them."""
    result = marks()
    lines = [_line(line, result) for line in text.splitlines()]
    return "\n".join(lines) + "\n"


def _line(line: str, uses: dict[str, set[str]]) -> str:
    row = _row(line)
    if row is None:
        return line
    files = sorted(uses.get(row.identity, ()))
    status = BUILT if files else TOLD if row.place.startswith("docs/") else OPEN
    tests = ", ".join(file.removeprefix("tests/") for file in files) or NOWHERE
    return str(row._replace(status=status, tests=tests))


if __name__ == "__main__":
    PAGE.write_text(in_step(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
