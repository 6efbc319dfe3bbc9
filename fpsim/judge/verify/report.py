"""The outcome of a verification: counts, and the first failures as lines of text."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import islice

__all__ = ["KEPT", "VerificationReport"]

#: Failures that are kept for printing.
KEPT = 10


@dataclass
class VerificationReport:
    """Counts of one verification; `failures` holds the first ten mismatches.

    >>> report = VerificationReport("f16_add near_even", checked=3)
    >>> report.fail(2, ["line 1: ...", "line 3: ..."]); str(report)
    'f16_add near_even: 3 vectors, 2 mismatches'
    """

    label: str
    unit: str = "vectors"
    checked: int = 0
    mismatches: int = 0
    failures: list[str] = field(default_factory=list)
    notes: dict[str, int] = field(default_factory=dict)

    def fail(self, n: int, lines: Iterable[str]) -> None:
        """n mismatches more; of their lines only as many are read as are kept."""
        self.mismatches += n
        self.failures += islice(lines, KEPT - len(self.failures))

    def include(self, other: VerificationReport) -> None:
        """Add another report's counts and failures."""
        self.checked += other.checked
        self.fail(other.mismatches, other.failures)
        for note, n in other.notes.items():
            self.notes[note] = self.notes.get(note, 0) + n

    def __str__(self) -> str:
        text = f"{self.label}: {self.checked} {self.unit}, {self.mismatches} mismatches"
        return text + "".join(f", {n} {note}" for note, n in self.notes.items())
