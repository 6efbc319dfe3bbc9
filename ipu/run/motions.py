"""What the ways of tensors beside their shadows tell: what stands still, and what that costs.

Of a training by gradients the loss falls, to first order, by the product of its gradient and the
way of the parameters. So of the progress that binary32 makes in some steps the part that is lost is
that of the parameters' way, in squares: a large matrix whose small updates are all swallowed may
hold next to nothing of it. The losses of the same few steps may show none of that yet, where the
batches differ by more.

Evidence    ASSUMED: the bounds.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from statistics import median
from typing import Any

__all__ = [
    "STILL", "WAY_LOST", "arrival", "astray", "factors_of_one", "is_parameter", "least_arrival",
    "motion_key", "way_lost", "ways_lost",
]

Report = Mapping[str, Any]
Row = Mapping[str, Any]

#: Share of its way in binary64 that a tensor moves at least which does not stand still.
STILL = 0.4
#: The share of the parameters' way that is lost at most where losses that show no harm decide.
WAY_LOST = 0.3
#: Of that way the share that sums in binary32 hold too, else no format of a layer is its cause.
_IN_WIDE = 0.5
#: The distance between both ways, beside binary64's, of a tensor that goes astray, and at most of
#: one that is mended.
_ASTRAY, _MENDED = 0.5, 0.2


def is_parameter(row: Row) -> bool:
    """Whether an optimiser's step moves a tensor; of an older report, whether it has a name."""
    return bool(row.get("is_parameter", row["name"]))


def _motions(report: Report) -> list[Row]:
    return list(report.get("shadow", {}).get("motions", ()))


def _shares(report: Report) -> list[float]:
    return [float(row["arrived"]) for row in _motions(report) if is_parameter(row)]


def arrival(report: Report) -> float:
    """The median share of their way in binary64 that parameters move; NaN without a shadow."""
    shares = _shares(report)
    return median(shares) if shares else math.nan


def least_arrival(report: Report) -> float:
    """The smallest of those shares; NaN without a shadow."""
    return min(_shares(report), default=math.nan)


def way_lost(report: Report) -> float:
    """The share of the parameters' way in binary64, in squares, that is lost; NaN without a shadow.

    Of a parameter that goes too far nothing is lost.

    >>> rows = [{"name": "w", "arrived": 0.0, "length": 1.0},
    ...         {"name": "b", "arrived": 1.0, "length": 7.0}]
    >>> way_lost({"shadow": {"motions": rows}})
    0.02
    """
    rows = _parameters(report)
    squares = sum(map(_square, rows))
    return sum(map(_lost, rows)) / squares if squares else math.nan


def ways_lost(report: Report) -> dict[str, float]:
    """The same share, of what is lost of the way of each parameter, by its name; {} without any."""
    rows = _parameters(report)
    squares = sum(map(_square, rows))
    return {row["name"]: _lost(row) / squares for row in rows} if squares else {}


def _parameters(report: Report) -> list[Row]:
    return [row for row in _motions(report) if is_parameter(row)]


def _square(row: Row) -> float:
    """Of the way in binary64."""
    return float(row.get("length", 1.0)) ** 2


def _lost(row: Row) -> float:
    return _square(row) * (1 - min(float(row["arrived"]), 1.0))


def astray(report: Report, *, is_mended: bool = False) -> list[Row]:
    """Tensors of the program that do not go where their shadows go, by steps that binary32 holds.

    They are no parameters and no states of an optimiser: what those do shows in the parameters.
    Nor are they computed anew in each step, as a rate by its schedule, whose error does not add up.
    Stochastic rounding arrives in the mean of many steps, but for a factor that is 1 itself.

    is_mended    by the bound of those that went astray in another run.
    """
    factors, bound = factors_of_one(report), _MENDED if is_mended else _ASTRAY
    is_random = bool(report.get("stochastic_rounding"))
    return [
        row for row in _motions(report)
        if not (is_parameter(row) or row["is_state"]) and row.get("is_sum", True)
        and row.get("in_wide", 1.0) > _IN_WIDE
        and (row["arrived"] < STILL or (row["error"] > bound and not is_random))
        and (row["line"] in factors or not is_random)
    ]


def factors_of_one(report: Report) -> dict[str, Row]:
    """Factors of averages that are 1 in their format, by the line that multiplies by them."""
    return {
        row["line"]: row for row in report.get("constants", ())
        if row["becomes"] == "one" and row["direction"] == "optimizer" and row.get("line")
    }


def motion_key(row: Row) -> tuple[Any, ...]:
    """By which a tensor that moves is known in another run."""
    return row["name"], row["operation"], row["line"], tuple(row["shape"])
