"""Right operands as panels of columns: law (element by element)."""

from __future__ import annotations

import numpy as np
import pytest

from fpsim.products.by_operation.panels import column_panels


@pytest.mark.parametrize("dtype", [None, np.float64])
@pytest.mark.parametrize("depth", [None, 3, 5])
@pytest.mark.parametrize("n", [1, 4, 7, 8])
def test_every_element_has_its_place_and_the_rest_is_zeros(n, depth, dtype):
    b = np.arange(1.0, 3 * n + 1).reshape(3, n).astype(np.float32)
    panels = column_panels(b, 4, depth, dtype)
    assert panels.shape == (-(-n // 4), depth or 3, 4)
    assert panels.dtype == (dtype or np.float32)
    assert panels.flags.c_contiguous
    for (panel, k, column), value in np.ndenumerate(panels):
        j = 4 * panel + column
        assert value == (b[k, j] if k < 3 and j < n else 0)
        # -0 times a number of either sign is added without a change, also to -0.
        assert np.signbit(value) == (k >= 3)


def test_a_transposed_operand_is_read_by_its_strides():
    b = np.arange(12.0, dtype=np.float32).reshape(4, 3).T
    np.testing.assert_array_equal(column_panels(b, 4)[0], b)
