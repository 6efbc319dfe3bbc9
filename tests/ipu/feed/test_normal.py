"""Inputs that are not normalised are told (golden sentences, corners)."""

from __future__ import annotations

import numpy as np
import pytest

from ipu.feed.normal import OFFSET, SIZE, not_normalised

RNG = np.random.default_rng(0)


@pytest.mark.source("S4-48")
def test_pixels_from_0_to_255_are_told_and_the_same_divided_are_not():
    pixels = RNG.integers(0, 256, (8, 28, 28)).astype(np.float32)
    (sentence,) = not_normalised([pixels])
    mean, deviation = pixels.mean(dtype=float), pixels.std(dtype=float)
    assert sentence == (
        f"input 0 is not normalised: root mean square {np.hypot(mean, deviation):.5g}, mean "
        f"{mean:.5g}, deviation {deviation:.5g}; subtract the mean and divide by the deviation"
    )
    assert not list(not_normalised([pixels / 255]))
    assert not list(not_normalised([(pixels - mean) / deviation]))


@pytest.mark.source("S4-48")
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_an_offset_beside_small_deviations_is_told(dtype):
    far = (5 + RNG.normal(size=100) / 2).astype(dtype)
    assert [s.partition(":")[0] for s in not_normalised([far[:3], far, far - 5])] == [
        "input 1 is not normalised"
    ]


def test_limits_are_those_of_the_constants():
    signs = np.tile([1.0, -1.0], 50)
    assert not list(not_normalised([SIZE.value * signs]))
    assert list(not_normalised([1.001 * SIZE.value * signs]))
    assert not list(not_normalised([2 + 2 / OFFSET.value * signs]))
    assert list(not_normalised([2 + 1.99 / OFFSET.value * signs]))


def test_integers_a_few_numbers_and_what_is_not_finite_say_nothing():
    assert not list(not_normalised([np.arange(1000), np.full(15, 1e3), np.full(100, np.inf)]))
    assert list(not_normalised([np.append(np.full(100, 1e3), np.nan)]))
    assert not list(not_normalised([np.ones(100)]))
