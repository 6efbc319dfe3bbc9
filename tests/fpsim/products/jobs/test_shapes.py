"""Shapes of matrix products: differential (numpy's matmul), refusals."""

from __future__ import annotations

import numpy as np
import pytest

from fpsim.products.jobs.shapes import result_shape, row_and_column

FITTING = [
    ((2, 3), (3, 4)), ((0, 3), (3, 4)), ((2, 0), (0, 4)), ((5, 2, 3), (3, 4)), ((2, 3), (5, 3, 4)),
    ((5, 1, 2, 3), (4, 3, 7)), ((1, 2, 3), (6, 3, 1)), ((0, 2, 3), (1, 3, 2)),
]


@pytest.mark.parametrize(("a", "b"), FITTING, ids=str)
def test_the_shape_is_that_of_numpys_product(a, b):
    assert result_shape(a, b) == np.matmul(np.zeros(a), np.zeros(b)).shape


@pytest.mark.parametrize(
    ("a", "b", "message"),
    [
        ((3,), (3, 4), "one row or column"),
        ((2, 3), (3,), "one row or column"),
        ((), (3, 4), "one row or column"),
        ((2, 3), (4, 3), "last dimension of a"),
        ((2, 2, 3), (2, 3), "last dimension of a"),
        ((2, 2, 3), (3, 3, 4), "do not broadcast"),
        ((5, 2, 2, 3), (4, 3, 3, 4), "do not broadcast"),
    ],
    ids=str,
)
def test_shapes_that_do_not_fit_are_refused(a, b, message):
    with pytest.raises(ValueError, match=message) as caught:
        result_shape(a, b)
    assert str(a) in str(caught.value)
    assert str(b) in str(caught.value)


@pytest.mark.parametrize(("a", "b"), [f for f in FITTING if 0 not in (*f[0], *f[1])], ids=str)
def test_the_row_and_the_column_give_the_element(a, b):
    rng = np.random.default_rng(1)
    x, y = rng.integers(-9, 9, a).astype(float), rng.integers(-9, 9, b).astype(float)
    product = np.matmul(x, y)
    for index in np.ndindex(product.shape):
        row, column = row_and_column(x, y, index)
        assert row.shape == column.shape == (a[-1],)
        assert row @ column == product[index]
