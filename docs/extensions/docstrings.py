"""Docstrings as Sphinx reads them: the aligned lists of terms become definition lists.

A docstring of this project holds paragraphs, lists of a term, spaces and its explanation, and
examples. Names stand between single backticks, as in Markdown.
"""

from __future__ import annotations

import inspect
import re
from collections import Counter
from typing import Any

from sphinx.application import Sphinx

from ipu.ops.primitive import Primitive

#: A term, at least two spaces, and what is said of it; lines that go on are indented below that.
_TERM = re.compile(r"^(?P<term>\S(?:.*?\S)?)(?P<gap> {2,})(?P<text>\S.*)$")
_BACKTICKS = re.compile(r"(?<!`)`([^`\n]+)`(?!`|_)")
_SPECIAL = re.compile(r"(?<!\\)([*|\\]|(?<=\w)_(?=\W|$))")


def _inline(line: str) -> str:
    """Code in double backticks, and no sign outside of it that is markup."""
    parts = re.split(r"(`+[^`]+`+)", line)
    return "".join(
        _BACKTICKS.sub(r"``\1``", part) if part.startswith("`") else _SPECIAL.sub(r"\\\1", part)
        for part in parts
    )


def _column(lines: list[str]) -> int:
    """Where the explanations of a block begin; 0 if it is no list of terms."""
    starts = Counter(match.start("text") for line in lines if (match := _TERM.match(line)))
    return starts.most_common(1)[0][0] if starts else 0


def _definitions(lines: list[str], column: int) -> list[str]:
    """A block of terms and explanations as a definition list."""
    out: list[str] = []
    term = ""
    for line in lines:
        match = _TERM.match(line)
        if line.startswith(" "):
            out.append("    " + _inline(line.strip()))
        elif match or line[column - 1 : column] == " ":
            cut = match.start("text") if match else column
            out += [_inline(f"{term} {line[:cut].strip()}".strip()), "    " + _inline(line[cut:])]
            term = ""
        else:  # names go on in the next line
            term = f"{term} {line}".strip()
    return out


def _blocks(lines: list[str]) -> list[list[str]]:
    """Lines between blank ones; an example is a block of its own."""
    blocks: list[list[str]] = [[]]
    for line in lines:
        if not line.strip():
            blocks.append([])
        else:
            blocks[-1].append(line)
    return [block for block in blocks if block]


def _converted(block: list[str]) -> list[str]:
    if block[0].startswith(">>>"):
        return block
    if block[0].startswith(" "):
        return ["::", "", *block]
    if column := _column(block):
        return _definitions(block, column)
    return [_inline(line) for line in block]


def convert(lines: list[str]) -> list[str]:
    """The lines of a docstring as reStructuredText."""
    out: list[str] = []
    for block in _blocks(lines):
        out += [*_converted(block), ""]
    return out


def _short(value: Any, longest: int = 100) -> str:
    text = " ".join(repr(value).split())
    return text if len(text) <= longest else f"{text[: longest - 1]}…"


def _constant(value: Any, lines: list[str]) -> list[str]:
    """What a constant is, in the place of the docstring of its class."""
    if isinstance(value, Primitive):
        return [_inline(f"Rounded: {value.rounding}; its gradient: {value.gradient}.")]
    if lines == (inspect.getdoc(type(value)) or "").splitlines() + [""] * (lines[-1:] == [""]):
        return [f"``{_short(value)}``"]
    return convert(lines)


def _process(app: Sphinx, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    lines[:] = _constant(obj, lines) if what == "data" else convert(lines)


def setup(app: Sphinx) -> dict[str, bool]:
    app.connect("autodoc-process-docstring", _process)
    return {"parallel_read_safe": True}
