"""Numbers beyond their range: born once, carried on, and ended (law, golden)."""

from __future__ import annotations

import numpy as np
import pytest

from fpsim import BINARY16
from ipu.run.births.births import Births
from ipu.run.births.kinds import DIVISION, INFINITY, NAN, SATURATED
from tests.ipu.run.births.desk import NET, Desk


def test_a_saturated_number_is_born_once_and_carried_on():
    desk = Desk()
    x = desk.array(60000.0, 1.0, -60000.0)
    twice = desk.of("add", x, x)
    desk.of("add", twice, twice)
    assert desk.rows() == [(SATURATED, "add", 2)]
    assert desk.births.carried[SATURATED] == 2
    (birth,) = desk.births
    assert (birth.layer, birth.direction, birth.step, birth.is_harmless) == (*NET, False)
    assert birth.reader == ""  # what reads it is told of data alone


def test_a_nan_comes_from_the_division_that_made_it():
    desk = Desk(nanoo=True)
    y = desk.of("divide", desk.array(1.0), desk.array(0.0))
    desk.of("multiply", y, y)
    division, nan = desk.births
    assert (division.kind, nan.kind, nan.operation, nan.count) == (DIVISION, NAN, "divide", 1)
    assert nan.causes == (division,)
    assert desk.births.carried[NAN] == 1


@pytest.mark.parametrize(("operation", "detail"), [
    ("aten.sqrt", "of a negative number"),
    ("torch.optim.rmsprop", "in the sqrt of a negative number, as a difference of nearly equal "
                            "ones may be")])
def test_a_root_of_a_negative_number_does_not_follow_from_zeros(operation, detail):
    desk = Desk(nanoo=True)
    small = desk.of("multiply", desk.array(1e-4, 1.0), desk.array(1e-4, 1.0))  # 1e-8 is flushed
    difference = desk.of("subtract", small, desk.array(0.0, 1.001))
    desk.births.invalid = "sqrt"
    desk.of("sqrt", difference, name=operation)
    nan = next(b for b in desk.births if b.kind == NAN)
    assert (nan.detail, nan.causes) == (detail, ())


def test_a_negative_score_beyond_the_range_dies_in_a_softmax():
    desk = Desk()
    score = desk.of("add", desk.array(-60000.0, 1.0), desk.array(-60000.0, 1.0))
    desk.of("exp", score, name="aten._softmax")
    birth = next(iter(desk.births))
    assert birth.is_harmless
    assert dict(birth.deaths) == {"aten._softmax": 1}
    desk.of("multiply", score, desk.array(0.5, 0.5))
    assert not birth.is_harmless  # somebody computed on with it


def test_whether_a_backward_pass_computed_with_a_nan():
    desk = Desk()
    x = desk.of("divide", desk.array(0.0, 1.0), desk.array(0.0, 1.0))
    nan = next(b for b in desk.births if b.kind == NAN)
    y = desk.of("multiply", x, desk.array(2.0, 2.0))
    assert not nan.is_trained_with
    desk.of("multiply", y, desk.array(2.0, 2.0), where=("net", "backward", 0))
    assert nan.is_trained_with


def test_a_positive_one_does_not():
    desk = Desk()
    score = desk.of("add", desk.array(60000.0, 1.0), desk.array(60000.0, 1.0))
    desk.of("negative", score, name="aten._softmax")
    assert not next(iter(desk.births)).is_harmless


def test_the_line_of_an_overflow_is_the_one_with_most_in_the_step_of_the_first():
    """What is beyond the range later may follow from it."""
    desk = Desk()
    for step, line, values in ((3, "a.py:3", (6e4, 1)), (3, "a.py:4", (6e4, 6e4)),
                               (4, "a.py:5", (6e4,) * 9)):
        desk.births.line = lambda line=line: line
        x = desk.array(*values)
        desk.of("add", x, x, where=("net", "forward", step))
    (birth,) = desk.births
    assert (birth.step, birth.line, birth.count) == (3, "a.py:4", 12)


def test_products_of_the_shape_of_an_operand_are_not_element_by_element():
    desk = Desk()
    x = desk.array(*[1.0] * 16)
    x.carrier[3] = np.nan
    square = x.like(x.carrier.reshape(4, 4))
    desk.of("matmul", square, square)
    assert desk.rows() == []
    assert desk.births.carried[NAN] == 7


def test_an_operation_that_nobody_told_still_has_its_flags():
    births = Births()
    births.untold("divide", ("optimizer", "optimizer", 1), "DIVBYZERO", 4)
    births.untold("add", ("net", "forward", 2), "INVALID", 9)
    births.untold("add", ("net", "forward", 2), "INVALID", 9)
    assert [(b.kind, b.count) for b in births] == [(DIVISION, 4), (NAN, 9)]


@pytest.mark.parametrize("nanoo", [False, True])
def test_births_are_those_of_a_walk_over_the_trace(nanoo):
    """Recounted element by element from the recorded operands and results."""
    rng = np.random.default_rng(5)
    desk, trace = Desk(nanoo=nanoo), []
    arrays = [desk.array(*(rng.normal(size=6) * 10.0**k)) for k in (-4, 0, 4)]
    for _ in range(60):
        verb = rng.choice(["add", "subtract", "multiply", "divide", "sqrt", "exp"])
        n = 1 if verb in ("sqrt", "exp") else 2
        operands = [arrays[i] for i in rng.integers(0, len(arrays), n)]
        result = desk.of(str(verb), *operands)
        trace.append((operands, result))
        arrays.append(result)
    walked = {NAN: 0, INFINITY: 0, SATURATED: 0}
    largest = float(BINARY16.max)
    for operands, result in trace:
        for i, value in enumerate(result.carrier.tolist()):
            before = [x.carrier.tolist()[i] for x in operands]
            if value != value:
                walked[NAN] += not any(v != v for v in before)
            elif abs(value) == float("inf"):
                walked[INFINITY] += not any(v != v or abs(v) == float("inf") for v in before)
            elif abs(value) == largest:
                walked[SATURATED] += not any(v != v or abs(v) == largest for v in before)
    counted = dict.fromkeys(walked, 0)
    for birth in desk.births:
        if birth.kind in counted and birth.detail != "inside":
            counted[birth.kind] += birth.count
    assert counted == walked
    assert sum(walked.values()) > 10
