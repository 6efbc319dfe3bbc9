"""Paths: births that follow from each other, the first excursion first."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ipu.run.births.kinds import CONSTANT, DIVISION, NAN, ONE, ZERO
from ipu.run.causes.cause import Cause
from ipu.run.causes.clauses import clause_of
from ipu.run.causes.rows import OF_DATA, Report, Row, is_of_gradients
from ipu.run.sentences import capital, where_told

__all__ = ["cause_of", "clauses_of", "constants_beside", "path_to", "zero_constant"]

#: Births that follow from each other, at most.
_PATH = 8


def path_to(end: Row, births: Sequence[Row]) -> list[Row]:
    """A birth, and before it the ones that it follows from; the first excursion begins them.

    An optimiser's constant is there to keep flushed squares from zero: it comes before them.
    """
    path = [end]
    while path[0]["causes"] and len(path) < _PATH:
        if path[0]["kind"] == CONSTANT and path[0]["direction"] == "optimizer":
            break
        path.insert(0, births[path[0]["causes"][0]])
    return path


def clauses_of(path: Sequence[Row]) -> str:
    """What happened in births that follow from each other; constants stand beside the others."""
    text = ""
    for row in path:
        joint = ", and " if row["kind"] == CONSTANT else ", so "
        text += (joint if text else "") + clause_of(row)
        if row["kind"] == CONSTANT and row["detail"] == ONE and row["line"]:
            text += f" ({row['line']})"
    return text


def cause_of(path: Sequence[Row], sentence: str) -> Cause:
    """The cause that begins with the first of these births."""
    first = path[0]
    kind = {
        CONSTANT: "constant", DIVISION: "division", NAN: "invalid", ZERO: "division",
        **dict.fromkeys(OF_DATA, "data"),
    }.get(first["kind"], "overflow")
    if kind == "overflow" and is_of_gradients(first):
        kind = "gradients overflow"
    return Cause(kind, sentence, first)


def constants_beside(path: Sequence[Row]) -> Iterator[Cause]:
    """The constants that do not keep flushed numbers from zero."""
    yield from (Cause("constant", capital(f"{clause_of(row)} ({where_told(row)})"), row)
                for row in path[1:] if row["kind"] == CONSTANT)


def zero_constant(division: Row, report: Report) -> Row | None:
    """The constant that is zero where it divides, of front ends that tell no operands."""
    zeros = [c for c in report.get("constants", ()) if c["becomes"] == "zero" and c["value"] > 0]
    row = next((c for c in zeros if c["layer"] == division["layer"] or (
        c["direction"] == division["direction"] == "optimizer")), None)
    return None if row is None else {
        "kind": CONSTANT, "operation": repr(float(row["value"])), "format": row["format"],
        "detail": "zero", "layer": row["layer"], "direction": row["direction"], "step": 0,
        "line": row.get("line", ""), "count": row["times"], "results": row["times"], "causes": [],
        "weights": "",
    }
