"""Dropout: its mask, its gradient, its seeds (law, statistical)."""

from __future__ import annotations

import numpy as np
import pytest

from ipu.ops.random import seeded_mask
from tests.ipu.frontends.tensorflow.framework import configured, ipu, launch, machine, tf

dropout = ipu.rand_ops.dropout


def dropped(*arguments, seed=0, **options):
    """What a dropout of ones gives on the machine, and its gradient."""

    @tf.function
    def compute(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = dropout(x, **options)
        return y, tape.gradient(y, x)

    with machine(seed=seed):
        return [result.numpy() for result in launch(compute, tf.ones(*arguments))]


def test_a_share_is_zero_and_the_gradient_has_the_same_mask():
    y, slope = dropped((64, 64), rate=0.25)
    np.testing.assert_array_equal(y, slope)
    assert set(np.unique(y)) == {0, np.float32(1 / 0.75)}
    # 4096 draws: the share is within five deviations of 0.0068.
    assert abs(np.mean(y == 0) - 0.25) < 0.034


def test_halves_stay_halves():
    y, slope = dropped((8, 8), tf.half, rate=0.5)
    assert y.dtype == slope.dtype == np.float16
    assert set(np.unique(y)) <= {0, 2}


def test_masks_follow_the_seed_of_the_machine_or_the_one_of_the_user():
    first, again, other = (dropped((32, 32), seed=seed)[0] for seed in (0, 0, 1))
    np.testing.assert_array_equal(first, again)
    assert (first != other).any()
    with machine(seed=0):
        a = launch(tf.function(lambda x: dropout(x, seed=[1, 2])), tf.ones((32, 32)))
    with machine(seed=5):
        b = launch(tf.function(lambda x: dropout(x, seed=[1, 2])), tf.ones((32, 32)))
    np.testing.assert_array_equal(a, b)
    np.testing.assert_array_equal(a, dropout(tf.ones((32, 32)), seed=[1, 2]))
    assert (seeded_mask([1, 2], 1, (64,), 0.5) != seeded_mask([1, 2], 2, (64,), 0.5)).any()


def test_every_step_of_a_loop_has_its_own_mask():
    def body(total):
        return total + dropout(tf.ones((64,)), rate=0.5)

    @tf.function
    def four():
        return ipu.loops.repeat(4, body, [tf.zeros((64,))])

    with machine():
        configured()
        total = launch(four).numpy()
    assert len(np.unique(total)) > 2


def test_noise_has_a_shape_of_its_own():
    y, _ = dropped((16, 8), noise_shape=[16, 1], rate=0.5)
    assert ((y == 0).all(1) | (y == 2).all(1)).all()
    x = tf.ones((4, 8))
    with pytest.raises(ValueError, match="Dimension mismatch, 4 != 2"):
        dropout(x, noise_shape=[2, 8])
    with pytest.raises(ValueError, match="length of noise_shape must equal the rank of x"):
        dropout(x, noise_shape=[8])


def test_messages():
    with pytest.raises(ValueError, match=r"The rate must be in the range \[0, 1\), but was 1"):
        dropout(tf.ones(3), rate=1)
    with pytest.raises(ValueError, match=r"Expected the seed to have a shape \[2\]"):
        dropout(tf.ones(3), seed=[1, 2, 3])
