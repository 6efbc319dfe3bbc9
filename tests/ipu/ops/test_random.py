"""Random numbers: bits, ranges, and what a seed decides (law)."""

from __future__ import annotations

import numpy as np
import pytest

from fpsim import BINARY16, BINARY32
from ipu import ops
from ipu.machine import Device
from ipu.ops.random import seeded_mask


def drawn(row, fmt, seed=0, shape=(5000,), **options):
    generator = np.random.default_rng(seed)
    return row.value(Device(), shape=shape, generator=generator, dtype=fmt, **options).values


@pytest.mark.parametrize(("fmt", "bits"), [(BINARY16, 10), (BINARY32, 23)])
def test_uniform_numbers_have_the_bits_of_their_format(fmt, bits):
    x = drawn(ops.uniform, fmt).astype(float)
    assert (x * 2**bits == np.floor(x * 2**bits)).all()
    assert (x * 2 ** (bits - 1) != np.floor(x * 2 ** (bits - 1))).any()
    assert x.min() >= 0
    assert x.max() < 1


def test_more_bits_than_the_format_holds_are_rounded():
    x = drawn(ops.uniform, BINARY16, bits=23)
    wide = drawn(ops.uniform, BINARY32)
    np.testing.assert_array_equal(x, wide.astype(np.float16))


def test_truncated_numbers_lie_within_two_deviations():
    x = drawn(ops.truncated_normal, BINARY32)
    assert np.abs(x).max() <= 2
    assert 0.7 < x.var() < 0.85  # 0.7737, standard error 0.012
    assert np.abs(drawn(ops.normal, BINARY32)).max() > 3


def test_normal_numbers_are_those_of_the_generator_rounded_once():
    expected = np.random.default_rng(3).standard_normal(5000).astype(np.float16)
    np.testing.assert_array_equal(drawn(ops.normal, BINARY16, seed=3), expected)


def test_a_deviation_is_multiplied_before_the_mean_is_added():
    device = Device()
    z, mean, deviation = (device.from_host(x, BINARY16) for x in (0.3, 1.7, 0.7))
    result = ops.shifted_normal.value(device, z, mean, deviation)
    assert float(result) == np.float16(1.7) + np.float16(0.7) * np.float16(0.3)


def test_a_mask_keeps_as_many_of_65536_as_the_probability_says():
    masks = [seeded_mask([1, 2], 0, (1 << 16,), keep) for keep in (0.0, 0.25, 1.0)]
    assert [m.mean() for m in masks][::2] == [0, 1]
    assert abs(masks[1].mean() - 0.25) < 0.01
    assert (masks[1] == seeded_mask([1, 2], 2**64, (1 << 16,), 0.25)).all()
    assert (masks[1] != seeded_mask([2, 1], 0, (1 << 16,), 0.25)).any()


@pytest.mark.parametrize(
    ("seed", "key"), [([-1, -1], 2**64 - 1), ([3, -(2**31)], 3 + 2**63), ([7, 1], 7 + 2**32)]
)
def test_the_words_of_a_seed_are_the_halves_of_a_key(seed, key):
    generator = np.random.Generator(np.random.Philox(key=np.array([key, 5], np.uint64)))
    draws = generator.integers(0, 1 << 16, (64,))
    np.testing.assert_array_equal(seeded_mask(seed, 5, (64,), 0.5), draws < 1 << 15)
