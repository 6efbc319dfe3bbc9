"""Units of one's own: what once went wrong, through the function that users call (golden)."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import fpsim as fp
from fpsim.products.by_unit.exact import run_exact
from fpsim.products.by_unit.fused import run_fused
from fpsim.products.by_unit.general import run_general
from fpsim.products.by_unit.unit_settings import UnitSettings
from fpsim.products.by_unit.window import run_window
from fpsim.products.jobs.job import Job
from fpsim.records.units import MatrixUnit
from tests.fpsim.in_partials import conv2d_weight_gradient, matmul

HALF, SINGLE = fp.Context(fp.BINARY16), fp.Context(fp.BINARY32)
MINE = MatrixUnit(
    "MINE_F16_F16", "mine", (fp.BINARY16,), fp.BINARY16, 4, 32, accumulator=fp.BINARY16
)


def test_a_neighbour_that_overflows_changes_no_output():
    """1 + 2**-11 + 2**-31 is above the tie in binary16; in binary32 first it would be the tie."""
    a = HALF.array([[1.0, 1.0, 2.0**-10, 0.0]])
    b = HALF.array([[1.0, 60000.0], [2.0**-11, 60000.0], [2.0**-21, 0.0], [0.0, 0.0]])
    alone = matmul(a, HALF.wrap(b.values[:, :1]), MINE).values
    beside = matmul(a, b, MINE).values
    assert alone.tolist() == [[1 + 2.0**-10]]
    assert beside.tolist() == [[1 + 2.0**-10, np.inf]]


@pytest.mark.parametrize(
    ("start", "expected"),
    [
        # Below half of the smallest subnormal of binary16, far below, and further than 64 binades.
        (2.0**-26, 0.0), (2.0**-70, 0.0), (2.0**-77, 0.0), (2.0**-78, 0.0), (2.0**-140, 0.0),
        # A tie goes to 0; a digit that a window of 32 below 2**-14 keeps lifts it.
        (2.0**-25, 0.0), (2.0**-25 + 2.0**-46, 2.0**-24), (2.0**-25 + 2.0**-47, 0.0),
        (3 * 2.0**-25, 2.0**-23), (1 + 2.0**-12, 1.0), (1 + 2.0**-11 + 2.0**-20, 1 + 2.0**-10),
    ],
)
def test_a_start_of_more_digits_than_the_accumulator_is_read_as_it_is(start, expected):
    unit = replace(MINE, name="MINE_F16_F32", partials=fp.BINARY32)
    zeros = HALF.zeros((1, 4)), HALF.zeros((4, 1))
    result = matmul(*zeros, unit, context=SINGLE, accumulator=SINGLE.wrap(np.float32([[start]])))
    assert result.values.tolist() == [[expected]]


def test_sums_that_the_partials_do_not_hold_are_stored():
    """bfloat16 sums reach beyond binary16 and need fewer digits."""
    unit = replace(MINE, name="MINE_BF16", accumulator=fp.BFLOAT16)
    a, b = HALF.array([[60000.0, 60000.0]]), HALF.array([[1.0], [1.0]])
    for overflow, expected in (("infinity", np.inf), ("saturate", 65504.0)):
        context = fp.Context(fp.BINARY16, overflow=overflow)
        assert matmul(a, b, unit, context=context).values.tolist() == [[expected]]
        assert context.flags == fp.Flags.OVERFLOW


#: 2048 + 1 is a tie in binary16 and stays 2048; 1 + 1 is 2 first.
PAIRED = [1.0, 0.0, 2048.0, 0.0, 1.0, 0.0, 0.0, 0.0]


@pytest.mark.parametrize(
    ("terms", "calls", "expected"), [(4, 2, 2050.0), (4, None, 2050.0), (4, 1, 2048.0)]
)
def test_pairs_count_from_the_first_term_of_a_pass(terms, calls, expected):
    unit = replace(MINE, name="MINE_PAIRS", terms=terms, calls=calls, window=None, order="pairs")
    a, ones = HALF.array([PAIRED]), HALF.array(np.ones((8, 1)))
    assert matmul(a, ones, unit).values.tolist() == [[expected]]
    # The same product as a gradient to the weights, whose terms come in pieces.
    x, gradient = (HALF.array(np.reshape(v, (1, 8, 1, 1))) for v in (PAIRED, np.ones(8)))
    result = conv2d_weight_gradient(x, gradient, unit, (1, 1, 1, 1), padding="VALID")
    assert result.values.ravel().tolist() == [expected]


def test_pairs_of_a_pass_that_is_all_of_k_go_over_pieces_of_images(monkeypatch):
    unit = replace(MINE, name="MINE_PAIRS", terms=4, calls=None, window=None, order="pairs")
    monkeypatch.setattr("fpsim.products.jobs.windows._PIECE", 4)
    x, ones = PAIRED[:4] + [0.0] * 4 + PAIRED[4:], np.ones(12)
    x, gradient = (HALF.array(np.reshape(v, (1, 12, 1, 1))) for v in (x, ones))
    result = conv2d_weight_gradient(x, gradient, unit, (1, 1, 1, 1), padding="VALID")
    assert result.values.ravel().tolist() == [2050.0]


def run(engine, unit, a, b, start=0.0):
    """Whether the engine takes one product of numbers, and its value."""
    settings = UnitSettings(
        unit, unit.inputs[0], unit.inputs[0], fp.Context(unit.partials).core.settings
    )
    values, flags = np.full((1, 1), start, np.float32), np.zeros((1, 1), np.uint8)
    operands = np.float32([a]), np.float32([b]).T
    return engine(Job(settings, *operands, values, flags)), float(values[0, 0])


def test_rounded_products_are_those_of_the_partials_where_there_is_a_window():
    """(1 + 2**-9)**2 = 1 + 2**-8 + 2**-18."""
    x, rounded = 1 + 2.0**-9, {"terms": 1, "product_rounded": True, "partials": fp.BINARY16}
    wide = replace(MINE, name="P", accumulator=fp.BINARY32, **rounded)
    assert run_stored(wide, x) == 2.0**-8
    for other in ({"product_rounded": False}, {"window": None}):
        assert run_stored(replace(wide, **other), x) == 2.0**-8 + 2.0**-18


def run_stored(unit, x):
    """x * x - 1 as users get it."""
    a, b, start = HALF.array([[x]]), HALF.array([[x]]), HALF.array([[-1.0]])
    return float(matmul(a, b, unit, accumulator=start).values[0, 0])


def test_a_rounded_product_aligns_by_the_exponent_of_what_it_has_become():
    """1.75 * 1.75 = 3.0625 has exponent 1, and not that of its factors, 0 + 0."""
    unit = replace(MINE, name="P", terms=1, window=2)
    assert run(run_general, unit, [1.75], [1.75], 0.25) == (True, 3.25)
    assert run(run_general, replace(unit, product_rounded=True), [1.75], [1.75], 0.25)[1] == 3.0


def test_fast_engines_leave_rounded_products_to_the_general_one():
    """Fused: 1 - 2**-46 less 1; exact: a product of 26 digits; windows: always."""
    x = 1 + 2.0**-12
    wide = fp.Format.custom(8, 13)
    exact = replace(
        MINE, name="E", inputs=(wide,), partials=fp.BINARY32, accumulator=fp.BINARY32, window=None
    )
    fused = replace(exact, name="F", inputs=(fp.BINARY32,), terms=1, calls=8)
    window = replace(MINE, name="W")
    for engine, unit in ((run_exact, exact), (run_fused, fused), (run_window, window)):
        assert run(engine, unit, [1.0], [1.0])[0], unit
        assert not run(engine, replace(unit, product_rounded=True), [1.0], [1.0])[0], unit
    _, unrounded = run(run_exact, exact, [x], [x], -1.0)
    _, lost = run(run_general, replace(exact, product_rounded=True), [x], [x], -1.0)
    assert (unrounded, lost) == (2.0**-11 + 2.0**-24, 2.0**-11)


def test_a_sum_of_a_short_range_is_not_taken_for_binary32():
    """Seven bits of exponent, as low as binary32 and not as high."""
    fmt = fp.Format.custom(7, 12, bias=127)
    unit = replace(MINE, name="S", partials=fp.BINARY32, accumulator=fmt, rounding=fp.RTZ)
    assert not run(run_window, unit, [4.0], [4.0])[0]
    assert run(run_general, unit, [4.0], [4.0]) == (True, fmt.max)


def test_partials_with_one_zero_have_no_negative_one():
    """-2**-20 becomes zero in F143, and what is made of it afterwards is +0."""
    unit = MatrixUnit("Z", "mine", (fp.BINARY16,), fp.F143, terms=4, window=24)
    context = fp.Context(fp.E4M3FN)
    a, b = HALF.array([[-(2.0**-10)]]), HALF.array([[2.0**-10]])
    zero = matmul(a, b, unit, context=context).values
    assert zero == 0
    assert not np.signbit(zero)


def test_an_infinite_partial_stays_one_where_the_window_has_one_digit():
    unit = replace(MINE, name="I", window=1, terms=1)
    a, b = HALF.array([[60000.0, 60000.0, 1.0]]), HALF.array([[1.0], [1.0], [1.0]])
    assert matmul(a, b, unit).values.tolist() == [[np.inf]]


def test_an_overflow_policy_that_the_partials_cannot_follow_is_refused():
    unit = MatrixUnit("Z", "mine", (fp.BINARY16,), fp.F143, terms=4, window=24)
    a, b = HALF.array([[1.0]]), HALF.array([[1.0]])
    context = fp.Context(fp.E5M2)
    with pytest.raises(ValueError, match=r"overflow='infinity' rules the partials of unit Z too"):
        matmul(a, b, unit, context=context)
    assert matmul(a, b, unit, context=fp.Context(fp.E5M2, overflow="nan")).values.tolist() == [[1]]
