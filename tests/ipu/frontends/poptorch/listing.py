"""The code of a tutorial's listing, taken from the text of the document.

A line of code starts a block; the block goes on as long as Python reads it and it is no output.
The documents are not part of the project (`tests.vectors.documents`).
"""

from __future__ import annotations

import ast
import re

from tests.vectors import documents

__all__ = ["code_of", "document"]

_STARTS = re.compile(
    r"(import |from \w+ import|class |def |# |[a-z]\w*(\.\w+)* = |[a-z]\w*(\.\w+)*\()"
)


def document(number: str) -> str:
    """The text of the document of that number; without the documents the test is skipped."""
    (path,) = documents().glob(f"{number}_*")
    return path.read_text(encoding="utf-8")


def _reads(lines: list[str]) -> bool:
    try:
        ast.parse("\n".join(lines))
    except SyntaxError:
        return False
    return True


def code_of(text: str) -> str:
    """All code of a document, in order."""
    lines, blocks, i = text.splitlines(), [], 0
    while i < len(lines):
        ends = []
        if _STARTS.match(lines[i]):
            for end in range(i + 1, min(i + 60, len(lines)) + 1):
                if lines[end - 1].startswith("_"):
                    break  # an object, printed
                if _reads(lines[i:end]):
                    ends.append(end)
        if not ends:
            i += 1
            continue
        blocks.append("\n".join(lines[i : ends[-1]]))
        i = ends[-1]
    return "\n".join(blocks) + "\n"
