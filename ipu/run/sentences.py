"""Words put together."""

from __future__ import annotations

__all__ = ["capital"]


def capital(text: str) -> str:
    """A clause as a sentence begins; all other letters stay, as those of names.

    >>> capital("the loss is NaN"), capital("")
    ('The loss is NaN', '')
    """
    return text[:1].upper() + text[1:]
