"""A loss that is not finite is traced back to the first excursion."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from ipu.run.births.kinds import CONSTANT, DIVISION, INFINITY, NAN, SATURATED
from ipu.run.causes.cause import Cause
from ipu.run.causes.clauses import module_name
from ipu.run.causes.paths import cause_of, clauses_of, constants_beside, path_to, zero_constant
from ipu.run.causes.rows import EXCURSIONS, Report, Row

__all__ = ["causes_of_symptom"]


def causes_of_symptom(report: Report, births: Sequence[Row]) -> list[Cause]:
    """The way back from the first loss that is not finite, with what stands beside it."""
    losses = report.get("losses", ())
    bad = next((i for i, loss in enumerate(losses) if not math.isfinite(loss)), None)
    if bad is None:
        return []
    bad = report.get("symptom", {}).get("step", bad)
    named = report.get("symptom", {}).get("births", {})
    ends = [births[named[kind]] for kind in (NAN, INFINITY, SATURATED) if kind in named]
    if not ends:
        ends = [row for row in births if row["kind"] in EXCURSIONS]
        ends.sort(key=lambda row: (row["step"], row["number"]))
    value = "NaN" if math.isnan(_at(losses, bad)) else "infinite"
    begin = f"The loss is {value} from step {bad} on"
    if not ends:
        return [Cause("outside", f"{begin}, and no operation made it: the data or the first "
                      "weights hold a number that is not finite, or beyond its format's largest",
                      {})]
    return _chain(begin, ends[0], report, births)


def _at(losses: Sequence[float], step: int) -> float:
    bad = [loss for loss in losses if not math.isfinite(loss)]
    return bad[0] if bad else losses[min(step, len(losses) - 1)]


def _chain(begin: str, end: Row, report: Report, births: Sequence[Row]) -> list[Cause]:
    """The sentence from a birth back to the first excursion, and forward again."""
    path = path_to(end, births)
    division = next((row for row in births if row["kind"] == DIVISION and (
        _place(row) == _place(path[-1]) or (len(path) == 1 and row is end))), None)
    if division is not None and division not in path:
        path.insert(len(path) - 1, division)
    if division is not None and not any(row["kind"] == CONSTANT for row in path):
        constant = zero_constant(division, report)
        path = path if constant is None else [constant, *path]
    is_told = division is not None and path[-2:-1] == [division]  # the NaN is its quotient
    rows = [row for row in path[:-1] if row["kind"] != NAN or row["detail"]]
    if path[-1]["kind"] != NAN or not is_told:
        rows.append(path[-1])
    text, weights = clauses_of(rows), path[-1]["weights"]
    if weights:
        text += f", and the weights of {module_name(weights)} become {_VALUES[path[-1]['kind']]}"
    return [cause_of(path, f"{begin}: {text}"), *constants_beside(path)]


_VALUES = {NAN: "NaN", INFINITY: "infinite", SATURATED: "the largest number", DIVISION: "infinite"}


def _place(row: Row) -> tuple[Any, ...]:
    return row["layer"], row["direction"], row["operation"], row["step"]
