"""One birth: excursions of one kind that are born in one place."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ipu.run.births.kinds import CONSTANT, DATA_BEYOND, DIVISION, NAN

__all__ = ["Birth", "Origins", "oldest"]

#: Births that the elements of an array come from, by kind.
Origins = Mapping[str, "Birth"]


@dataclass(eq=False)
class Birth:
    """Excursions of one kind that are born in one place: an operation of a layer and direction.

    step       of the first.
    lines      of the user's program, where they are known, with the elements born in each: in the
               step of the first, as later ones may follow from it; of absorptions in all steps, and
               those that are lost again count twice.
    detail     what made it, in words: "of a negative number", a constant's value, or the
               difference of equal numbers that is divided by.
    count      elements in all steps, of `results` that the operation had.
    causes     births among the operands of the first; of a constant that is zero, the flushed
               numbers that it was added to, and does not keep from zero.
    deaths     operations that ended it, and how often; `spread`: those that computed on with it.
    weights    the layer whose weights it reached first.
    repeated   of an absorption: elements whose sum was one of the same place before, so that what
               is lost adds up. A term that is lost once is an error of half a unit at most.
    lost       by line, of an absorption in the first step: the size of the terms beside that of
               their sum.
    running    lines whose sums come from sums of theirs in the first step: their operands bring
               what these have lost.
    is_trained_with    a backward pass or an optimiser computed with it.
    reader     of data, the layer that read them first.
    bounds     of a constant that is 1, the operation whose results it bounds.
    phase      what a reader calls the direction; "": by its name.
    """

    kind: str
    step: int
    layer: str
    direction: str
    operation: str
    format: str
    detail: str = ""
    count: int = 0
    results: int = 0
    number: int = 0
    causes: tuple[Birth, ...] = ()
    lines: Counter[str] = field(default_factory=Counter)
    deaths: Counter[str] = field(default_factory=Counter)
    spread: int = 0
    weights: str = ""
    repeated: int = 0
    lost: dict[str, float] = field(default_factory=dict)
    running: set[str] = field(default_factory=set)
    is_trained_with: bool = False
    reader: str = ""
    bounds: str = ""
    phase: str = ""

    @property
    def line(self) -> str:
        """The line in which most of it is born; the first of alike ones."""
        return max(self.lines, key=self.lines.__getitem__, default="")

    @property
    def is_harmless(self) -> bool:
        """Whether every operation that read it gave the result of the number itself."""
        if self.kind == DATA_BEYOND:  # of which most may never be computed with
            return not (self.spread or self.is_trained_with)
        return self.kind not in (NAN, DIVISION) and bool(self.deaths) and not self.spread

    def lost_terms(self, n: int, line: str, step: int, operands: Sequence[Origins]) -> None:
        """So many terms of a line were absorbed by a sum whose operands have these origins."""
        is_first = step != self.step or self.lines[line] <= n
        if not is_first and any(origins.get(self.kind) is self for origins in operands):
            self.running.add(line)

    def was_lost_again(self, n: int, line: str) -> None:
        """So many terms of a line were absorbed by a sum that goes on."""
        self.repeated += n
        self.lines[line] += n

    def as_row(self) -> dict[str, Any]:
        """Plain data, causes by their numbers."""
        return {
            "number": self.number, "kind": self.kind, "step": self.step, "layer": self.layer,
            "direction": self.direction, "operation": self.operation, "format": self.format,
            "line": self.line, "detail": self.detail, "count": self.count,
            "results": self.results, "causes": [birth.number for birth in self.causes],
            "deaths": dict(self.deaths), "harmless": self.is_harmless, "weights": self.weights,
            "repeated": self.repeated, "running": self.line in self.running,
            "lost": self.lost.get(self.line, 0.0),
            "trained_with": self.is_trained_with,
            "reader": self.reader, "bounds": self.bounds, "phase": self.phase,
        }


def oldest(births: Sequence[Birth]) -> Birth | None:
    """The first of some births; a constant before others."""
    if len(births) < 2:
        return births[0] if births else None
    return min(births, key=lambda b: (b.kind != CONSTANT, b.number))
