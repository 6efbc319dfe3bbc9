"""The digits: exact in every format here, and split without overlap (law)."""

from __future__ import annotations

import numpy as np

from fpsim import BINARY16, round_to
from ipu.experiments.training import digits


def test_the_images_are_exact_in_half():
    images = digits.load().images
    assert images.shape == (1797, 64)
    assert (round_to(images, BINARY16) == images).all()


def test_no_digit_is_learnt_from_and_tested_with():
    learn, test = digits.load().split(3)
    assert sorted([*learn, *test]) == list(range(1797))
    assert len(test) == digits.HELD_BACK


def test_batches_are_whole_disjoint_and_differ_by_epoch():
    learn, _ = digits.load().split(0)
    first, second = (np.concatenate(list(digits.batches(learn, 32, 0, e))) for e in (1, 2))
    assert len(set(first.tolist())) == len(first) == len(learn) // 32 * 32
    assert (first != second).any()
