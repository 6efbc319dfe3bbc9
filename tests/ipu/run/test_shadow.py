"""The account of shadows: errors, shares, choices and motions (corners, law)."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest

from ipu.run.shadow import Shadow, check_shadow_steps, motion, shadow_lines

KEY = ("net", "forward", "mul")


def numbers(*values):
    return np.array(values, np.float64)


@pytest.mark.parametrize("exponent", range(-34, -18))
def test_moves_that_binary32_absorbs_are_told(exponent):
    """A sum of float32 in steps, beside the exact one; between both bounds it depends."""
    start, steps = np.array([1.0, 1.9, 1.3, 0.0]), 5
    move = np.float64(2.0**exponent)
    single = np.float32(start)
    for _ in range(steps):
        single = single + np.float32(move)
    how = motion((start, start), (start, start + steps * move), steps)
    stands = np.float64(single) == np.float32(start)
    held = 1 - stands[:3].mean() * 0.75
    if exponent <= -26:
        assert stands.tolist() == [True, True, True, False]
        assert how.in_wide == pytest.approx(0.25)
    if exponent >= -23:
        assert not stands.any()
        assert how.in_wide == 1
    assert how.in_wide >= held - 1e-12  # no motion that binary32 makes is left out


def test_the_call_that_magnifies_most_is_told_behind_ones_whose_operands_are_wrong_already():
    """A difference in the first step, beside those of steps whose parameters have parted."""
    lines = iter(("a.py:3", "a.py:4"))
    shadow = Shadow(3, lambda: next(lines, "a.py:5"))
    far, near = numbers(2.0), numbers(1.0)
    shadow.compared(KEY, numbers(1.001), numbers(1.001), near, 0.001)  # a result that is right
    shadow.compared(KEY, far, far, near, 0.001)
    shadow.compared(KEY, far, far, near, 1.0)
    (row,) = shadow.summary()["operations"]
    assert row["amplification"] < 2
    assert row["peak"] == {"amplification": pytest.approx(1000), "error": 1.0, "line": "a.py:4"}


def test_the_line_of_an_operation_is_the_one_where_most_error_is_born():
    """Of several lines that are one row: neither the first, nor one that inherits its error."""
    line = ""
    shadow = Shadow(3, lambda: line)
    one = numbers(1.0)
    for line, machine, local in (  # noqa: B007  (the account asks for it)
            ("a.py:3", 1.0001, 1.0), ("a.py:4", 1.1, 1.0), ("a.py:5", 1.5, 1.5)):
        shadow.compared(KEY, numbers(machine), numbers(local), one, 0.0)
    (row,) = shadow.summary()["operations"]
    assert row["line"] == "a.py:4"


def test_lines_that_are_wrong_by_their_operands_are_told_before_any_update():
    """A sum of a difference that is wrong, a line that loses as much itself, and a later step."""
    line = ""
    shadow = Shadow(3, lambda: line)
    one = numbers(1.0)
    for line, machine, local in (  # noqa: B007
            ("a.py:3", 3.001, 3.0), ("a.py:4", 3.0, 2.5), ("a.py:5", 1.001, 1.0)):
        shadow.compared(KEY, numbers(machine), numbers(local), one, 1.0)
    for _ in range(2):
        shadow.loss(0, 1.0, 1.0)
        line = "a.py:5"
        shadow.compared(KEY, numbers(9.0), numbers(9.0), one, 1.0)
    (row,) = shadow.summary()["operations"]
    assert row["brought"] == ["a.py:3"]
    assert row["least"] == pytest.approx(0.001)


def test_lines_are_asked_for_where_results_are_far_off():
    """It takes time, and nothing is told of results that are right."""
    asked = []
    shadow = Shadow(1, lambda: asked.append("a.py:1") or "a.py:1")
    for _ in range(9):
        shadow.compared(KEY, numbers(1.001), numbers(1.0), numbers(1.0), 0.001)
    assert len(asked) == 1


def test_an_empty_shadow_says_so():
    """As of a program that runs beside the machine."""
    summary = Shadow(2).summary()
    assert list(shadow_lines(summary)) == [
        "shadow in binary64 of 2 steps is empty: no number was computed on the machine while it "
        "was followed"]
    shadow = Shadow(2)
    shadow.compared(KEY, numbers(3.0), numbers(3.0), numbers(3.0), 0.0)
    assert shadow.summary()["empty"] == ""
    assert "is empty" not in "\n".join(shadow_lines(shadow.summary()))


def told(shadow):
    (row,) = shadow.summary()["operations"]
    return row


def test_born_and_inherited_are_relative_to_the_shadow():
    shadow = Shadow(1)
    error = shadow.compared(KEY, numbers(3.0, 4.5), numbers(3.0, 4.0), numbers(3.0, 4.0), 0.0)
    assert error == 0.1
    assert told(shadow)["born"] == 0.1
    assert told(shadow)["inherited"] == 0
    assert told(shadow)["amplification"] is None


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("size", [1, 63, 64, 65, 130, 1000])
def test_sums_are_those_of_exact_fractions(size, dtype):
    """The differences rounded once each, as binary64 gives them; squares and sums exactly."""
    rng = np.random.default_rng(size)
    far = rng.normal(size=size)
    local = far * (1 + 1e-9 * rng.normal(size=size))
    machine = (local * (1 + 1e-4 * rng.normal(size=size))).astype(dtype)
    shadow = Shadow(1)
    error = shadow.compared(KEY, machine, local, far, 0.0)
    born, inherited = machine - local, local - far
    row = told(shadow)
    sums = [
        sum(Fraction(float(v)) ** 2 for v in values)
        for values in (far, born, inherited, born + inherited)
    ]
    expected = [math.sqrt(total / sums[0]) for total in sums[1:]]
    figures = row["born"], row["inherited"], error
    assert figures == pytest.approx(expected, rel=1e-14)
    assert row["error"] == error


def test_the_order_is_that_of_elements_not_of_memory():
    far = np.arange(1.0, 13.0).reshape(3, 4)
    plain, turned = Shadow(1), Shadow(1)
    machine = far + 0.25 * (far > 7)
    errors = [
        account.compared(KEY, layout(machine), far, layout(far * 2) / 2, 0.0)
        for account, layout in ((plain, np.ascontiguousarray), (turned, np.asfortranarray))
    ]
    assert errors[0] == errors[1] > 0


def test_amplification_is_beside_the_worst_operand():
    shadow = Shadow(1)
    shadow.compared(KEY, numbers(1.5), numbers(1.5), numbers(1.0), 0.25)
    assert told(shadow)["amplification"] == 2.0


def test_calls_join_by_the_mean_of_squares():
    shadow = Shadow(1)
    for machine in (1.3, 1.4):
        shadow.compared(KEY, numbers(machine), numbers(1.0), numbers(1.0), 0.0)
    assert told(shadow)["born"] == pytest.approx(math.sqrt((0.09 + 0.16) / 2), rel=1e-12)


def test_elements_that_are_not_finite_are_left_out_and_counted():
    shadow = Shadow(1)
    machine = numbers(np.nan, np.inf, 1.25, 1.0)
    local = numbers(1.0, np.inf, 1.0, np.nan)
    error = shadow.compared(KEY, machine, local, numbers(1.0, 1.0, 1.0, 1.0), 0.0)
    assert (error, told(shadow)["left_out"]) == (0.25, 3)


def test_a_result_of_zero_passes_the_error_on():
    shadow = Shadow(1)
    assert shadow.compared(KEY, numbers(0.0), numbers(0.0), numbers(0.0), 0.5) == 0.5


def test_shares_are_of_the_squares_of_what_is_born():
    shadow = Shadow(1)
    for layer, error in (("a", 0.1), ("b", 0.3)):
        one = numbers(1.0)
        shadow.compared((layer, "forward", "mul"), numbers(1 + error), one, one, 0.0)
    shares = {row["layer"]: row["share"] for row in shadow.summary()["layers"]}
    assert list(shares) == ["b", "a"]
    assert shares == pytest.approx({"b": 0.9, "a": 0.1}, rel=1e-9)


def test_choices_are_told_where_some_differ():
    shadow = Shadow(1)
    shadow.branched(("a", "forward", "max"), 0, 0, 7)
    shadow.branched(("b", "forward", "max"), 0, 2, 7)
    shadow.branched(("b", "forward", "max"), 1, 0, 7)
    (row,) = shadow.summary()["branches"]
    assert (row["layer"], row["step"], row["differing"], row["elements"]) == ("b", 0, 2, 14)


def test_what_stands_still_arrives_by_nothing():
    start, end = numbers(1.0, 1.0), numbers(2.0, 2.0)
    assert motion((start, start), (start, end)).arrived == 0
    assert motion((start, end), (start, end)) == (1.0, 0.0, 1.0, math.sqrt(2))
    assert motion((start, end), (start, start)) is None
    assert motion((start, numbers(2.0, np.nan)), (start, end)) == (1.0, 0.0, 1.0, 1.0)


def test_lines_name_what_stands_still_and_what_is_not_followed():
    shadow = Shadow(2)
    how = motion((numbers(0.0), numbers(0.0)), (numbers(0.0), numbers(1.0)))
    shadow.moved("bn.mean", (3,), how, line="a:1")
    shadow.rejoined("fft", "complex")
    text = "\n".join(shadow_lines(shadow.summary()))
    assert "bn.mean moves by 0% of its way" in text
    assert "not followed: fft (complex), 1 times" in text
    assert list(shadow_lines({})) == []


@pytest.mark.parametrize(("steps", "error"), [(0, ValueError), (True, TypeError), ("3", TypeError)])
def test_bad_steps_are_refused(steps, error):
    with pytest.raises(error, match="steps="):
        check_shadow_steps(steps)
