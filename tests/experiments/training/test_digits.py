"""The digits: exact in every format here, and split without overlap (law)."""

from __future__ import annotations

import numpy as np

from fpsim import BINARY16, round_to
from ipu.experiments.lab.variants import Variant
from ipu.experiments.training import digits
from ipu.experiments.training.digit_runs import train
from ipu.learn.optim import SGD
from ipu.learn.policy import FP16


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


STOCHASTIC = Variant("FP16 + SR", FP16, stochastic=True)


def weights(draws):
    trained = train(STOCHASTIC, SGD(0.01), 0, 1, draws=draws)
    return np.concatenate([v.array.values.ravel() for v in trained.trainer.variables.values()])


def test_the_same_training_twice_and_another_stretch_of_bits(few_digits):
    assert np.array_equal(weights(0), weights(0))
    assert not np.array_equal(weights(0), weights(1))


def test_steps_cut_the_epoch_short(few_digits):
    trained = train(STOCHASTIC, SGD(0.01), 0, 2, steps=3)
    assert trained.losses.shape == (2, 3)
    assert train(STOCHASTIC, SGD(0.01), 0, 1).losses.shape == (1, few_digits)
    assert 0 <= trained.accuracy <= 1


def test_exceptions_are_counted_where_asked(few_digits):
    assert train(STOCHASTIC, SGD(0.01), 0, 1, steps=1, counted=True).trainer.device.counts
    assert not train(STOCHASTIC, SGD(0.01), 0, 1, steps=1).trainer.device.counts
