"""Births: where numbers leave their format, what carries them on, where they die (law, golden)."""

from __future__ import annotations

import numpy as np
import pytest

from fpsim import BINARY16, Context
from ipu.machine import Device, FpCtl
from ipu.run.births import (
    ABSORBED,
    CONSTANT,
    DATA_BEYOND,
    DATA_DIGITS,
    DATA_ZERO,
    DIVISION,
    INFINITY,
    INTEGERS,
    NAN,
    ONE,
    SATURATED,
    ZERO,
    Births,
)

NET = "net", "forward", 3


class Desk:
    """Operations on a device whose results are told with their flags."""

    def __init__(self, **control):
        self.device = Device(control=FpCtl(**control), count=True)
        self.births = Births()

    def array(self, *values):
        return self.device.from_host(np.array(values, np.float32), BINARY16)

    def of(self, verb, *operands, name=None, where=NET):
        before = self.flags()
        result = getattr(self.device, verb)(*operands)
        flags = {k: n - before.get(k, 0) for k, n in self.flags().items() if n > before.get(k, 0)}
        arrays = [x for x in operands if hasattr(x, "carrier")]
        self.births.see(name or verb, where, result, arrays, flags)
        return result

    def flags(self):
        names = ("OVERFLOW", "UNDERFLOW", "INVALID", "DIVBYZERO")
        return {name: self.device.counts.total(name) for name in names}

    def rows(self):
        return [(b.kind, b.operation, b.count) for b in self.births]


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


def test_a_zero_of_an_operand_is_none_of_a_difference():
    """A p that underflows makes no zero of 1 - p; one that is 1 does."""
    desk = Desk()
    square = desk.of("multiply", desk.array(1e-4, 1.0), desk.array(1e-4, 1.0))
    rest = desk.of("subtract", desk.array(1.0, 1.0), square)
    assert ZERO in desk.births.of(square)
    assert ZERO not in desk.births.of(rest)
    assert ZERO in desk.births.of(desk.of("add", square, square))


def test_terms_that_are_absorbed_are_counted_but_for_masks():
    desk = Desk()
    desk.of("add", desk.array(2048.0, 2048.0, 1.0), desk.array(1.0, 0.0, 1.0))
    assert desk.rows() == [(ABSORBED, "add", 1)]
    assert next(iter(desk.births)).results == 2  # a zero is no term
    masks = Desk()
    score = masks.of("add", masks.array(1.0, 1.0), masks.array(-10000.0, 0.0))
    masks.of("exp", score, name="softmax")
    assert next(iter(masks.births)).is_harmless


def test_one_number_is_absorbed_where_it_is_added_to_its_last_sum():
    guard, count = Desk(), Desk()
    for norm in (300.0, 301.0, 302.0):  # what keeps a divisor from zero
        guard.of("add", guard.array(norm), guard.array(0.01))
    for norms in ((300.0, 8.0, 9.0, 16.0), (300.0, 9.0, 16.0, 8.0)):  # one is alike by chance
        guard.of("add", guard.array(*norms), guard.array(0.001))
    assert guard.rows() == []
    total = count.array(2047.0)
    for _ in range(4):
        total = count.of("add", total, count.array(1.0))
    assert count.rows() == [(ABSORBED, "add", 3)]
    assert next(iter(count.births)).repeated == 3


def test_what_is_computed_twice_is_no_sum_of_its_last_sum():
    """A checkpoint's forward runs again, and a model is traced before its first step."""
    desk = Desk()
    for norms in ((3.0, 5.0), (4.0, 6.0), (7.0, 3.0)):
        for _ in range(2):
            desk.of("add", desk.array(*norms), desk.array(1e-5))
            desk.of("subtract", desk.array(*norms), desk.array(1e-5, 1e-5))
    assert {birth.repeated for birth in desk.births} == {0}


def test_terms_are_lost_beside_a_number_of_the_program():
    """As 1 - p of small p, where the number itself is no array; x + eps loses no term."""
    desk = Desk()
    births, terms = desk.births, desk.array(1e-4, 2e-4, 0.25, 0.0)
    births.see("aten.rsub", NET, desk.array(1.0, 1.0, 0.75, 1.0), (terms,), {})
    births.see("aten.add", NET, terms, (terms,), {})
    (birth,) = births
    assert (birth.kind, birth.count, birth.results, birth.repeated) == (ABSORBED, 2, 3, 0)


def test_terms_are_lost_again_where_they_are_added_to_the_last_sum():
    """A cube beside its x is lost once; what is added to a sum of sums, each time."""
    once, again = Desk(), Desk()
    for x in (1.0, 1.5, 1.25):
        once.of("add", once.array(x, x, 0.01), once.array(1e-4, 1e-4, 0.01))
    (birth,) = once.births
    assert (birth.count, birth.repeated) == (6, 0)
    total = again.array(2048.0, 4096.0, 1.0)
    for _ in range(3):
        total = again.of("add", total, again.array(1.0, 1.0, 1.0))
    (birth,) = again.births
    assert (birth.count, birth.repeated) == (6, 4)


def test_a_sum_of_its_own_results_is_running():
    """What it lost is among what its operands bring; so where they decay in between."""
    once, again = Desk(), Desk()
    once.of("add", once.array(2048.0, 1.0), once.array(0.5, 1.0))
    once.of("add", once.array(4096.0, 1.0), once.array(0.25, 1.0))
    total = again.array(2048.0, 1.0)
    for _ in range(3):
        total = again.of("add", total, again.array(0.5, 0.5))
        total = again.of("multiply", total, again.array(0.75, 0.75))
    rows = [next(iter(desk.births)).as_row() for desk in (once, again)]
    assert [row["running"] for row in rows] == [False, True]
    assert rows[0]["lost"] == pytest.approx(0.5 / 2048, rel=1e-5)


def test_the_line_of_lost_terms_is_the_one_that_loses_most():
    """Several lines of one layer add: the first loses one term, another one all, again and again.

    A line that loses as many, each beside another number, loses them once.
    """
    desk, ones = Desk(), np.ones(8)
    total = desk.array(*2048 * ones)
    for _ in range(3):
        desk.births.line = lambda: "a.py:3"
        desk.of("add", desk.array(2048, *ones[1:]), desk.array(*ones))
        desk.births.line = lambda: "a.py:4"
        total = desk.of("add", total, desk.array(*ones))
    (birth,) = desk.births
    assert (birth.line, birth.count) == ("a.py:4", 3 + 24)
    desk.births.line = lambda: "a.py:5"
    for size in (2050.0, 2052.0, 2054.0):
        desk.of("add", desk.array(*size * ones), desk.array(*ones / 2))
    assert birth.as_row()["line"] == "a.py:4"


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


def enter(births, values):
    """Numbers of the host, in binary16."""
    array = Context(BINARY16).array(np.clip(values, -65504, 65504))
    births.entered(np.asarray(values, np.float64), array)
    return array


def test_whole_numbers_beyond_the_significand_are_rounded():
    births = Births()
    enter(births, np.arange(2040.0, 2060.0))
    (birth,) = births
    assert (birth.kind, birth.count, birth.detail) == (INTEGERS, 6, "2059")
    enter(births, np.array([2049.5, 1.0]))  # no whole number
    enter(births, np.arange(2048.0))
    assert birth.count == 6


def test_data_that_their_format_does_not_hold_are_born_on_entry():
    births = Births()
    x = enter(births, np.array([[1.0, 2e5], [2.0, 3e5]]))
    (birth,) = births
    assert (birth.kind, birth.count, birth.results) == (DATA_BEYOND, 2, 4)
    assert birth.detail == "up to 3e+05"
    assert births.of(x) == {SATURATED: birth}
    assert birth.is_harmless  # nobody has computed with them
    births.see("mul", ("net", "forward", 0), Context(BINARY16).array([[1.0, 2], [3, 4]]), (x,), {})
    assert not birth.is_harmless


def test_data_lose_their_digits_where_neighbours_are_further_apart_than_they():
    births = Births()
    rng = np.random.default_rng(1)
    columns = np.stack([rng.normal(1000, 0.2, 64), rng.normal(0, 1, 64)], axis=1)
    enter(births, columns)
    (birth,) = births
    assert (birth.kind, birth.count) == (DATA_DIGITS, 64)
    enter(births, columns - [1000, 0])
    enter(births, np.full((8, 2), 1000.1))  # which do not differ
    enter(births, columns[:3])  # too few to judge
    assert birth.count == 64
    enter(births, columns * [1e-13, 1e-9])
    assert [b.kind for b in births] == [DATA_DIGITS, DATA_ZERO]


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
