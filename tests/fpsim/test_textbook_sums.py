"""Sums and updates of the textbooks, whose digits get lost (golden)."""

from __future__ import annotations

import numpy as np
import pytest

import fpsim as fp


def half(**choices: object) -> fp.Context:
    return fp.Context(fp.BINARY16, **choices)  # type: ignore[arg-type]


@pytest.mark.source("X-03")
@pytest.mark.source("S4-08")
def test_the_textbook_example_gives_the_corrected_digits() -> None:
    x = half().array([0.0004])
    assert float((x + 0.25 - 0.25)[0]) == 2.0**-11


@pytest.mark.source("S4-09")
@pytest.mark.parametrize(
    ("small", "left"),
    [(0.2, 0.199951171875), (0.02, 0.02001953125), (0.002, 0.001953125), (0.0002, 0.000244140625)],
)
def test_small_addends_lose_digits(small: float, left: float) -> None:
    x = half().array(small)
    assert float(x + 0.25 - 0.25) == left


@pytest.mark.source("S4-11")
def test_ten_thousand_small_additions_stall_at_a_quarter() -> None:
    total = half().zeros(1)
    for step in range(1, 10_001):  # noqa: B007 (read after the loop)
        before = float(total[0])
        total += 1e-4
        if float(total[0]) == before:
            break
    assert (float(total[0]), step) == (0.25, 2182)


@pytest.mark.parametrize(
    ("fmt", "stalled", "at"), [(fp.BFLOAT16, 5.0625, 65), (fp.BINARY16, 7.0859375, 513)]
)
def test_the_harmonic_series_converges_in_few_digits(
    fmt: fp.Format, stalled: float, at: int
) -> None:
    context = fp.Context(fmt)
    total, n = context.zeros(()), 0
    while True:
        n += 1
        more = total + 1.0 / context.array(n)
        if float(more) == float(total):
            break
        total = more
    assert (float(total), n) == (stalled, at)


@pytest.mark.source("Higham 2018; Malone 2013")
def test_the_harmonic_series_converges_in_binary32_too() -> None:
    """Terms shrink while the sum grows: where one more has an effect, every earlier one had."""
    context = fp.Context(fp.BINARY32)
    total = context.zeros(())
    for numbers in np.array_split(np.arange(1, 2_097_151), 100):
        terms = (1.0 / context.array(numbers)).values
        total = context.sum(context.wrap(np.append(total.values, terms)))
    last = total + 1.0 / context.array(2_097_151)
    assert float(last) == float(last + 1.0 / context.array(2_097_152)) == 15.403682708740234
    assert float(total) < float(last)


@pytest.mark.source("facts: S6")
def test_bfloat16_loses_a_thousand_thousandths() -> None:
    total = fp.Context(fp.BFLOAT16).array([1.0, 0.0])
    for additions in range(1, 4_001):
        total += 0.001
        if additions in (1_000, 4_000):
            assert total.values.tolist() == [1.0, 0.5]


def test_one_random_bit_does_not_rescue_the_sum() -> None:
    context = half(rounding=fp.SR(bits=1), seed=7)
    total = context.zeros(64)
    for _ in range(10_000):
        total += 1e-4
    assert set(total.values.tolist()) == {0.25}


@pytest.mark.source("S4-42")
def test_half_of_the_smallest_subnormal_and_below_is_zero() -> None:
    values = half().array([1e-8, 2.0**-25, np.nextafter(2.0**-25, 1), 3.0e-8])
    assert values.values.tolist() == [0.0, 0.0, 2.0**-24, 2.0**-24]


def test_an_update_below_half_an_ulp_is_lost() -> None:
    one = half().array(1.0)
    assert float(one + 2.0**-10) == 1 + 2.0**-10
    assert float(one + 2.0**-11) == 1.0
