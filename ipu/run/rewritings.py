"""What a program can write in place of the operations that a cause names.

The same values by another expression, in which no number leaves the format or loses its digits. No
such program was run: it is told as not tried, beside the ways that were.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ipu.run.births.kinds import DIVISION, INFINITY, SATURATED, ZERO
from ipu.run.causes.cause import Cause
from ipu.run.causes.rows import Report, is_pass

__all__ = ["rewriting"]

#: A function of which log is taken, and the one that computes both.
_LOGS = {"softmax": "log_softmax", "sigmoid": "the logarithm of sigmoid (log_sigmoid, logsigmoid)"}
#: Functions, by the beginning of a front end's name, and what keeps their results in range.
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


def _base(operation: object) -> str:
    """The name of an operation without its front end's prefix and marks.

    >>> _base("aten._softmax"), _base("Softmax"), _base("aten.pow_")
    ('softmax', 'softmax', 'pow')
    """
    return re.sub(r"^aten\.|_", "", str(operation)).lower()


def _of_log(cause: Cause, report: Report) -> Iterator[str]:
    """A probability that becomes zero, and whose logarithm is taken."""
    row = cause.row
    both = next((both for name, both in _LOGS.items() if _base(row["operation"]) == name), "")
    logs = [
        later for later in report.get("births", ())
        if later["kind"] == DIVISION and _base(later["operation"]) == "log"
        and row.get("number") in later["causes"]]
    if both and row["kind"] == ZERO and logs:
        name = _base(row["operation"])
        yield f"{both} in place of the log of {name}: no probability becomes zero on the way"


def _of_range(cause: Cause, report: Report) -> Iterator[str]:
    """Results that are beyond the format's largest number."""
    if cause.row.get("kind") in (INFINITY, SATURATED):
        name = _base(cause.row["operation"])
        yield from (text for begin, text in _LARGE.items() if name == begin)


def _of_variance(cause: Cause, report: Report) -> Iterator[str]:
    """A difference of means of the squares and the square."""
    if cause.kind != "cancellation" or not _base(cause.row["operation"]).startswith("sub"):
        return
    around = {
        _base(row["operation"]) for row in report.get("shadow", {}).get("operations", ())
        if row["line"] == cause.row["line"] or row["layer"] == cause.row["layer"]}
    if around & set(_SQUARES) and around & set(_MEANS):
        yield "where it is a variance, the mean of (x - mean)**2 in place of a difference of means"
