"""Tables and panels of operands against numpy: padding, strides, zeros, subnormals (corners)."""

from __future__ import annotations

import numpy as np
import pytest

from fpsim.kernels.by_unit.panels import PLAIN, Shift, fill_panels, fill_table

#: Fields of binary16 operands with a bias of 1023 in lanes of 64 bits, of 127 in those of 32.
SHIFTS = {64: Shift(1023 + 3, 623, -14, 8.0, False), 32: Shift(127 + 3, 7, -14, 8.0, False)}
DIGITS = {64: 52, 32: 23}


def number(x):
    return np.asarray(x, np.float32).view(np.uint32)


def fields(x, shift, width):
    """Exponents in the place of the field, none below the smallest of the format."""
    x = np.abs(np.asarray(x, float))
    e = np.maximum(np.frexp(x)[1] - 1, shift.emin) + shift.bias
    return np.where(x > 0, e, shift.nothing).astype(f"u{width // 8}") << DIGITS[width]


X = np.float32([1.0, -1.5, 0.0, -0.0, 2.0**-14, 2.0**-15, -(2.0**-24), 65504.0, 3.0] * 4)


@pytest.mark.parametrize("width", [32, 64])
@pytest.mark.parametrize(("begin", "end"), [(0, 36), (16, 36), (16, 21), (0, 16), (32, 33)])
def test_a_table_has_values_and_exponents(width, begin, end):
    shift, zero = SHIFTS[width], np.zeros(1, f"u{width // 8}")
    values, exponents = np.full(48, -7.0, f"f{width // 8}"), np.full(48, 5, zero.dtype)
    fill_table(number(X), begin, end, values, exponents, zero, shift)
    assert np.array_equal(values[begin:end], X[begin:end].astype(values.dtype) * 8)
    assert np.array_equal(np.signbit(values[begin:end]), np.signbit(X[begin:end]))
    assert np.array_equal(exponents[begin:end], fields(X[begin:end], shift, width))
    # Whole vectors are written, nothing before them or behind.
    stop = -(-end // 16) * 16
    assert set(values[:begin]) | set(values[stop:]) <= {-7.0}
    assert set(exponents[:begin]) | set(exponents[stop:]) <= {5}


def test_empty_tables_are_left_alone():
    zero, none = np.zeros(1, np.uint64), np.zeros(0, np.uint64)
    values = np.zeros(48)
    fill_table(number(X), 0, 36, values, none, zero, SHIFTS[64])
    assert np.array_equal(values[:36], X * 8.0)
    exponents = np.zeros(48, np.uint64)
    fill_table(number(X), 0, 36, np.zeros(0), exponents, zero, SHIFTS[64])
    assert np.array_equal(exponents[:36], fields(X, SHIFTS[64], 64))


def test_binary32_subnormals_are_zeros_where_they_are_flushed():
    x = np.float32([2.0**-126, -(2.0**-127), 2.0**-149, -(2.0**-126), 1.0, 2.0**-126 - 2.0**-149])
    for flush in (False, True):
        values = np.zeros(16)
        shift = PLAIN._replace(flush=flush)
        none = np.zeros(0, np.uint64)
        fill_table(number(x), 0, 6, values, none, np.zeros(1, np.uint64), shift)
        small = np.abs(x) < 2.0**-126
        assert np.array_equal(values[:6], np.where(flush & small, 0, x).astype(float))


@pytest.mark.parametrize("width", [32, 64])
@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize(("first", "last"), [(0, 40), (3, 36), (5, 6), (16, 32)])
def test_panels_have_the_columns_in_sixteens_and_zeros_around(width, order, first, last):
    b = np.asarray(np.resize(X, (6, 40)) + np.float32(0), order=order)
    rows = np.array([4, 0, -1, 5, -1, 0])
    n = -(-(last - first) // 16)
    shift, zero = SHIFTS[width], np.zeros(1, f"u{width // 8}")
    values = np.full((n, 6, 16), -7.0, f"f{width // 8}")
    exponents = np.full((n, 6, 16), 5, zero.dtype)
    steps = tuple(s // 4 for s in b.strides)
    codes = number(b.ravel("K"))
    fill_panels(codes, rows, steps, first, last, 0, n, values, exponents, zero, shift)
    expected = np.zeros((6, n * 16), np.float32)
    expected[rows >= 0, : last - first] = b[rows[rows >= 0], first:last]
    expected = expected.reshape(6, n, 16).swapaxes(0, 1)
    assert np.array_equal(values, expected.astype(values.dtype) * 8)
    assert np.array_equal(exponents, fields(expected, shift, width))


def test_only_the_panels_asked_for_are_written():
    b = np.resize(X, (2, 40)).copy()
    values, none = np.full((3, 2, 16), -7.0, np.float32), np.zeros((0, 0, 0), np.uint32)
    zero = np.zeros(1, np.uint32)
    fill_panels(number(b.ravel()), np.arange(2), (40, 1), 0, 40, 1, 2, values, none, zero, PLAIN)
    assert np.array_equal(values[1], b[:, 16:32])
    assert set(values[0].ravel()) | set(values[2].ravel()) == {-7.0}
