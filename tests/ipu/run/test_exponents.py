"""Exponents of values (exhaustive over binary16, law, golden)."""

from __future__ import annotations

import numpy as np
import pytest

from fpsim import BINARY16, BINARY32
from ipu.run.exponents import Exponents, count_exponents


def biased_exponents(values):
    """The exponent field of each binary32 value."""
    return np.float32(values).reshape(-1).view(np.uint32) >> 23 & 255


def test_every_binary16_value_has_its_exponent():
    codes = np.arange(1 << 14, dtype=np.uint16)  # a sample holds all of them
    values = codes.view(np.float16).astype(np.float32)
    _, exponents = np.frexp(values[values != 0])
    expected = {0: 1} | {int(e) - 1 + 127: int((exponents == e).sum()) for e in set(exponents)}
    counts = count_exponents(values)
    assert {int(i): int(counts[i]) for i in np.flatnonzero(counts)} == expected
    assert np.flatnonzero(count_exponents(np.float32([0.0, -0.0]))).tolist() == [0]
    for value in (np.inf, -np.inf, np.nan):
        assert np.flatnonzero(count_exponents(np.float32([value]))).tolist() == [255]


def test_arrays_without_contiguous_memory():
    values = np.float32([[1.0, 4.0], [2.0, 8.0]]).T
    assert count_exponents(values)[127:131].tolist() == [1, 1, 1, 1]


@pytest.mark.parametrize("size", [1, 1000, 16384, 16385, 100_000, 300_001])
def test_counts_add_up_and_hold_the_largest(size):
    values = np.random.default_rng(0).normal(size=size).astype(np.float32)
    values[size // 2] = 2.0**20  # one value that a sample may miss
    counts = count_exponents(values)
    assert counts.sum() == pytest.approx(size, rel=0.01)
    assert counts[20 + 127] >= 1
    assert not counts[21 + 127 :].any()


@pytest.mark.parametrize("nan", [0x7FC00000, 0x7F800001, 0xFF800001])
@pytest.mark.parametrize("last", [1, 2, 5, 17])
def test_a_nan_hides_no_largest_value(nan, last):
    """A signalling one least of all, wherever the vectors of the processor end."""
    values = np.ones(50_000 + last, np.float32)
    values[-2] = -(2.0**20)  # the sample misses it
    values.view(np.uint32)[-1] = nan
    counts = count_exponents(values)
    assert counts[20 + 127] >= 1


def test_a_large_sample_is_close_to_all_values():
    values = np.random.default_rng(1).normal(size=200_000).astype(np.float32)
    exact = np.bincount(biased_exponents(values), minlength=256)
    # The share of 15 000 values deviates by less than 0.02, but for one run in a million.
    assert np.abs(count_exponents(values) - exact).max() < 0.02 * values.size


def test_histograms_of_names_and_formats():
    exponents = Exponents()
    exponents.add("a", BINARY16, np.float32([1.0, 0.0]))
    exponents.add("a", BINARY16, np.float32([1.5, np.inf, np.nan]))
    exponents.add("a", BINARY32, np.float32([2.0**-30]))
    exponents.replace("b", BINARY16, np.float32([4.0]))
    exponents.replace("b", BINARY16, np.float32([8.0]))
    first, wide, last = exponents
    assert (first.counts, first.zeros, first.nonfinite, first.size) == ({0: 2}, 1, 2, 5)
    assert first.highest == 0
    assert (wide.format, wide.counts) == (BINARY32, {-30: 1})
    assert last.counts == {3: 1}


def test_values_are_not_changed():
    values = np.float32([1.0, 2.0])
    values.flags.writeable = False
    count_exponents(values)
