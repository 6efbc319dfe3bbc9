"""Loops: golden (the documents' listings), law (types stay), corners (what is refused and how)."""

from __future__ import annotations

import doctest
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

from fpsim import BINARY16, BINARY32, Context
from ipu.feed.infeed import Infeed
from ipu.feed.loops import repeat, while_loop
from ipu.learn.tensor import Tensor
from ipu.machine.device import Device

HALF, SINGLE = Context(BINARY16), Context(BINARY32)


PAGE = Path(__file__).parents[3] / "docs" / "execution.md"


class Pair(NamedTuple):
    x: object
    y: object


def once(body, *carried, data):
    with Infeed([data]) as infeed:
        return repeat(1, body, *carried, infeed=infeed)


@pytest.mark.source("S0-04")
@pytest.mark.source("S0-13")
def test_a_counter_counts_the_iterations():
    assert repeat(10, lambda counter: counter + 1, 0) == 10
    assert repeat(0, lambda counter: counter + 1, 0) == 0


@pytest.mark.parametrize(
    ("carried", "last"), [((), None), ((1,), 1), ((1, 2), (1, 2)), (([1, 2],), [1, 2])]
)
def test_one_value_comes_alone_several_in_a_tuple_and_none_as_none(carried, last):
    def body(*values):
        return values[0] if len(values) == 1 else values or None

    result = repeat(3, body, *carried)
    assert result == last
    assert type(result) is type(last)


def test_a_list_of_values_will_do_for_a_tuple():
    assert repeat(3, lambda a, b: [b, a + b], 0, 1) == (2, 3)


@pytest.mark.source("S0-05")
@pytest.mark.parametrize(
    ("data", "arguments"),
    [(7, ((7,), {})), ((7, 8), ((7, 8), {})), ([7, 8], ((7, 8), {})), (Pair(7, 8), ((7, 8), {})),
     ({"x": 7, "y": 8}, ((), {"x": 7, "y": 8})), ({7: 8}, (({7: 8},), {})),
     (({"x": 7},), (({"x": 7},), {})), ((7, {"x": 8}), ((7, {"x": 8}), {})),
     ({"x": {"y": 7}}, ((), {"x": {"y": 7}}))],
)
def test_carried_values_come_first_then_the_parts_of_the_element(data, arguments):
    def body(first, second, *positional, **named):
        assert (first, second) == ("a", "b")
        assert (positional, named) == arguments
        return first, second

    assert once(body, "a", "b", data=data) == ("a", "b")


@pytest.mark.source("S0-05")
@pytest.mark.parametrize(
    ("body", "carried", "data"),
    [(lambda n: n, (0,), 1.0), (lambda n, x, y: n, (0,), 1.0), (lambda n, x: n, (0,), (1.0, 2.0)),
     (lambda n, x: n, (0,), {"z": 1.0}), (lambda: None, (0,), 1.0), (lambda a, b, x: a, (0,), 1.0)],
)
def test_a_body_of_other_arguments_is_refused_and_consumes_nothing(body, carried, data):
    infeed = Infeed([data])
    with pytest.raises(TypeError, match=r"the loop body is called with 1 carried values and \d of"):
        repeat(1, body, *carried, infeed=infeed)
    assert infeed.position == 0


def test_functions_without_a_signature_check_themselves():
    assert repeat(2, int.__neg__, 3) == 3
    with pytest.raises(TypeError):
        repeat(1, max, 3)


@pytest.mark.source("S0-03")
def test_only_the_infeed_varies():
    """What is carried unchanged is the same object in every iteration; elements differ."""
    constant, pairs = np.ones(3), []

    def body(value, x):
        pairs.append((value, float(x)))
        return value

    with Infeed([0.0, 1.0, 2.0]) as infeed:
        repeat(3, body, constant, infeed=infeed)
    assert all(value is constant for value, _ in pairs)
    assert [x for _, x in pairs] == [0, 1, 2]


@pytest.mark.source("S0-06")
def test_a_while_loop_ends_with_its_condition():
    assert while_loop(lambda n, s: n < 5, lambda n, s: (n + 1, s + n), 0, 0) == (5, 10)
    assert while_loop(lambda n: False, lambda n: n + 1, 3) == 3


def test_a_while_loop_ends_after_its_maximum():
    numbers = []
    result = while_loop(lambda n: n < 100, lambda n: n + 1, 0, maximum_iterations=7)
    assert result == 7
    assert while_loop(lambda n: n < 3, lambda n: n + 1, 0, maximum_iterations=7) == 3
    # after the last iteration the condition is not asked again
    while_loop(lambda n: numbers.append(n) is None, lambda n: n + 1, 0, maximum_iterations=2)
    assert numbers == [0, 1]


def test_the_condition_sees_no_data_and_an_iteration_that_is_not_done_takes_none():
    def condition(*values):
        assert len(values) == 1
        return values[0] < 2

    with Infeed([1.0, 2.0, 3.0]) as infeed:
        assert while_loop(condition, lambda n, x: n + 1, 0, infeed=infeed) == 2
        assert infeed.position == 2


DEVICE = Device()


def tensor(values, fmt):
    return Tensor(DEVICE.from_host(values, fmt), DEVICE)


@pytest.mark.parametrize(
    ("before", "after", "words"),
    [(0, 0.5, "int became float"), (1, True, "int became bool"),
     (0.0, None, "float became NoneType"),
     (np.float16(0), np.float32(0), r"ndarray float16 \(\) became ndarray float32 \(\)"),
     (np.zeros(2), np.zeros(3), r"float64 \(2,\) became ndarray float64 \(3,\)"),
     (HALF.zeros(2), SINGLE.zeros(2), r"Array binary16 \(2,\) became Array binary32 \(2,\)"),
     (HALF.zeros(2), HALF.zeros((1, 2)), r"Array binary16 \(1, 2\)"),
     (HALF.zeros(2), np.zeros(2, np.float16), "became ndarray float16"),
     (tensor([0], BINARY16), tensor([0], BINARY32), "Tensor binary16 .* became Tensor binary32"),
     ({"a": 1, "b": 2}, {"a": 1, "b": 2.0}, r"carried value 1\['b'\]: int became float"),
     ({"a": 1}, {"b": 1}, r"it is dict\(b: leaf\), not dict\(a: leaf\)")],
)
def test_carried_types_stay(before, after, words):
    with pytest.raises(
        TypeError, match=rf"Mismatch between input types and output types for loop body.*{words}"
    ):
        repeat(2, lambda n, value: (n + 1, after), 0, before)
    assert repeat(2, lambda n, value: (n + 1, before), 0, before)[1] is before


def test_a_type_that_changes_late_is_seen_then():
    def body(n):
        return n + 1 if n < 5 else float(n)

    with pytest.raises(TypeError, match="int became float"):
        repeat(10, body, 0)


def test_a_carried_sum_keeps_its_format():
    """An FP16 sum stays FP16, so it stalls where FP16 does: at 2048 for terms of 1."""
    total = repeat(2100, lambda total: total + 1, HALF.array(0))
    assert (total.format, total.item()) == (BINARY16, 2048)


def test_numpy_scalars_and_arrays_without_axes_are_alike():
    assert repeat(3, lambda x: x + np.float32(1), np.array(0, np.float32)) == 3


@pytest.mark.parametrize(
    ("body", "carried", "got"),
    [(lambda a, b: a, (0, 0), "carries 2 values, and its body returned one value"),
     (lambda a, b: (a, b, a), (0, 0), "returned 3 values; return the carried values, a tuple"),
     (lambda a, b: None, (0, 0), "returned 0 values"), (lambda: 5, (), "carries 0 values"),
     (lambda: (1, 2), (), "returned 2 values; return the carried values, here none")],
)
def test_another_number_of_values_is_refused(body, carried, got):
    with pytest.raises(TypeError, match=got):
        repeat(1, body, *carried)


@pytest.mark.parametrize("n", [-1, 2.0, True, None, "3"])
def test_counts_are_checked(n):
    with pytest.raises(ValueError, match=r"^n=.* is not a number of iterations; use 0 or more"):
        repeat(n, lambda: None)
    if n is not None:
        with pytest.raises(ValueError, match=r"^maximum_iterations="):
            while_loop(lambda: True, lambda: None, maximum_iterations=n)


def test_counts_of_numpy_will_do():
    assert repeat(np.int32(3), lambda n: n + 1, 0) == 3


def test_an_endless_loop_is_refused():
    with pytest.raises(TypeError, match="never end; give one of them"):
        while_loop(None, lambda: None)


def test_a_data_set_is_no_infeed():
    with pytest.raises(TypeError, match=r"infeed is a list; use infeed=Infeed\(data\)"):
        repeat(1, lambda x: None, infeed=[1.0])


def test_the_example_of_the_page_prints_what_it_says():
    text = PAGE.read_text(encoding="utf-8").partition("## Feeds and loops")[2].partition("\n## ")[0]
    test = doctest.DocTestParser().get_doctest(text, {}, PAGE.name, PAGE.name, 0)
    assert test.examples
    output: list[str] = []
    assert doctest.DocTestRunner().run(test, out=output.append).failed == 0, "".join(output)
