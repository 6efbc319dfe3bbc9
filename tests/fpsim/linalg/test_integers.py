"""Products of bytes are exact, and wrap as 32-bit integers do (differential, corners)."""

from __future__ import annotations

import numpy as np
import pytest

from fpsim import linalg


@pytest.mark.parametrize(("left", "right"), [(np.int8, np.int8), (np.uint8, np.int8)])
def test_products_are_those_of_whole_numbers(left, right):
    random = np.random.default_rng(0)
    a, b = (random.integers(np.iinfo(t).min, np.iinfo(t).max + 1, shape, t)
            for t, shape in ((left, (2, 5, 70)), (right, (70, 3))))
    product = linalg.integer_matmul(a, b)
    assert product.dtype == np.int32
    assert np.array_equal(product, a.astype(object) @ b.astype(object))
    assert linalg.integer_matmul(a[:, :, :0], b[:0]).tolist() == [[[0] * 3] * 5] * 2


def test_sums_wrap_or_are_refused():
    a = np.full((1, 150_000), 127, np.int8)
    total = 127 * 127 * 150_000
    assert linalg.integer_matmul(a, a.T).item() == (total + 2**31) % 2**32 - 2**31 != total
    with pytest.raises(OverflowError, match="a sum of 150000 products is beyond int32"):
        linalg.integer_matmul(a, a.T, overflow="refuse")
    assert linalg.integer_matmul(a[:, :9], a[:, :9].T, overflow="refuse").item() == 127 * 127 * 9


@pytest.mark.parametrize(
    ("a", "b", "options", "message"),
    [
        (np.eye(2), np.eye(2, dtype=np.int8), {}, "a is float64; give an ndarray of int8 or uint8"),
        ([[1]], np.eye(1, dtype=np.int8), {}, "a is list; give an ndarray"),
        (np.int8([[1]]), np.int8([[1], [2]]), {}, "last dimension of a"),
        (np.int8([[1]]), np.int8([[1]]), {"overflow": "clamp"}, "overflow='clamp' is not offered"),
    ],
)
def test_what_is_no_product_of_bytes_is_refused(a, b, options, message):
    with pytest.raises((TypeError, ValueError), match=message):
        linalg.integer_matmul(a, b, **options)
