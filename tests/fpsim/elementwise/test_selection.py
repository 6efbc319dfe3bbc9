"""Values chosen by masks, bounds and windows (differential): numpy, one window at a time."""

from __future__ import annotations

import numpy as np
import pytest

from fpsim.elementwise.codes import from_codes
from fpsim.elementwise.selection import (
    kept_least,
    kept_positive,
    kept_where,
    spread_windows,
    window_maxima,
)
from fpsim.records.formats import BFLOAT16, BINARY16, BINARY32, E4M3FN, F143
from fpsim.records.geometry import geometry

#: Zeros of both signs, infinities, subnormals, equal numbers.
VALUES = np.float32([0.0, -0.0, 1.5, -1.5, np.inf, -np.inf, 2.0**-24, -(2.0**-24), 3.0, 3.0])


def bits(x):
    return np.ascontiguousarray(x).view(f"u{x.itemsize}").tolist()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_mask_moves_bits(dtype):
    x = np.array([1.0, -0.0, np.nan, np.inf, 5.0, 6.0], dtype)
    x.view(f"u{x.itemsize}")[2] = {4: 0x7F800001, 8: 0x7FF0000000000001}[x.itemsize]  # signalling
    where = np.array([True, True, True, False, True, False])
    selected = kept_where(where, x)
    assert bits(selected) == [b if w else 0 for b, w in zip(bits(x), where, strict=True)]
    assert bits(kept_where(where[::-2], x[::2])) == [
        b if w else 0 for b, w in zip(bits(x[::2].copy()), where[::-2], strict=True)
    ]
    assert kept_where(np.array([[True], [False]]), x).shape == (2, 6)


@pytest.mark.parametrize("fmt", [BINARY16, BFLOAT16, E4M3FN, F143, BINARY32], ids=str)
def test_codes_tell_where_values_are_positive(fmt):
    codes = np.arange(fmt.n_codes, step=max(1, fmt.n_codes >> 16)).astype(fmt.code_dtype)
    values = from_codes(codes, fmt)
    x = np.resize(np.float32([1.0, -0.0, np.nan, -7.0]), codes.shape)
    expected = bits(kept_where(values > 0, x))
    most = codes[values > 0].max()
    assert bits(kept_positive(codes, most, x)) == expected
    assert bits(kept_positive(values.view("u4"), 0x7F800000, x)) == expected


@pytest.mark.parametrize("n", [0, 1, 15, 100, (1 << 20) + 7])
def test_a_bound_keeps_what_reaches_it(n):
    x = np.resize(VALUES, n)
    least = 2.0**-24
    assert bits(kept_least(x, least)) == bits(np.where(x >= least, x, np.float32(0)))
    if n:
        x[n // 2] = np.nan
        assert kept_least(x, least) is None


def by_windows(x, g, first):
    """Largest and positions, one window at a time; -0 < +0."""
    (ky, kx), (sy, sx), (top, left) = g.kernel, g.stride, g.before
    shape = (len(x), *g.output, x.shape[3])
    largest, positions = np.empty(shape, np.float32), np.zeros((ky * kx, *shape), bool)
    for n, i, j, c in np.ndindex(shape):
        window = []
        for p in range(ky * kx):
            y, z = i * sy - top + p // kx, j * sx - left + p % kx
            inside = 0 <= y < x.shape[1] and 0 <= z < x.shape[2]
            window.append(x[n, y, z, c] if inside else np.float32(-np.inf))
        best = max(window, key=lambda v: (v, not np.signbit(v)))
        largest[n, i, j, c] = best
        equal = [v == best for v in window]
        if first:
            equal = [p == equal.index(True) for p in range(ky * kx)]
        positions[:, n, i, j, c] = equal
    return largest, positions


CASES = [
    ((4, 6), (2, 2), 2, "VALID"), ((5, 7), (3, 2), (2, 3), "SAME"), ((4, 4), (3, 3), 1, "SAME"),
    ((7, 5), (2, 2), (3, 2), "VALID"), ((8, 8), (4, 4), 4, ((1, 2), (0, 3))),
]


@pytest.mark.parametrize("first", [False, True])
@pytest.mark.parametrize(("image", "kernel", "stride", "padding"), CASES)
def test_largest_of_windows(image, kernel, stride, padding, first):
    g = geometry(image, kernel, stride, padding)
    x = np.random.default_rng(1).choice(VALUES, (2, *image, 3))
    largest, positions = by_windows(x, g, first)
    result = window_maxima(x, g, first=first)
    assert result is not None
    assert bits(result[0]) == bits(largest)
    packed = np.packbits(positions, axis=0, bitorder="little")
    np.testing.assert_array_equal(result[1], packed)
    x[0, 0, 0, 0] = np.nan
    assert window_maxima(x, g, first=first) is None


def by_positions(values, positions, g):
    """The image with the value of each window at its chosen positions."""
    out = np.zeros((len(values), *g.image, values.shape[3]), values.dtype)
    (_, kx), (sy, sx), (top, left) = g.kernel, g.stride, g.before
    for p, n, i, j, c in np.argwhere(positions):
        y, z = i * sy - top + p // kx, j * sx - left + p % kx
        if 0 <= y < g.image[0] and 0 <= z < g.image[1]:
            out[n, y, z, c] = values[n, i, j, c]
    return out


@pytest.mark.parametrize(
    "dtype", [np.float32, pytest.param(np.float64, marks=pytest.mark.tier("full"))]
)
@pytest.mark.parametrize(("image", "kernel", "stride", "padding"), [CASES[0], *CASES[3:]])
def test_values_go_back_to_the_chosen_positions(image, kernel, stride, padding, dtype):
    g = geometry(image, kernel, stride, padding)
    x = np.random.default_rng(2).choice(VALUES, (2, *image, 3))
    largest, positions = by_windows(x, g, False)
    values = np.arange(1, largest.size + 1, dtype=dtype).reshape(largest.shape)
    packed = np.packbits(positions, axis=0, bitorder="little")
    expected = by_positions(values, positions, g)
    np.testing.assert_array_equal(spread_windows(values, packed, g), expected)


@pytest.mark.parametrize("channels", [1, 2, 10, 15, 16, 17, 31, 32, 33, 70])
def test_windows_of_any_size_and_number_of_channels(channels):
    rng = np.random.default_rng(channels)
    for _ in range(6):
        image, kernel = tuple(rng.integers(3, 7, 2).tolist()), tuple(rng.integers(1, 4, 2).tolist())
        stride = tuple(rng.integers(1, 5, 2).tolist())
        padding = ("VALID", "SAME", ((1, 0), (0, 2)))[rng.integers(3)]
        g, first = geometry(image, kernel, stride, padding), bool(rng.integers(2))
        x = rng.choice(VALUES, (2, *image, channels))
        largest, positions = by_windows(x, g, first)
        packed = np.packbits(positions, axis=0, bitorder="little")
        result = window_maxima(x, g, first=first)
        assert result is not None
        assert bits(result[0]) == bits(largest)
        np.testing.assert_array_equal(result[1], packed)
        if all(k <= s for k, s in zip(kernel, stride, strict=True)):
            values = rng.choice(VALUES, largest.shape)
            spread = spread_windows(values, packed, g)
            assert bits(spread) == bits(by_positions(values, positions, g))
