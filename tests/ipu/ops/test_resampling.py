"""Weighted neighbours: a product with the matrix of weights, axis after axis (differential)."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fpsim import BINARY16, BINARY32
from ipu import ops
from ipu.machine import Device

ROWS = np.array([[1, 0, 0], [0.5, 0.5, 0], [0, 0, 0], [0, 0.25, 0.75]])
COLUMNS = np.array([[0, 1], [0.5, 0.5]])


@pytest.mark.parametrize("first", [None, 1])
def test_images_are_multiplied_by_the_weights(first):
    """Sixteenths: the sums are exact."""
    device = Device()
    axes = {None: (2, 3, 2), 1: (1, 3, 2, 2)}[first]
    x = np.random.default_rng(0).integers(-8, 9, axes).astype(float)
    images = device.from_host(x, BINARY32)
    y, saved = ops.resample.forward(device, images, weights=[ROWS, COLUMNS], first=first)
    pattern = "ri,cj,bijk->brck" if first else "ri,cj,bij->brc"
    expected = np.einsum(pattern, ROWS, COLUMNS, x)
    np.testing.assert_array_equal(y.carrier, expected)
    back = ops.resample.pull(0, device, y, saved, weights=[ROWS, COLUMNS], first=first)
    pattern = "ri,cj,brck->bijk" if first else "ri,cj,brc->bij"
    np.testing.assert_array_equal(back.carrier, np.einsum(pattern, ROWS, COLUMNS, expected))


def along(x, weights):
    """Each output in binary32, term by term in order of index."""
    outputs = []
    for row in np.float32(weights):
        terms = [np.float32(w * v) for w, v in zip(row, x, strict=True) if w]
        total = terms[0] if terms else np.float32(0)
        for term in terms[1:]:
            total = np.float32(total + term)
        outputs.append(total)
    return np.array(outputs, np.float32)


@given(st.integers(0, 10**6), st.integers(1, 5), st.integers(1, 5), st.booleans())
def test_an_output_is_a_chain_of_its_neighbours_rounded_once(seed, n, m, keeps_wide):
    random, device = np.random.default_rng(seed), Device(f32_denormals="ieee")
    x = random.normal(size=n).astype(np.float16)
    weights = random.integers(-2, 3, (m, n)) / 3
    to = BINARY32 if keeps_wide else None
    y = ops.resample.value(device, device.from_host(x, BINARY16), weights=[weights], to=to)
    expected = along(x.astype(np.float32), weights)
    expected = expected if keeps_wide else expected.astype(np.float16)
    np.testing.assert_array_equal(y.carrier, expected.astype(np.float32))
