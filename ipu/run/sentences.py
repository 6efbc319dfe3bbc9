"""Words put together."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

__all__ = ["capital", "where_told"]


def capital(text: str) -> str:
    """A clause as a sentence begins; all other letters stay, as those of names.

    >>> capital("the loss is NaN"), capital("")
    ('The loss is NaN', '')
    """
    return text[:1].upper() + text[1:]


def where_told(row: Mapping[str, Any]) -> str:
    """The direction, step and line of a birth, as a sentence holds them.

    >>> where_told({"direction": "optimizer", "step": 0, "line": "train.py:9"})
    'optimizer, step 0, train.py:9'
    """
    line = f", {row['line']}" if row.get("line") else ""
    return f"{row.get('phase') or row['direction']}, step {row['step']}{line}"
