"""Numbers in equal steps against exact fractions (differential, corners); sizes of all."""

from __future__ import annotations

import tracemalloc
from fractions import Fraction

import numpy as np
import pytest

import fpsim as fp
from fpsim.elementwise.inputs import to_odd
from fpsim.elementwise.progressions import progression
from tests.tiers import pick

#: Starts, stops and steps whose exact numbers need one limb, several, or a rest.
STEPS = [
    (0, 1, 0.1), (-1, 1, 0.3), (0, 40, 3), (5, -5, -0.7), (1e300, 1.0000000001e300, 1e288),
    (-(2**70), 2**70 + 1, 2**65 + 1), (1e-320, 1e-318, 1e-319), (-0.5, 0.5, 1e-2 / 3),
    (2**53, 2**53 + 40, 1), (0, 2**40, 2**33 + 0.5), (1e-30, 1.0, 0.25), (3, 3, 1), (4, 3, 1),
    (-3.0, 0.0, 2.0**-20), (1, 2, 1e300),
]
COUNTS = [
    (0, 1, 11), (-1, 1, 8), (0.1, 0.7, 50), (-1e300, 1e300, 7), (1e-320, 1.0, 4), (2, 2, 3),
    (0, 1, 1), (0, 1, 0), (2**80, -1, 13), (1.0, 1.0 + 2**-52, 4), (-1e-310, 1e-310, 3),
    (-8e307, 8e307, 9),
]


def nearest(x: Fraction) -> float:
    return x.numerator / x.denominator


@pytest.mark.parametrize("native", [False, True])
@pytest.mark.parametrize(("start", "stop", "step"), STEPS)
def test_steps_are_exact_numbers_rounded_once(start, stop, step, native):
    numbers = progression(start, stop, step=step, native=native)
    first, width = Fraction(start), Fraction(step)
    count = max(0, -((first - Fraction(stop)) // width))
    assert len(numbers) == count
    steps = pick(range(min(count, 400)), range(min(count, 4000)), range(count))
    for k in steps:
        exact = first + k * width
        assert numbers[k] == (nearest(exact) if native else to_odd(exact)), k


@pytest.mark.parametrize("native", [False, True])
@pytest.mark.parametrize("endpoint", [False, True])
@pytest.mark.parametrize(("start", "stop", "num"), COUNTS)
def test_numbers_between_ends_are_exact_numbers_rounded_once(start, stop, num, endpoint, native):
    numbers = progression(start, stop, num=num, endpoint=endpoint, native=native)
    first = Fraction(start)
    width = (Fraction(stop) - first) / max(1, num - 1 if endpoint else num)
    exact = [first + k * width for k in range(num)]
    assert numbers.tolist() == [nearest(x) if native else to_odd(x) for x in exact]


def test_zero_in_the_middle_has_no_sign():
    assert not np.signbit(progression(-1, 1.5, step=0.5)[2])
    assert not np.signbit(progression(-3, 3, num=7)[3])
    assert not np.signbit(progression(-0.3, 0.3, num=7)[3])


@pytest.mark.parametrize(
    "call",
    [
        lambda c: c.arange(10**12), lambda c: c.arange(0, 10**300, 1e-300),
        lambda c: c.arange(0.0, 1.0, 1e-18), lambda c: c.linspace(0, 1, 10**13),
        lambda c: c.zeros(10**13), lambda c: c.ones((10**7, 10**7)), lambda c: c.full(10**14, 2),
        lambda c: c.array([1.0]).__array_namespace__().eye(10**7),
        lambda c: c.array([1.0]).__array_namespace__().arange(10**13),
        lambda c: c.array([1.0]).__array_namespace__().zeros(10**13, dtype=np.int64),
    ],
    ids=[str(n) for n in range(10)],
)
def test_what_no_memory_holds_is_refused_before_anything_is_taken(call):
    context = fp.Context(fp.BINARY16)
    context.array([1.0]).__array_namespace__()
    tracemalloc.start()
    try:
        with pytest.raises(ValueError, match=r"(stop|num|shape)=.* makes .* elements .* GiB"):
            call(context)
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()


def test_no_object_is_made_for_an_element():
    half = fp.Context(fp.BINARY32)
    half.linspace(0, 1, 11)
    tracemalloc.start()
    try:
        half.linspace(0, 1, 200_001)
        assert tracemalloc.get_traced_memory()[1] < 30 * 200_001
    finally:
        tracemalloc.stop()
