"""Sums of a device: spread over parts, by the ruling read word by word (law, differential, golden).

The judge adds Python fractions that it rounds to binary32 itself, part after part.
"""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import fpsim as fp
from fpsim import BFLOAT16, BINARY16, BINARY32, BINARY64, Flags
from fpsim.products.spread_sums import parts_of
from ipu.machine import Device
from tests.tiers import pick


def ruled(summands, add):
    """What is left of the summands, by the words of the ruling."""
    while len(summands) > 1:
        n = len(summands)
        length = math.ceil(n / math.ceil(n / 64))
        parts = [summands[i : i + length] for i in range(0, n, length)]
        summands = []
        for first, *others in parts:
            total = first
            for x in others:
                total = add(total, x)
            summands.append(total)
    return summands[0] if summands else 0.0


def added(x, y):
    """x + y in binary32, to nearest even; numbers of it that are no subnormals."""
    exact = Fraction(float(x)) + Fraction(float(y))
    return float(np.float32(float(exact)))


def device(**choices):
    return Device("hypothetical", f32_denormals="ieee", **choices)


@pytest.mark.parametrize(
    ("n", "parts"),
    [(1, (1, 1)), (64, (64, 1)), (65, (33, 1)), (100, (50, 2)), (129, (43, 3)), (4096, (64, 64)),
     (4097, (64, 64)), (20_000_000, (64, 312_500))],
)
def test_parts_are_as_equal_as_they_can_be(n, parts):
    assert parts_of(n) == parts


@pytest.mark.source("known answers of the ruling")
def test_known_answers():
    ones = np.ones(20_000_000, np.float32)
    used, chain = Device(), Device(sums="chain")
    assert float(used.reduce_sum(used.from_host(ones, BINARY32), 0).values[0]) == 20_000_000
    assert float(chain.reduce_sum(chain.from_host(ones, BINARY32), 0).values[0]) == 16_777_216
    many = used.from_host(np.ones(30_000_000, np.float32), BINARY32)
    assert f"{np.sqrt(used.reduce_squares(many, (0,)).values[0]):.4f}" == "5477.2256"


SHAPES = st.lists(st.integers(1, 70), min_size=1, max_size=3).filter(
    lambda shape: math.prod(shape) <= 6000
)


@settings(max_examples=pick(40, 200, 2000))
@given(
    shape=SHAPES, data=st.data(), seed=st.integers(0, 9),
    fmt=st.sampled_from([BINARY16, BFLOAT16, BINARY32]), counted=st.booleans(),
    layout=st.sampled_from("CF"),
)
def test_sums_are_those_of_the_ruling(shape, data, seed, fmt, counted, layout):
    axes = data.draw(
        st.sets(st.integers(0, len(shape) - 1), min_size=1).map(lambda subset: tuple(subset))
    )
    used = device(count=counted)
    draws = np.random.default_rng(seed).standard_normal(shape)
    x = used.from_host(draws, fmt)
    x = x.like(np.asarray(x.carrier, order=layout))
    total = used.reduce_sum(x, axes, BINARY32)
    left = [a for a in range(len(shape)) if a not in axes]
    rows = x.values.transpose([*left, *sorted(axes)])
    rows = rows.reshape(math.prod(shape[a] for a in left), -1)
    expected = [ruled(row.tolist(), added) for row in rows]
    assert total.values.reshape(-1).tolist() == expected
    is_inexact = any(
        Fraction(value) != sum(map(Fraction, row.tolist()))
        for value, row in zip(expected, rows, strict=True)
    )
    assert not is_inexact or used.context(BINARY32).flags & Flags.INEXACT


@pytest.mark.parametrize("n", [63, 64, 65, 127, 128, 129, 4096, 4097, 9000])
@pytest.mark.parametrize("counted", [False, True])
def test_every_length_of_rows_and_columns(n, counted):
    used = device(count=counted)
    draws = np.random.default_rng(n).standard_normal((n, 3))
    x = used.from_host(draws, BINARY32)
    expected = [ruled(column.tolist(), added) for column in x.values.T]
    assert used.reduce_sum(x, 0).values[0].tolist() == expected
    turned = used.from_host(draws.T, BINARY32)
    assert used.reduce_sum(turned, 1).values[:, 0].tolist() == expected


@pytest.mark.parametrize("n", [10, 65, 5000])
def test_squares_are_rounded_before_they_are_summands(n):
    used = device()
    x = used.from_host(np.random.default_rng(0).standard_normal(n), BINARY16)
    squares = [float(np.float32(v) * np.float32(v)) for v in x.values.tolist()]
    assert float(used.reduce_squares(x, (0,)).values[0]) == ruled(squares, added)
    wide = used.from_host(np.random.default_rng(0).standard_normal(n), BINARY32)
    squares = [float(np.float32(v) * np.float32(v)) for v in wide.values.tolist()]
    assert float(used.reduce_squares(wide, (0,)).values[0]) == ruled(squares, added)


@pytest.mark.parametrize("n", [3, 64, 65, 130, 5000])
def test_binary64_has_the_same_order(n):
    used = Device("reference")
    draws = np.random.default_rng(n).standard_normal((2, n, 2))
    chains = [[draws[i, :, k].tolist() for k in (0, 1)] for i in (0, 1)]
    expected = [[ruled(chain, lambda x, y: x + y) for chain in row] for row in chains]
    total = used.reduce_sum(used.from_host(draws, BINARY64), 1)
    assert total.values[:, 0].tolist() == expected
    nothing = used.reduce_sum(used.from_host(np.zeros((2, 0)), BINARY64), 1)
    assert nothing.values.tolist() == [[0.0], [0.0]]


@given(
    values=st.lists(
        st.sampled_from([0.0, -0.0, 1.0, 2.0**-149, -(2.0**-140), 3e38, math.inf, -math.inf,
                         math.nan, 2.0**-24, -1.0]),
        min_size=1, max_size=200,
    ),
    denormals=st.sampled_from(["flush", "ieee"]),
)
@example(values=[3e38] * 65 + [-3e38] * 3, denormals="ieee")
@example(values=[2.0**-149] * 100, denormals="flush")
def test_special_numbers_go_part_by_part_through_the_same_chains(values, denormals):
    """A device that adds two numbers at a time is the judge of values and flags."""
    used, judge = (Device("hypothetical", f32_denormals=denormals) for _ in range(2))
    context = judge.context(BINARY32)

    def add(x, y):
        return float(judge.add(*(judge.from_host(np.float32(v), BINARY32) for v in (x, y))).values)

    total = used.reduce_sum(used.from_host(np.float32(values), BINARY32), 0)
    if len(values) == 1:
        return
    expected = ruled([float(np.float32(v)) for v in values], add)
    assert np.array_equal(total.values, np.float32([expected]), equal_nan=True)
    assert math.copysign(1, total.values[0]) == math.copysign(1, expected) or math.isnan(expected)
    assert used.context(BINARY32).flags == context.flags
    assert used.status == judge.status


def test_an_output_does_not_depend_on_those_beside_it():
    used = device()
    draws = np.random.default_rng(0).standard_normal((300, 40))
    together = used.reduce_sum(used.from_host(draws, BINARY16), 0, BINARY32).values[0]
    for k in (0, 17, 39):
        alone = used.reduce_sum(used.from_host(draws[:, k], BINARY16), 0, BINARY32)
        assert float(alone.values[0]) == together[k]


def test_a_chain_may_be_asked_for_and_other_words_are_refused():
    used = device(sums="chain")
    draws = np.float32(np.random.default_rng(0).standard_normal(1000))
    total = np.float32(0)
    for k, x in enumerate(draws):
        total = x if k == 0 else total + x
    assert used.reduce_sum(used.from_host(draws, BINARY32), 0).values[0] == total
    with pytest.raises(ValueError, match="sums='tree' is not known; use one of spread, chain"):
        Device(sums="tree")


def test_the_error_stays_below_its_bound():
    used = device()
    for n in (1000, 100_000):
        x = used.from_host(np.random.default_rng(n).random(n), BINARY32)
        exact = math.fsum(x.values.tolist())
        error = abs(float(used.reduce_sum(x, 0).values[0]) - exact)
        assert error <= 64 * math.ceil(math.log(n, 64)) * 2.0**-24 * exact


@pytest.mark.parametrize("shape", [(600,), (40, 50), (1, 130)])
@pytest.mark.parametrize(("number", "count"), [(np.inf, 1), (2.0**-149, 50)])
def test_numbers_that_do_not_lie_whole_numbers_apart_are_summed(shape, number, count):
    """Of sums that the processor alone does not give; what lies between the numbers is noise."""
    records = np.zeros(shape, [("before", np.uint8), ("x", np.float32), ("after", np.uint16)])
    records["before"], records["after"] = 255, 0x7FC0
    field = records["x"]
    field[..., 3 : 3 + count] = number
    used = device()
    x = used.from_host([0.0], BINARY32).like(field)
    total = used.reduce_sum(x, tuple(range(len(shape)))).values
    assert total.item() == number * np.count_nonzero(field)


def test_a_trap_stops_a_sum_and_publishes_nothing():
    from ipu.machine.control import FpCtl

    used = Device(control=FpCtl(oflo=True))
    big = used.from_host(np.full(1000, 3e38), BINARY32)
    with pytest.raises(fp.FloatingPointTrap, match="sum raised OVERFLOW"):
        used.reduce_sum(big, 0)
