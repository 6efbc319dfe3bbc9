"""Errors that remember where they grew, and what is told of it (corners, golden)."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

from ipu.run.causes.finding import find_causes
from ipu.run.growth import carried, growth_of
from ipu.run.shadow import Shadow


def numbers(*values):
    return np.array(values, np.float64)


def exponentials(size, *, operation="AddV2", between=1.0, born=0.0):
    """Of a distance: the sum of numbers `size` times as large as it, a product, and the exp."""
    line = ""
    shadow, right = Shadow(1, lambda: line), numbers(1.0)
    where, error = ("net", "forward"), 1e-4

    line = "a.py:1"
    wrong = 1 + size * error
    error = shadow.compared((*where, operation), numbers(wrong), numbers(wrong), right, error)
    line = "a.py:2"
    brought = 1 + between * error
    error = shadow.compared(
        (*where, "Mul"), numbers(brought + born), numbers(brought), right, error)
    line = "a.py:3"
    shadow.compared((*where, "Exp"), numbers(1.5), numbers(1.5), right, error)
    rows = {row["operation"]: row for row in shadow.summary()["operations"]}
    return rows["Exp"]["grown"], list(rows.values())


def test_the_sum_in_which_an_error_grew_is_told_behind_the_exponential():
    grown, rows = exponentials(5.0)
    assert grown == {
        "layer": "net", "direction": "forward", "operation": "AddV2", "line": "a.py:1",
        "amplification": pytest.approx(5.0), "error": pytest.approx(5e-4)}
    report = {"losses": [1.0, 0.9], "births": [], "harm": 0.5,
              "shadow": {"operations": rows, "motions": []}}
    (cause,) = find_causes(report)
    assert cause.sentence == (
        "The Exp of net loses the digits of its operands (forward, a.py:3): their error of 0.05% "
        "is 50% of its results, 1000 times as much, as with exponentials of large numbers; the "
        "error comes of the AddV2 of net (forward, a.py:1), whose operands, together 5 times as "
        "large as its results in the mean, cancel")


@pytest.mark.parametrize("about", [
    {"size": 1.9}, {"operation": "MatMul"}, {"between": 4.1}, {"between": 0.2}, {"born": 1e-3}])
def test_nothing_is_told_of_sums_that_the_error_is_not_of(about):
    """It did not grow there, is no sum of two, or most of it was born or shrank behind it."""
    assert exponentials(**{"size": 5.0, **about})[0] == {}


def test_the_sum_in_which_it_grew_most_is_kept():
    first = carried(1e-3, 1e-4, 3.0, ("net", "forward", "Sub"), lambda: "a.py:1")
    second = carried(2e-3, first, 2.5, ("net", "forward", "AddV2"), lambda: "a.py:2")
    assert growth_of(second).line == "a.py:1"
    third = carried(3e-3, second, 3.5, ("net", "forward", "AddV2"), lambda: "a.py:3")
    assert growth_of(third).line == "a.py:3"
    assert growth_of(pickle.loads(pickle.dumps(third))) == growth_of(third)


@pytest.mark.parametrize(("operation", "ends"), [
    ("aten.sub", ", as where nearly equal numbers are subtracted"),
    ("AddV2", ", as where nearly equal numbers are subtracted"),
    ("MatMul", ", as where nearly equal numbers are subtracted"),
    ("aten.native_layer_norm", ", as where nearly equal numbers are subtracted"),
    ("aten._log_softmax", ", as where nearly equal numbers are subtracted"),
    ("aten._softmax", ", as with exponentials of large numbers"),
    ("aten.exp_", ", as with exponentials of large numbers"),
    ("Pow", ", as with powers of large exponents"),
    ("aten.log", ", as with logarithms that are nearly zero"),
    ("Tan", ", as with periodic functions of large numbers"),
    ("RealDiv", ", as with divisions by small numbers that are wrong by much"),
    ("aten.erfinv", ", 100 times as much"),
])
def test_only_sums_are_said_to_subtract(operation, ends):
    row = {"layer": "net", "direction": "forward", "operation": operation, "line": "a.py:2",
           "error": 0.5, "amplification": 100.0, "born": 0.001, "calls": 1}
    (cause,) = find_causes({"losses": [1.0, 0.9], "births": [], "harm": 0.5,
                            "shadow": {"operations": [row], "motions": []}})
    assert cause.sentence.endswith(ends)
