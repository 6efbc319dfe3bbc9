"""Zeros: which are flushed, which are differences, and where they come from (law)."""

from __future__ import annotations

from collections import Counter

import pytest

from fpsim import BINARY16, BINARY32
from ipu.machine import Device
from ipu.run.account import counted_name
from ipu.run.births.kinds import CONSTANT, DIVISION, OF_OPERANDS, ZERO
from ipu.run.recorder import Recorder
from tests.ipu.run.births.desk import NET, Desk


def test_the_zero_that_is_divided_by_is_a_constant_or_was_flushed():
    desk = Desk()
    small = desk.array(1e-4)
    square = desk.of("multiply", small, small)  # 1e-8
    again = desk.of("multiply", square, square)
    constant = desk.array(0.0)
    desk.births.note(constant, {ZERO: desk.births.constant(NET, BINARY16, 1e-8, "zero")})
    total = desk.of("add", again, constant)
    desk.of("divide", desk.array(1.0), total)
    division = next(b for b in desk.births if b.kind == DIVISION)
    assert [cause.kind for cause in division.causes] == [CONSTANT]
    assert desk.births.rows()[division.number]["causes"] == [division.causes[0].number]
    (beside,) = division.causes[0].causes  # which the constant does not keep from zero
    assert (beside.kind, beside.operation) == (ZERO, "multiply")


def test_a_difference_of_equal_numbers_that_is_divided_by_is_told():
    """As 1 - p of a p that is rounded to 1: the zero is exact, so it is no birth itself."""
    desk = Desk()
    one, p = desk.array(1.0, 1.0), desk.array(1.0, 0.25)
    rest = desk.of("subtract", one, p)
    desk.of("add", rest, desk.array(0.0, 0.0))  # a zero of zeros is none of its own
    assert desk.rows() == []
    desk.of("divide", one, desk.of("multiply", rest, rest))
    division = next(iter(desk.births))
    detail = "what the subtract of equal numbers gives"
    assert (division.kind, division.detail) == (DIVISION, detail)
    desk.of("divide", p, desk.of("subtract", desk.array(0.0), desk.array(0.0)), name="apart")
    assert {b.detail for b in desk.births if b.operation == "apart"} == {""}


def test_zeros_of_a_chain_of_products_come_from_the_first_one():
    """A later one that flushes others as well only follows."""
    desk = Desk()
    small = desk.array(1e-4, 1e-3, 1.0)
    square = desk.of("multiply", small, small, name="prod")  # 1e-8 is flushed
    fourth = desk.of("multiply", square, square, name="mul")  # and 1e-12 is
    desk.of("divide", desk.array(1.0, 1.0, 1.0), fourth)
    product, later, division, _ = desk.births
    assert (product.operation, later.operation) == ("prod", "mul")
    assert later.causes == division.causes == (product,)


def test_a_few_zeros_that_an_operand_brings_are_not_where_most_come_from():
    """As a gradient with one zero, whose square is nearly all zeros."""
    desk = Desk()
    first = desk.of("multiply", desk.array(*[1e-4] * 15, 1e-7), desk.array(*[1.0] * 15, 1e-4))
    squares = desk.of("multiply", first, first, name="square")
    desk.of("divide", desk.array(*[1.0] * 16), squares)
    division = next(birth for birth in desk.births if birth.kind == DIVISION)
    assert [birth.operation for birth in division.causes] == ["square"]


def test_zeros_that_are_all_flushed_anew_come_from_there():
    desk = Desk()
    square = desk.of("multiply", desk.array(1e-4, 1e-3), desk.array(1e-4, 1e-3), name="prod")
    sums = desk.of("add", square, desk.array(1e-3, 1e-7))
    later = desk.of("multiply", sums, desk.array(1e-6, 1e-3), name="mul")
    desk.of("divide", desk.array(1.0, 1.0), later)
    births = list(desk.births)
    assert [b.operation for b in births if b.kind == ZERO] == ["prod", "mul"]
    division = next(b for b in births if b.kind == DIVISION)
    assert [b.operation for b in division.causes] == ["mul"]
    assert division.causes[0].causes == ()


def test_a_zero_of_an_operand_is_none_of_a_difference():
    """A p that underflows makes no zero of 1 - p; one that is 1 does."""
    desk = Desk()
    square = desk.of("multiply", desk.array(1e-4, 1.0), desk.array(1e-4, 1.0))
    rest = desk.of("subtract", desk.array(1.0, 1.0), square)
    assert ZERO in desk.births.of(square)
    assert ZERO not in desk.births.of(rest)
    assert ZERO in desk.births.of(desk.of("add", square, square))


@pytest.mark.parametrize(("number", "factor", "born"), [
    (1e-9, 1.0, ("binary16", OF_OPERANDS)),  # the cast makes it zero
    (1e-6, 2e-38, ("binary32", "")),         # and here a subnormal number, whose product underflows
    (2e-5, 0.0, None),                       # exact
])
def test_zeros_are_born_in_the_format_that_flushes_them(number, factor, born):
    """As of a product in a wide format whose operands are cast to a narrow one."""
    device = Device(count=True)
    device.counts.raised = Counter()
    recorder = Recorder(device.counts)
    x = device.from_host([number], BINARY32)
    with device.naming(counted_name("net", "backward")):
        narrow = device.cast(x, BINARY16)
        product = device.multiply(device.cast(narrow, BINARY32), factor)
        recorder.operation(0, device.tensor, "mm", product, (x,))
    births = [(birth.format, birth.detail) for birth in recorder.births if birth.kind == ZERO]
    assert births == ([born] if born else [])
    assert product.values == 0
