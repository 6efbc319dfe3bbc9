"""Loss scales from exponents: against rounding the scaled gradients (differential, golden)."""

from __future__ import annotations

import numpy as np
import pytest

from fpsim import BINARY16, BINARY32, round_to
from ipu.run.exponents import Exponents, Histogram
from ipu.run.loss_scales import find_scales


def histograms(values, fmt=BINARY16):
    exponents = Exponents()
    exponents.add("layer", fmt, values)
    return list(exponents)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("size", [2.0**-14, 2.0**-6, 1.0])
def test_the_highest_safe_scale_is_the_last_that_does_not_overflow(seed, size):
    values = np.random.default_rng(seed).normal(size=500) * size
    held = round_to(values, BINARY16).astype(np.float32)
    scales = find_scales(histograms(held))
    largest = float(np.abs(held).max())
    assert largest * scales.highest_safe <= BINARY16.max
    assert largest * scales.highest_safe * 2 > BINARY16.max
    assert scales.best <= max(scales.highest_safe / 4, scales.present)


def test_the_best_scale_leaves_a_quarter_of_the_range_to_other_batches():
    rows = [Histogram("head", BINARY16, {-24: 1000, top: 1}, 0, 0) for top in (9, 13, 14, 16)]
    assert [find_scales([row]).highest_safe for row in rows] == [64.0, 4.0, 2.0, 0.5]
    assert [find_scales([row]).best for row in rows] == [16.0, 1.0, 1.0, 0.5]


def test_the_best_scale_brings_all_values_into_the_normal_range():
    scales = find_scales([Histogram("head", BINARY16, {-24: 5, -16: 5}, 0, 0)])
    assert scales.best == 2.0**10  # -24 becomes -14, the exponent of the smallest normal number
    assert scales.lost[1] == 0 < scales.lost[0]


def test_the_present_scale_is_kept_where_nothing_is_lost():
    scales = find_scales([Histogram("head", BINARY16, {-3: 5}, 0, 0)], present=8.0)
    assert (scales.present, scales.best, scales.highest_safe) == (8.0, 8.0, 2.0**21)


def test_a_wide_range_takes_the_scale_that_loses_least():
    scales = find_scales([Histogram("head", BINARY16, {-24: 1000, 15: 1}, 0, 0)])
    assert scales.best == scales.highest_safe == 1.0
    assert scales.limited_by == "head"


def test_results_that_vanished_speak_for_a_higher_scale():
    histogram_list = [Histogram("head", BINARY16, {-14: 100}, 0, 0)]
    assert find_scales(histogram_list).best == 1.0
    assert find_scales(histogram_list, vanished=100).best == 2.0**11


def test_zeros_beside_subnormal_gradients_are_of_unknown_size():
    """A chain of products: what vanished in one layer is an exact zero in all before it."""
    chain = [
        Histogram("c", BINARY16, {-9: 90}, 4, 0), Histogram("b", BINARY16, {-20: 9}, 50, 0),
        Histogram("a", BINARY16, {}, 64, 0), Histogram("wide", BINARY32, {}, 7, 0),
    ]
    assert find_scales(chain).unseen == 50 + 64
    assert find_scales(chain[:1]).unseen == 0  # zeros of a ReLU


def test_gradients_that_overflowed_have_no_safe_scale():
    scales = find_scales([Histogram("a", BINARY16, {15: 1}, 0, 0)], overflowed="a")
    assert (scales.highest_safe, scales.best, scales.limited_by) == (None, None, "a")


def test_binary32_gradients_need_no_scale():
    assert find_scales([Histogram("a", BINARY32, {-60: 1}, 0, 0)]) is None
    assert find_scales([]) is None


def test_what_a_scale_multiplies_beside_gradients_bounds_it():
    rows = [Histogram("head", BINARY16, {-20: 30, -3: 1}, 0, 0)]
    assert find_scales(rows).highest_safe == 2.0**18
    scales = find_scales(rows, bounds={("loss", BINARY16): 5.0})
    assert (scales.highest_safe, scales.limited_by) == (2.0**13, "loss")  # 5 · 8192 < 65504
    scales = find_scales(rows, 2.0**15, bounds={("loss", BINARY16): 5.0 * 2**15})
    assert scales.highest_safe == 2.0**13


def test_without_a_finite_gradient_there_is_the_scale_that_was_too_high():
    dead = [Histogram("head", BINARY16, {}, 0, 9)]
    assert find_scales(dead) is None
    scales = find_scales(dead, 2.0**18, bounds={("loss", BINARY16): 2.0**18})
    assert (scales.present, scales.highest_safe, scales.best) == (2.0**18, 2.0**15, 2.0**15)
    scales = find_scales(dead, 2.0**18, overflowed="head")
    assert (scales.present, scales.best, scales.limited_by) == (2.0**18, None, "head")
