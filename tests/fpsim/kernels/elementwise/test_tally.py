"""Results counted in one pass beside numpy (corners, differential)."""

from __future__ import annotations

import numpy as np
import pytest

from fpsim.kernels.elementwise.tally import TALLIED, tally_results, tally_values

#: Zeros of both signs, the ends of the subnormals, infinities, quiet and signalling NaNs.
CORNERS = np.array([
    0, 1 << 31, 1, 0x7FFFFF, 0x800000, 0x80800000, 0x3F800000, 0x7F7FFFFF, 0x7F800000, 0xFF800000,
    0x7FC00000, 0xFF800001,
], np.uint32)
SIZES = pytest.mark.parametrize("n", [1, 15, 128, 1000, 4099])


def numbers_of(n, kind):
    rng = np.random.default_rng(n)
    if kind == "usual":
        return rng.uniform(0.5, 2.0, n).astype(np.float32)
    bits = rng.choice(CORNERS[:-4] if kind == "finite" else CORNERS, n)
    return bits.view(np.float32)


@SIZES
@pytest.mark.parametrize("kind", ["usual", "finite", "any"])
def test_values(n, kind):
    values, fields = numbers_of(n, kind), np.zeros(256, np.int64)
    zeros, most, number = tally_values(values.view(np.uint32), 0, 1, fields)
    magnitudes = values.view(np.uint32) & np.uint32(0x7FFFFFFF)
    assert zeros == np.count_nonzero(magnitudes == 0)
    assert most == magnitudes.max()
    assert number == max([int(m) for m in magnitudes if m <= 0x7F800000], default=0)
    np.testing.assert_array_equal(fields, np.bincount(magnitudes >> 23, minlength=256))


@SIZES
@pytest.mark.parametrize("kind", ["usual", "finite", "any"])
@pytest.mark.parametrize("smallest", [2.0**-126, 1.0])
def test_results(n, kind, smallest):
    values = numbers_of(n, kind)
    marks = np.random.default_rng(n).integers(0, 32, n).astype(np.uint8)
    numbers = np.full(TALLIED, -1, np.int64)
    tally_results(values, marks, np.float32(smallest), numbers)
    small = np.count_nonzero((values != 0) & (np.abs(values) < smallest))
    expected = [np.count_nonzero(values == 0), small]
    expected += [np.count_nonzero(marks >> flag & 1) for flag in range(5)]
    assert numbers.tolist() == expected
