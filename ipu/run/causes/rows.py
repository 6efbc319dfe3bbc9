"""Rows of a report's births: which there are, their kinds, and their directions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ipu.run.births.kinds import (
    DATA_BEYOND,
    DATA_DIGITS,
    DATA_ZERO,
    DIVISION,
    INFINITY,
    NAN,
    SATURATED,
)

__all__ = [
    "BESIDE_TRAINING", "EXCURSIONS", "OF_DATA", "Report", "Row", "births_of", "is_of_gradients",
    "is_pass", "shadow_rows", "shadow_rows_of",
]

Report = Mapping[str, Any]
Row = Mapping[str, Any]

#: Directions of a pass forward.
_FORWARD = ("forward", "evaluation", "recompute", "other")
#: Those of which no gradient is computed.
BESIDE_TRAINING = ("evaluation", "other")
#: Kinds of numbers that have left their range, or come of it.
EXCURSIONS = (NAN, INFINITY, SATURATED, DIVISION, DATA_BEYOND)
#: Kinds of what numbers from outside lose on their way in.
OF_DATA = (DATA_BEYOND, DATA_ZERO, DATA_DIGITS)
#: Functions that no backward pass applies to a gradient, in which it is linear: their operands are
#: values of the pass forward, which no loss scale changes.
_NONLINEAR = frozenset(("exp", "expm1", "inv", "log", "log1p", "pow", "reciprocal", "rsqrt", "sqrt",
                        "square"))


def shadow_rows(report: Report) -> Sequence[Row]:
    """The operations that the shadow was computed of; () without one."""
    rows: Sequence[Row] = report.get("shadow", {}).get("operations", ())
    return rows


def shadow_rows_of(row: Row, report: Report) -> list[Row]:
    """Those of a birth's operation."""
    place = row.get("layer"), row.get("direction"), row.get("operation")
    return [one for one in shadow_rows(report)
            if (one["layer"], one["direction"], one["operation"]) == place]


def is_of_gradients(row: Row) -> bool:
    """Whether the results of a birth in a backward pass grow with the loss scale."""
    name = str(row["operation"]).removeprefix("aten.").lstrip("_").lower()
    return row["direction"] == "backward" and name not in _NONLINEAR


def is_pass(direction: str) -> bool:
    """Whether operations of this direction belong to a pass forward."""
    return direction in _FORWARD


def births_of(report: Report) -> list[Row]:
    """Those of the report; of a front end that tells no operations, its first flags."""
    births = list(report.get("births", ()))
    if births:
        return births
    kinds = {"OVERFLOW": SATURATED, "DIVBYZERO": DIVISION, "INVALID": NAN}
    return [
        {"number": i, "kind": kinds[row["flag"]], "step": row["step"], "layer": row["layer"],
         "direction": row["direction"], "operation": row["operation"], "format": "",
         "line": row.get("line", ""), "detail": "", "count": row["times"], "results": 0,
         "causes": [], "deaths": {}, "harmless": False, "weights": "", "repeated": 0,
         "trained_with": True}
        for i, row in enumerate(report.get("first", ()))
    ]
