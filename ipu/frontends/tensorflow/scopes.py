"""Scopes: what the first programs need."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["ipu_scope"]


@contextmanager
def ipu_scope(device: str) -> Iterator[None]:
    """The nodes inside run on the machine."""
    yield
