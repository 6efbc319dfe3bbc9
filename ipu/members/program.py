"""A program as its processes compare it: operations, options and shapes of the first step.

Processes that build other models, or give their models batches of another shape, would train a sum
of gradients that belong to nothing. They are refused at their first meeting, by the first
operations that differ.
"""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import sha256

__all__ = ["ProgramListing"]

#: Operations that are listed; a step has more in long sequences alone.
LONGEST = 1 << 16


class ProgramListing:
    """Operations in the order in which a program runs them.

    lines    one for each, at its place, with shapes and options.
    is_open  it is still written: the processes have not met.

    >>> listing = ProgramListing()
    >>> listing.add("net.1 forward", "relu", ["binary16 (4, 8)"])
    >>> listing.lines
    ['net.1 forward: relu of binary16 (4, 8)']
    """

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.is_open = True

    def add(self, place: str, operation: str, operands: Iterable[str]) -> None:
        """An operation with its operands and options."""
        if self.is_open and len(self.lines) < LONGEST:
            self.lines.append(f"{place}: {operation} of {', '.join(operands)}")

    @property
    def digest(self) -> str:
        """SHA-256 of the lines."""
        return sha256("\n".join(self.lines).encode()).hexdigest()
