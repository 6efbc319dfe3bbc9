"""Shapes of matrix products and stacks: differential (numpy's matmul), refusals."""

from __future__ import annotations

import numpy as np
import pytest

from fpsim.products.jobs.job import Job
from fpsim.products.jobs.shapes import result_shape, row_and_column
from fpsim.products.jobs.stack import Stack

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


def test_a_stack_has_the_rows_of_all_its_matrices():
    assert Stack(np.zeros((4, 3, 2), np.float32)).shape == (12, 2)


def test_a_job_looks_at_all_the_numbers():
    a, b = np.float32([[[1]], [[-8]]]), np.float32([[[0]], [[0.5]]])
    job = Job(None, Stack(a), b, np.zeros((2, 1), np.float32), None, fresh=True)
    assert job.reach()[:4] == (1.0, 8.0, 0.5, 0.5)
