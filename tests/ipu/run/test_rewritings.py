"""What a program can write in place of the operations of a cause (golden, corners)."""

from __future__ import annotations

import pytest

from ipu.run.births.kinds import DIVISION, INFINITY, SATURATED, ZERO
from ipu.run.causes.cause import Cause
from ipu.run.rewritings import rewriting


def row(kind, operation, **about):
    return {"kind": kind, "operation": operation, "direction": "forward", "line": "a.py:3",
            "layer": "net", "number": 0, "causes": [], **about}


def told(kind, first, *later, **report):
    return rewriting(Cause(kind, "", first), {"births": [first, *later], **report})


@pytest.mark.parametrize(("softmax", "log"), [("aten._softmax", "aten.log"), ("Softmax", "Log")])
def test_a_log_of_a_probability_that_became_zero(softmax, log):
    first = row(ZERO, softmax)
    assert told("division", first, row(DIVISION, log, causes=[0])).startswith("log_softmax")
    assert told("division", first, row(DIVISION, "aten.div", causes=[0])) == ""
    assert told("division", first, row(DIVISION, log, causes=[7])) == ""


@pytest.mark.parametrize(("operation", "kind", "begin"), [
    ("aten.exp", INFINITY, "subtract the largest operand"), ("Exp", SATURATED, "subtract the"),
    ("aten.pow", SATURATED, "divide by a power of two"), ("Square", SATURATED, "divide by a power"),
    ("aten.sum", SATURATED, "divide the terms"), ("aten.mm", SATURATED, ""), ("aten.exp", ZERO, ""),
])
def test_results_that_leave_the_range(operation, kind, begin):
    text = told("overflow", row(kind, operation))
    assert text.startswith(begin)
    assert bool(text) == bool(begin)
    assert told("gradients overflow", row(kind, operation, direction="backward")) == ""


def test_a_variance_that_is_a_difference_of_means():
    difference = row("", "aten.sub")
    around = [row("", "aten.pow"), row("", "aten.mean")]
    assert told("cancellation", difference, shadow={"operations": around}).startswith(
        "where it is a variance")
    assert told("cancellation", difference, shadow={"operations": around[:1]}) == ""
    assert told("cancellation", row("", "aten.mm"), shadow={"operations": around}) == ""
    assert told("sums", difference, shadow={"operations": around}) == ""


def test_a_cause_that_is_no_single_operation():
    assert rewriting(Cause("outside", "", {}), {}) == ""
