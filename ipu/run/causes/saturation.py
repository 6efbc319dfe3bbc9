"""Numbers that leave their range and are computed on with, where losses are finite."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence

from ipu.run.births.kinds import CONSTANT, DATA_BEYOND, DIVISION, INFINITY, NAN, SATURATED, ZERO
from ipu.run.causes.cause import Cause
from ipu.run.causes.clauses import clause_of, share_of
from ipu.run.causes.paths import cause_of, clauses_of, constants_beside, path_to, zero_constant
from ipu.run.causes.rows import EXCURSIONS, Report, Row, is_of_gradients
from ipu.run.harm import HARM
from ipu.run.sentences import capital, where_told

__all__ = ["of_same_line", "saturated"]


def saturated(report: Report, births: Sequence[Row]) -> Iterator[Cause]:
    """Numbers beyond the largest one that the program computes on with."""
    is_training = bool(report.get("losses"))
    rows = [r for r in births if (r["kind"] in EXCURSIONS or r.get("alone", 0.0) > HARM)
            and not r["harmless"] and not (is_training and _ends_forward(r, births))]
    if not rows:
        return
    first = _worst_of_line(min(rows, key=lambda row: (row["step"], row["number"])),
                           [row for row in births if not row["harmless"]])
    clause = clause_of(first)
    if first["kind"] == CONSTANT:
        yield Cause("constant", capital(f"{clause} ({where_told(first)})"), first)
        return
    if first["kind"] == DATA_BEYOND:
        yield Cause("data", capital(clause), first)
        return
    n = f"{share_of(first)}"
    scales = report.get("loss_scale") or {}
    is_scaled = first["direction"] != "backward" or is_of_gradients(first)
    if is_scaled and scales and scales["best"] is not None and (
        scales["highest_safe"] < scales["present"]
    ):
        yield Cause(
            "scale", capital(f"{clause}: {n}, as the present scale of {scales['present']:g} takes "
                              f"{scales['limited_by']} beyond the largest number of its format"),
            {**first, "layer": scales["limited_by"]},
        )
        return
    if first["kind"] in (DIVISION, NAN):
        path = path_to(first, births)
        if first["kind"] == DIVISION and not any(row["kind"] == CONSTANT for row in path):
            path = [*filter(None, [zero_constant(first, report)]), *path]
        yield cause_of(path, capital(f"{clauses_of(path)}: {n}"))
        yield from constants_beside(path)
    elif first["kind"] == ZERO:
        begins = "Gradients underflow: " if first["direction"] == "backward" else ""
        kind = "gradients vanish" if begins else "underflow"
        yield Cause(kind, capital(f"{begins}{clause}: {n}"), first)
    elif not is_scaled:
        yield Cause("overflow", capital(
            f"{clause}: {n}, of values that no loss scale changes"), first)
    elif first["direction"] == "backward":
        yield Cause("gradients overflow", f"Gradients overflow, the loss scale is too high: "
                    f"{clause}, {n}", first)
    else:
        yield Cause("overflow", capital(f"{clause}: {n}"), first)


def _worst_of_line(first: Row, rows: Sequence[Row]) -> Row:
    """Of what leaves the range as the first birth does, in its step and line, what does most harm.

    A term of a sum may leave it in few elements and the sum in all. The harm is that of a run in
    which only this operation is low, where there was one; the elements decide between alike ones.
    """
    alike = of_same_line(first, rows)
    worst = max(float(row.get("alone", 0.0)) for row in alike)
    return max((row for row in alike if not row.get("alone", worst) < worst - HARM), key=lambda row:
               math.inf if row["kind"] == CONSTANT else row["count"])


def of_same_line(first: Row, rows: Iterable[Row]) -> list[Row]:
    """The first of births, and those in its step, layer and line that leave the range as it does.

    Outside of modules an operation is a layer. A constant beyond the range takes all elements of
    its operation with it.
    """
    def key(row: Row) -> tuple[object, ...]:
        is_beyond = row["kind"] == CONSTANT and row["detail"] == "overflow"
        kind = SATURATED if is_beyond or row["kind"] == INFINITY else row["kind"]
        outside = row["kind"] == CONSTANT or row["layer"] == row["operation"]
        layer = "" if outside else row["layer"]
        return kind, row["step"], row["direction"], row["line"], layer

    others = [row for row in rows if row["number"] != first["number"] and key(row) == key(first)]
    return [first, *others] if first["line"] else [first]


def _ends_forward(row: Row, births: Sequence[Row]) -> bool:
    """Whether a NaN of a pass forward ended there: in a selection, or in whole numbers.

    As log(0) of a distance does that a table holds for small ones. No loss and no gradient has it.
    """
    if row["direction"] != "forward" or row["kind"] not in (NAN, DIVISION):
        return False
    values = [row] if row["kind"] == NAN else [
        r for r in births if row["number"] in r["causes"] and r["kind"] in (NAN, INFINITY)]
    return bool(values) and not any(r["trained_with"] or r["weights"] for r in values)
