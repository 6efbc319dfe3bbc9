"""The account of shadows: errors, shares, choices and motions (corners, law)."""

from __future__ import annotations

import math

import numpy as np
import pytest

from ipu.run.shadow import Shadow, check_shadow_steps, motion, shadow_lines

KEY = ("net", "forward", "mul")


def numbers(*values):
    return np.array(values, np.float64)


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
    assert motion((start, end), (start, end)) == (1.0, 0.0)
    assert motion((start, end), (start, start)) is None
    assert motion((start, numbers(2.0, np.nan)), (start, end)) == (1.0, 0.0)


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
