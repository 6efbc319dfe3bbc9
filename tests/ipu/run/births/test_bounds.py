"""Constants that are 1 in their format, and the divisions that they lead to (law)."""

from __future__ import annotations

import numpy as np

from fpsim import BINARY16
from ipu.run.births.kinds import CONSTANT, DIVISION, ONE
from tests.ipu.run.births.desk import NET, Desk


def bound(desk, value):
    """A constant that is 1 in binary16, whose line is known."""
    constant = desk.array(1.0)
    birth = desk.births.constant(NET, BINARY16, value, ONE, "a.py:1")
    desk.births.note(constant, {ONE: birth})
    return constant


def bounded(desk, *values):
    """Numbers that 0.9999999 bounds."""
    result, one = desk.array(*values), bound(desk, 0.9999999)
    desk.births.see("aten.clamp", NET, result, (desk.array(*values), one), {})
    return result


def test_a_bound_that_is_1_is_the_root_of_a_division_by_what_it_leaves():
    """As log(1 - p) of a p that 0.9999999 bounds, through a move."""
    desk = Desk()
    p = bounded(desk, 1.0, 0.25)
    moved = desk.array(1.0, 0.25)
    desk.births.moved("Reshape", moved, [p])
    rest = desk.of("subtract", desk.array(1.0, 1.0), moved)
    assert desk.rows() == []  # it is no birth before it leads to one
    shown = desk.array(0.0, 0.75)
    desk.births.moved("Select", shown, [rest])
    for _ in range(2):
        desk.of("log", shown)
    constant, division = (birth for birth in desk.births if birth.kind in (CONSTANT, DIVISION))
    assert division.causes == (constant,)
    assert (constant.operation, constant.detail, constant.bounds, constant.line, constant.number) \
        == ("0.9999999", "one", "aten.clamp", "a.py:1", 0)


def test_a_number_that_is_1_is_no_root_of_zeros_that_are_others():
    desk = Desk()
    p = bounded(desk, 0.5, 0.25)  # none of them by it
    desk.of("log", desk.of("subtract", desk.array(0.5, 1.0), p))
    q = bounded(desk, 1.0, 0.5)
    desk.of("log", desk.of("subtract", desk.array(0.5, 0.5), q))
    desk.of("divide", q, desk.array(0.0, 1.0))
    assert CONSTANT not in {birth.kind for birth in desk.births}
    assert not any(birth.causes for birth in desk.births if birth.kind == DIVISION)


def test_a_function_without_a_value_at_1_tells_the_bound():
    desk = Desk()
    p = desk.of("negative", bounded(desk, 1.0, 0.25), name="aten.neg")
    desk.births.see("aten.log1p", NET, desk.array(np.inf, -0.28), (p,), {"DIVBYZERO": 1})
    assert [birth.kind for birth in desk.births][:2] == [CONSTANT, DIVISION]


def test_a_term_that_is_1_leaves_nothing_where_it_is_subtracted():
    desk = Desk()
    rest = desk.of("subtract", desk.array(1.0, 2.0), bound(desk, 1.0000001))
    desk.of("log", rest)
    constant, division = list(desk.births)[:2]
    assert (constant.bounds, division.causes) == ("", (constant,))


def test_a_number_that_enters_as_1_is_a_bound_too():
    desk = Desk()
    number = desk.array(0.9999999)
    desk.births.entered(np.float32(0.9999999), number)
    desk.of("log", desk.of("subtract", desk.array(1.0), number))
    assert next(iter(desk.births)).operation == "0.9999999"
