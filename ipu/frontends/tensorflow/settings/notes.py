"""Sentences that a user reads once: what is accepted, but changes nothing in the simulation."""

from __future__ import annotations

import warnings

__all__ = ["forget", "note"]

_told: set[str] = set()


def note(sentence: str) -> None:
    """Warn with a sentence the first time that it comes.

    >>> forget()
    >>> with warnings.catch_warnings(record=True) as caught:
    ...     warnings.simplefilter("always")
    ...     note("io_tiles change no bit")
    ...     note("io_tiles change no bit")
    >>> [str(warning.message) for warning in caught]
    ['io_tiles change no bit']
    """
    if sentence not in _told:
        _told.add(sentence)
        warnings.warn(sentence, RuntimeWarning, stacklevel=2)


def forget() -> None:
    """Every sentence is new again."""
    _told.clear()
