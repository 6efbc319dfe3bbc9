"""docs/sources.md and the marks of the tests: `python -m tests.sources` brings the page in step.

The page's columns ID, feature and place are written by hand. Status and tests follow from the
marks `@pytest.mark.source("S4-38")` and from `tests/golden/rows.json`: a row is built if a marked
test fails under a mutant that is named there, tested if it has marked tests alone; another one is
open, and one whose place is a document is told there in words.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from tests.rows import row_mutants

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "sources.md"

IDENTITY = re.compile(r"(S[0-4]|X)-\d\d")
NOWHERE = "–"
BUILT, TESTED, OPEN, TOLD = "built", "*tested*", "*open*", "in words"


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
    """The tests that carry each ID, as FILE::NAME."""
    results: dict[str, set[str]] = {}
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        for identity, name in _marks(path):
            results.setdefault(identity, set()).add(f"{path.relative_to(ROOT)}::{name}")
    return results


def _marks(path: Path) -> Iterator[tuple[str, str]]:
    text = path.read_text(encoding="utf-8")
    for test in ast.parse(text).body if "mark.source" in text else ():
        for node in (n for d in getattr(test, "decorator_list", ()) for n in ast.walk(d)):
            if isinstance(node, ast.Call) and ast.unparse(node.func) == "pytest.mark.source":
                for argument in node.args:
                    identity = str(getattr(argument, "value", ""))
                    if IDENTITY.fullmatch(identity) and isinstance(test, ast.FunctionDef):
                        yield identity, test.name


def in_step(text: str) -> str:
    """The page with status and tests as the marks have them."""
    result = marks()
    lines = [_line(line, result) for line in text.splitlines()]
    return "\n".join(lines) + "\n"


def _line(line: str, uses: dict[str, set[str]]) -> str:
    row = _row(line)
    if row is None:
        return line
    files = sorted({test.partition("::")[0] for test in uses.get(row.identity, ())})
    status = TOLD if row.place.startswith("docs/") else OPEN
    if files:
        status = BUILT if any(m.row == row.identity for m in row_mutants()) else TESTED
    tests = ", ".join(file.removeprefix("tests/") for file in files) or NOWHERE
    return str(row._replace(status=status, tests=tests))


if __name__ == "__main__":
    PAGE.write_text(in_step(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
