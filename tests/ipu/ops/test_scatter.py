"""Rows by index: binary32 in index order, rounded once; the rule for NaN (differential)."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fpsim import BINARY16, BINARY32
from ipu import ops
from ipu.machine import Device

ROWS = np.array([3, 0, 3, 1, 3, 0, 3])
seeds = st.integers(0, 10**6)


def numbers(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape).astype(np.float16)


def folded(verb, base, values, rows=ROWS):
    total = base.astype(np.float32)
    for row, value in zip(rows, values, strict=True):
        total[row] = verb(total[row], value.astype(np.float32))
    return total.astype(np.float16)


def halves(device, *values):
    return [device.from_host(x, BINARY16) for x in values]


def equal(result, expected):
    np.testing.assert_array_equal(
        np.float16(result.carrier).view(np.uint16), np.float16(expected).view(np.uint16)
    )


RULES = {
    "scatter_add": np.add, "scatter_subtract": np.subtract, "scatter_multiply": np.multiply,
    "scatter_max": np.maximum, "scatter_min": np.minimum,
}


@pytest.mark.parametrize("name", RULES)
@given(seeds, st.integers(0, 9), st.integers(1, 4))
def test_rows_are_taken_in_order(name, seed, count, n):
    device, random = Device(), np.random.default_rng(seed)
    base, values = numbers(n, 2, seed=seed), numbers(count, 2, seed=seed + 1)
    rows = random.integers(0, n, count)
    result = ops.PRIMITIVES[name].value(device, *halves(device, base, values), rows=rows)
    equal(result, folded(RULES[name], base, values, rows))


def test_what_meets_in_a_row_is_added_in_order_of_the_values():
    """The last value is lost, were it added before the large ones meet."""
    device = Device()
    base, values = (device.from_host(x, BINARY32) for x in ([0.0, 0.0], [1e8, 5.0, -1e8, 1.0]))
    total = ops.scatter_add.value(device, base, values, rows=np.array([1, 0, 1, 1]))
    assert total.values.tolist() == [5, 1]


@given(seeds, st.integers(0, 2), st.integers(1, 2), st.integers(0, 1))
def test_the_gradient_of_gathering_adds_rows(seed, axis, rank, skips):
    device, random = Device(), np.random.default_rng(seed)
    x = numbers(3, 4, 2, seed=seed)
    rows = random.integers(0, x.shape[axis], (3, 2)[:rank])
    padding = int(rows.flat[0]) if skips else None
    (a,) = halves(device, x)
    y, saved = ops.gather.forward(device, a, rows=rows, axis=axis, padding=padding)
    equal(y, np.take(x, rows, axis))
    g = numbers(*y.shape, seed=seed + 1)
    moved = np.moveaxis(g, range(axis, axis + rank), range(rank))
    moved = moved.reshape(rows.size, *moved.shape[rank:])
    real = rows.reshape(-1) != padding
    base = np.zeros_like(np.moveaxis(x, axis, 0))
    expected = folded(np.add, base, moved[real], rows.reshape(-1)[real])
    slope = ops.gather.pull(0, device, *halves(device, g), saved, rows=rows, axis=axis,
                            padding=padding)
    equal(slope, np.moveaxis(expected, 0, axis))


SEGMENTS = {
    "segment_sum": (np.add, 0), "segment_multiply": (np.multiply, 1),
    "segment_max": (np.maximum, -65504), "segment_min": (np.minimum, 65504),
}


@pytest.mark.parametrize("name", SEGMENTS)
@given(seeds, st.integers(0, 9), st.integers(1, 4))
def test_segments_start_from_what_an_empty_one_holds(name, seed, n, count):
    device, verb, start = Device(), *SEGMENTS[name]
    x, rows = numbers(n, 2, seed=seed), np.random.default_rng(seed).integers(0, count, n)
    row = ops.PRIMITIVES[name]
    result = row.value(device, *halves(device, x), rows=rows, count=count)
    equal(result, folded(verb, np.full((count, 2), start, np.float16), x, rows))
    if name in ("segment_max", "segment_min"):
        result = row.value(device, *halves(device, x), rows=rows, count=count, empty=7.0)
        expected = folded(verb, np.full((count, 2), start, np.float16), x, rows)
        expected[~np.isin(np.arange(count), rows)] = 7
        equal(result, expected)


def test_an_infinity_alone_in_its_segment_stays():
    device = Device()
    (x,) = halves(device, [[-np.inf], [np.inf]])
    for row in (ops.segment_max, ops.segment_min):
        result = row.value(device, x, rows=np.array([0, 2]), count=3, empty=0.0)
        assert result.values.tolist() == [[-np.inf], [0], [np.inf]]


def test_means_are_divided_by_their_count():
    device, x = Device(), numbers(5, 2)
    rows = np.array([2, 0, 2, 2, 0])
    total = folded(np.add, np.zeros((4, 2), np.float16), x, rows)
    sizes = np.float16([[2], [1], [3], [1]])
    (a,) = halves(device, x)
    equal(ops.segment_mean.value(device, a, rows=rows, count=4), total / sizes)


def test_without_values_nothing_changes():
    device = Device()
    base = device.from_host(numbers(4, 5), BINARY16)
    none = {"rows": np.zeros(0, np.int64)}
    for row in (ops.scatter_add, ops.scatter_max):
        same = row.value(device, base, device.zeros((0, 5), BINARY16), **none)
        np.testing.assert_array_equal(same.carrier, base.carrier)


@pytest.mark.parametrize("row", [ops.scatter_max, ops.scatter_min], ids=lambda row: row.name)
@pytest.mark.parametrize("fresh", [False, True])
@pytest.mark.parametrize("values", [[np.nan, 2.0], [2.0, np.nan]])
def test_a_number_wins_against_a_nan_which_raises_invalid(row, fresh, values):
    device = Device()
    base, terms = halves(device, [2.0, 5.0], values)
    result = row.value(device, base, terms, rows=np.array([0, 0]), fresh=fresh)
    assert result.values.tolist() == [2, 5]
    assert device.status.inv
    switched = Device(max_nan="propagate")
    base, terms = halves(switched, [2.0, 5.0], values)
    result = row.value(switched, base, terms, rows=np.array([0, 0]), fresh=fresh)
    assert np.isnan(result.values[0])


def test_a_nan_that_is_alone_is_read():
    device = Device()
    (x,) = halves(device, [[np.nan]])
    result = ops.segment_max.value(device, x, rows=np.array([0]), count=1, empty=0.0)
    assert np.isnan(result.values[0, 0])
    assert device.status.inv


# Bags ---------------------------------------------------------------------------------------------

BAGS, TAKEN = np.array([1, 1, 3, 1, 3, 0]), np.array([0, 2, 1, 2, 0, 1])


@pytest.mark.parametrize("mean", [False, True])
@pytest.mark.parametrize("is_weighted", [False, True])
def test_bags_are_sums_in_binary32_and_a_mean_is_their_product_with_a_share(mean, is_weighted):
    device, table, g = Device(), numbers(3, 2), numbers(4, 2, seed=1)
    factors = numbers(6, seed=2).astype(np.float32)
    shares = np.float32(1) / np.float32([1, 3, 1, 2])
    how = {"rows": TAKEN, "bags": BAGS, "count": 4, "mean": mean}
    if is_weighted:
        how["factors"] = device.from_host(factors, BINARY32)
    a, slope = halves(device, table, g)
    y, saved = ops.embedding_bag.forward(device, a, **how)
    totals, back = np.zeros((4, 2), np.float32), np.zeros((3, 2), np.float32)
    for i, (row, bag) in enumerate(zip(TAKEN, BAGS, strict=True)):
        term = table[row].astype(np.float32)
        totals[bag] += term * factors[i] if is_weighted else term
        term = g[bag].astype(np.float32)
        term = term * shares[bag] if mean else term
        back[row] += term * factors[i] if is_weighted else term
    equal(y, totals * shares[:, None] if mean else totals)
    equal(ops.embedding_bag.pull(0, device, slope, saved, **how), back)


def test_the_gradient_of_a_largest_number_goes_to_its_first_row():
    device = Device()
    table, g = halves(device, [[1.0, 5.0], [1.0, -2.0], [0.0, 5.0]], [[1.0, 2.0], [4.0, 8.0]])
    how = {"rows": np.array([2, 0, 1, 2]), "bags": np.array([0, 0, 0, 0]), "count": 2}
    y, saved = ops.embedding_bag_max.forward(device, table, **how)
    assert y.values.tolist() == [[1, 5], [0, 0]]
    slope = ops.embedding_bag_max.pull(0, device, g, saved, **how)
    assert slope.values.tolist() == [[1, 0], [0, 0], [0, 2]]


def test_of_a_number_and_a_nan_a_bag_holds_the_number():
    device = Device()
    (table,) = halves(device, [[np.nan], [3.0]])
    how = {"rows": np.array([0, 1]), "bags": np.array([0, 0]), "count": 1}
    y, saved = ops.embedding_bag_max.forward(device, table, **how)
    assert y.values.tolist() == [[3]]
    assert saved[1].tolist() == [[1]]
    assert device.status.inv
