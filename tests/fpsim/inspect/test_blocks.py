"""Profiles of block-scaled arrays: differential against counts by hand, and shapes (golden)."""

from __future__ import annotations

import math

import numpy as np
import pytest

from fpsim.inspect.blocks import block_profile, filled, signal_to_noise
from fpsim.records.blocks import find_block

#: The magnitudes of E2M1; a number from 7 on would round to 8, which it does not have.
GRID = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6])
CLIPPED_FROM = 7.0


def by_hand(blocks):
    """Values and clipped elements under the largest power of two of each block, divided by 4."""
    scales = np.exp2(np.floor(np.log2(np.abs(blocks).max(axis=1, keepdims=True))) - 2)
    magnitudes = np.abs(blocks) / scales
    near = np.abs(magnitudes[..., None] - GRID).argmin(axis=-1)
    return np.copysign(GRID[near], blocks) * scales, magnitudes >= CLIPPED_FROM


def test_shares_are_those_counted_by_hand():
    x = np.random.default_rng(5).standard_normal((6, 64)).astype(np.float32)
    p = block_profile(x, "mxfp4")
    values, clipped = by_hand(x.astype(np.float64).reshape(-1, 32))
    error = values.ravel() - x.ravel()
    assert (p.elements, p.blocks) == (x.size, 12)
    assert p.flushed == np.count_nonzero(values == 0) / x.size > 0
    assert p.clipped == np.count_nonzero(clipped) / x.size > 0
    assert p.sqnr == pytest.approx(10 * math.log10(np.sum(x**2.0) / np.sum(error**2)), rel=1e-6)
    assert p.gain == pytest.approx(np.sum(values.ravel() * x.ravel()) / np.sum(x**2.0), rel=1e-6)
    assert (p.zero_scales, p.scale_underflows, p.scale_overflows, p.nans) == (0, 0, 0, 0)


def test_blocks_lie_along_the_axis():
    x = np.exp2(np.random.default_rng(6).integers(-8, 9, (32, 2, 3))).astype(np.float32)
    assert block_profile(x, "mxfp4", axis=0) == block_profile(np.moveaxis(x, 0, -1), "mxfp4")
    assert block_profile(x, "mxfp4", axis=0).blocks == 6


def test_a_number_is_an_array_of_one_element():
    assert block_profile(6.0, "mxfp4") == block_profile([6.0], "mxfp4")
    assert block_profile(6.0, "mxfp4").sqnr == math.inf


@pytest.mark.parametrize("shape", [(0,), (0, 3), (3, 0), (2, 0, 4)])
def test_nothing_has_no_blocks_and_no_error(shape):
    p = block_profile(np.zeros(shape), "mxfp4")
    assert (p.elements, p.blocks, p.sqnr, p.flushed, p.clipped) == (0, 0, math.inf, 0, 0)
    assert math.isnan(p.gain)


def test_zeros_fill_the_ends_of_axes_that_blocks_do_not_divide():
    x = np.ones((2, 33))
    assert filled(x, find_block("mxfp4")).shape == (2, 64)
    assert filled(x, find_block("mxfp4"), axis=0).shape == (32, 33)
    assert filled(x, find_block("nvfp4-2d")).shape == (16, 48)
    assert filled(x, find_block("mxfp4")).sum() == x.sum()
    assert filled(np.float64(1), find_block("mxfp4")).shape == (32,)


@pytest.mark.parametrize(
    ("values", "x", "expected"),
    [
        ([0.0], [1.0], (0.0, 0.0)), ([2.0], [1.0], (0.0, 2.0)), ([1.0], [1.0], (math.inf, 1.0)),
        ([1.0], [0.0], (math.nan, math.nan)), ([math.nan], [1.0], (math.nan, math.nan)),
        ([0.0, 0.9], [0.0, 1.0], (20.0, 0.9)),
    ],
)
def test_ratios_of_signals_to_noise(values, x, expected):
    assert signal_to_noise(values, x) == pytest.approx(expected, rel=1e-12, nan_ok=True)
