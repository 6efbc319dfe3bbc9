"""What a program can write in place of the operations that a cause names.

The same values by another expression, in which no number leaves the format or loses its digits. No
such program was run: it is told as not tried, beside the ways that were.
"""

from __future__ import annotations

from collections.abc import Iterator

from ipu.run.births.kinds import DIVISION, INFINITY, SATURATED, ZERO
from ipu.run.births.verbs import base_of
from ipu.run.causes.cause import Cause
from ipu.run.causes.rows import Report, Row, is_pass, shadow_rows

__all__ = ["rewriting"]

#: A function of which log is taken, and the one that computes both.
_LOGS = {"softmax": "log_softmax", "sigmoid": "the logarithm of sigmoid (log_sigmoid, logsigmoid)"}
#: Functions, and what keeps their results in range.
_LARGE = {
    "exp": "subtract the largest operand before the exp and multiply or add it back behind, as "
           "softmax and logsumexp do",
    "pow": "divide by a power of two before the square, and undo it behind the root or the mean",
    "sum": "divide the terms before they are summed, in place of the sum",
}
_LARGE["square"] = _LARGE["pow"]
#: Operations of a variance that is a difference of means.
_SQUARES, _MEANS = ("pow", "square", "mul"), ("mean", "sum")


def rewriting(cause: Cause, report: Report) -> str:
    """What the program can write instead; "" where no such expression is known.

    >>> row = {"kind": INFINITY, "operation": "aten.exp", "direction": "forward", "line": "a.py:3"}
    >>> rewriting(Cause("overflow", "", row), {})[:35]
    'subtract the largest operand before'
    """
    if not is_pass(str(cause.row.get("direction", ""))):
        return ""
    rules = (_of_log, _of_range, _of_variance)
    return next((text for rule in rules for text in rule(cause, report)), "")


def _verb(row: Row) -> str:
    """Its operation, whatever front end names it.

    >>> _verb({"operation": "aten._softmax"}), _verb({"operation": "Softmax"})
    ('softmax', 'softmax')
    """
    return base_of(str(row["operation"])).lstrip("_")


def _of_log(cause: Cause, report: Report) -> Iterator[str]:
    """A probability that becomes zero, and whose logarithm is taken."""
    row, name = cause.row, _verb(cause.row)
    has_log = any(
        later["kind"] == DIVISION and _verb(later) == "log" and row.get("number") in later["causes"]
        for later in report.get("births", ()))
    if row.get("kind") == ZERO and name in _LOGS and has_log:
        yield (f"{_LOGS[name]} in place of the log of {name}: no probability becomes zero on the "
               "way")


def _of_range(cause: Cause, report: Report) -> Iterator[str]:
    """Results that are beyond the format's largest number."""
    name = _verb(cause.row)
    if cause.row.get("kind") in (INFINITY, SATURATED) and name in _LARGE:
        yield _LARGE[name]


def _of_variance(cause: Cause, report: Report) -> Iterator[str]:
    """A difference of means of the squares and the square."""
    if cause.kind != "cancellation" or not _verb(cause.row).startswith("sub"):
        return
    around = {
        _verb(row) for row in shadow_rows(report)
        if row["line"] == cause.row["line"] or row["layer"] == cause.row["layer"]}
    if around & set(_SQUARES) and around & set(_MEANS):
        yield "where it is a variance, the mean of (x - mean)**2 in place of a difference of means"
