"""Words put together."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

__all__ = ["capital", "pass_told", "where_told"]


def capital(text: str) -> str:
    """A clause as a sentence begins; all other letters stay, as those of names.

    >>> capital("the loss is NaN"), capital("")
    ('The loss is NaN', '')
    """
    return text[:1].upper() + text[1:]


def pass_told(row: Mapping[str, Any]) -> str:
    """The pass of a birth by the word of its site: an evaluation is a pass forward too."""
    direction = str(row["direction"])
    return str(row.get("phase") or ("forward" if direction == "evaluation" else direction))


def where_told(row: Mapping[str, Any]) -> str:
    """The pass, step and line of a birth, as a sentence holds them.

    What is evaluated behind an update is told by the step of that.

    >>> where_told({"direction": "optimizer", "step": 0, "line": "train.py:9"})
    'optimizer, step 0, train.py:9'
    >>> where_told({"direction": "evaluation", "step": 1})
    'forward, after step 0'
    """
    line = f", {row['line']}" if row.get("line") else ""
    is_behind = row["direction"] == "evaluation" and row["step"] > 0
    step = f"after step {row['step'] - 1}" if is_behind else f"step {row['step']}"
    return f"{pass_told(row)}, {step}{line}"
