"""Contractions of two operands whose shared axes differ in length (corners)."""

from __future__ import annotations

import numpy as np
import pytest

from fpsim import BINARY32
from ipu import ops
from tests.ipu.ops.bits import machine, numbers


@pytest.mark.parametrize(
    ("equation", "shapes"),
    [
        ("ij,jk->ik", [(2, 1), (0, 3)]), ("ij,jk->ik", [(2, 0), (1, 3)]),
        ("bi,bi->b", [(1, 4), (0, 4)]), ("bij,bjk->bik", [(0, 2, 3), (1, 3, 2)]),
        ("ij,jk->ik", [(2, 1), (3, 3)]), ("bi,bi->bi", [(3, 1), (1, 4)]),
    ],
)
def test_an_axis_of_one_takes_the_length_of_the_other_even_of_none(equation, shapes):
    device = machine()
    arrays = [np.round(8 * numbers(shape, BINARY32, k)) for k, shape in enumerate(shapes)]
    operands = [device.from_host(a, BINARY32) for a in arrays]
    z = ops.einsum.value(device, *operands, equation=equation)
    expected = np.einsum(equation, *arrays)
    assert z.shape == expected.shape
    np.testing.assert_array_equal(z.to_numpy(), expected)
