"""Weighted neighbours: a product with the matrix of weights, axis after axis (differential)."""

from __future__ import annotations

import numpy as np
import pytest

from fpsim import BINARY32
from ipu.frontends.arrays.neighbours import resample
from ipu.machine import Device

ROWS = np.array([[1, 0, 0], [0.5, 0.5, 0], [0, 0, 0], [0, 0.25, 0.75]])
COLUMNS = np.array([[0, 1], [0.5, 0.5]])


@pytest.mark.parametrize("first", [0, 1])
def test_images_are_multiplied_by_the_weights(first):
    """Sixteenths: the sums are exact."""
    device = Device()
    axes = {0: (2, 3, 2), 1: (1, 3, 2, 2)}[first]
    x = np.random.default_rng(0).integers(-8, 9, axes).astype(float)
    y = resample(device, device.from_host(x, BINARY32), [ROWS, COLUMNS], first)
    pattern = "ri,cj,bijk->brck" if first else "ri,cj,bij->brc"
    np.testing.assert_array_equal(y.carrier, np.einsum(pattern, ROWS, COLUMNS, x))
