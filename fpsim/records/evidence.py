"""Evidence: where a modelled fact comes from, and how far it can be trusted.

Every constant that models hardware is a `Fact`. Reports print the evidence of what they used; an
unknown is a named choice with a default (ASSUMED), never silent.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from typing import Any

__all__ = ["Evidence", "Fact", "weakest"]


class Evidence(Enum):
    """How we know a fact, from the strongest word to the weakest.

    DOCUMENTED  the maker's document or source says so.
    MEASURED    a test or a recording on the hardware shows it.
    INFERRED    follows from other facts, or from reverse engineering that the source names.
    ASSUMED     in no source; our declared choice, with a switch.
    """

    DOCUMENTED = "documented"
    MEASURED = "measured"
    INFERRED = "inferred"
    ASSUMED = "assumed"

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True)
class Fact:
    """A value with its evidence and its source.

    >>> window = Fact(31, Evidence.INFERRED, "33-bit addends: 2 integer and 31 fraction bits")
    >>> print(window)
    31 (INFERRED: 33-bit addends: 2 integer and 31 fraction bits)
    """

    value: Any
    evidence: Evidence
    source: str

    def __str__(self) -> str:
        return f"{self.value} ({self.evidence}: {self.source})"


def weakest(facts: Iterable[Fact]) -> Evidence:
    """The weakest evidence among facts: what a number that used them all rests on.

    >>> weakest([Fact(4, Evidence.DOCUMENTED, "manual"), Fact(31, Evidence.INFERRED, "widths")])
    <Evidence.INFERRED: 'inferred'>
    """
    order = list(Evidence)
    return max((fact.evidence for fact in facts), key=order.index, default=Evidence.DOCUMENTED)
