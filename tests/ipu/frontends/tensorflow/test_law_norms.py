"""Norms, dropout, gelu and pooling in TensorFlow are the rows of `ipu.ops` (law).

Shapes, groups, windows and layouts are drawn; values, statistics, flags, status and traps are
equal, forward and backward.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fpsim import BINARY16, BINARY32
from fpsim.array import Array
from fpsim.elementwise.codes import from_codes
from fpsim.records.geometry import geometry
from ipu import ops
from ipu.ops.norms import batch_statistics, inverse_deviation
from ipu.ops.random import seeded_mask
from tests.ipu.frontends.tensorflow.framework import ipu, tf
from tests.ipu.frontends.tensorflow.law import agree, law, seeds
from tests.ipu.ops.outcomes import operands

from ipu.frontends.tensorflow.operations.normalization import normalised  # isort: skip

sizes = st.integers(1, 4)
epsilons = st.sampled_from([1e-3, 0.25])


def turned(x, *axes):
    return x.like(np.ascontiguousarray(x.carrier.transpose(axes)))


def node(x, gamma, beta, mean, variance, **options):
    """Batch norm of halves, whose scale and statistics are binary32."""
    others = {"scale": gamma, "offset": beta, "mean": mean, "variance": variance}
    wide = {name: tf.cast(t, tf.float32) for name, t in others.items()}
    return tf.raw_ops.FusedBatchNormV3(x=x, **wide, **options)


@pytest.mark.parametrize("stable", [False, True])
@law
@given(seeds, sizes, sizes, sizes, sizes, epsilons, st.booleans(), st.sampled_from([1.0, 0.25]))
def test_batch_norm_in_training(stable, seed, batch, height, width, channels, epsilon, is_first,
                                factor):
    """Statistics beside the result are binary32, a moving average of them too."""
    last, first = (batch, height, width, channels), (batch, channels, height, width)
    statistics = operands(2 * seed + 1, (channels,), (channels,))
    statistics = [c & 0x3FFF for c in statistics]

    def compute(device, x, gamma, beta, g):
        images, slope = (turned(a, 0, 2, 3, 1) if is_first else a for a in (x, g))
        stats = batch_statistics(device, images, epsilon, stable)
        y, saved = ops.batch_norm.forward(device, images, gamma, beta, statistics=stats)
        averages = [
            device.cast(stats.mean, BINARY32).reshape(-1),
            ops.unbiased.value(device, stats.variance.reshape(-1), n=images.size // channels),
        ]
        if factor != 1:
            old = [Array(from_codes(c, BINARY16), device.context(BINARY16)) for c in statistics]
            averages = [
                ops.moving_average.value(
                    device, device.cast(a, BINARY32), b, rest=1 - factor, share=factor
                )
                for a, b in zip(old, averages, strict=True)
            ]
        to_x, *others = (ops.batch_norm.pull(i, device, slope, saved) for i in range(3))
        y, to_x = (turned(a, 0, 3, 1, 2) if is_first else a for a in (y, to_x))
        return [y, *(device.cast(a, BINARY16) for a in averages), to_x, *others]

    def function(x, gamma, beta):
        before = (tf.constant(c.view(np.float16)) for c in statistics)
        results = node(
            x, gamma, beta, *before, is_training=True, epsilon=epsilon,
            exponential_avg_factor=factor, data_format="NCHW" if is_first else "NHWC",
        )
        return [results[0], *(tf.cast(r, tf.half) for r in results[1:3])]

    shape = first if is_first else last
    agree(function, compute, operands(seed, shape, (channels,), (channels,), shape),
          stable_norms=stable)


@law
@given(seeds, sizes, sizes, sizes, sizes, epsilons)
def test_batch_norm_after_training(seed, batch, height, width, channels, epsilon):
    shape = (batch, height, width, channels)
    statistics = operands(seed + 1, (channels,), (channels,))
    statistics[1] &= 0x7FFF

    def compute(device, x, gamma, beta, g):
        mean, variance = (
            Array(from_codes(c, BINARY16), device.context(BINARY16)) for c in statistics
        )
        wide = device.cast(variance, BINARY32)
        inverse = device.cast(inverse_deviation(device, wide, epsilon), BINARY16)
        y, saved = ops.normalise.forward(device, x, gamma, beta, mean=mean, inverse=inverse)
        return [y, *(ops.normalise.pull(i, device, g, saved) for i in range(3))]

    def function(x, gamma, beta):
        before = (tf.constant(c.view(np.float16)) for c in statistics)
        return node(x, gamma, beta, *before, is_training=False, epsilon=epsilon)[0]

    agree(function, compute, operands(seed, shape, (channels,), (channels,), shape))


@law
@given(seeds, st.integers(1, 3), sizes, st.integers(1, 3), st.integers(1, 3), epsilons,
       st.booleans(), st.booleans(), st.booleans())
def test_group_norm(seed, batch, place, groups, size, epsilon, strided, is_first, stable):
    channels = groups * size
    shape = (batch, channels, place) if is_first else (batch, place, channels)
    options = {"groups": groups, "strided": strided}
    how = options | {"epsilon": epsilon, "stable": stable}

    def compute(device, x, gamma, beta, g):
        images, slope = (turned(a, 0, 2, 1) if is_first else a for a in (x, g))
        y, saved = ops.group_norm.forward(device, images, gamma, beta, **how)
        to_x, *others = (ops.group_norm.pull(i, device, slope, saved, **options)
                         for i in range(3))
        y, to_x = (turned(a, 0, 2, 1) if is_first else a for a in (y, to_x))
        return [y, to_x, *others]

    def function(x, gamma, beta):
        return normalised(x, gamma, beta, groups, 1 if is_first else -1, epsilon, strided)

    agree(function, compute, operands(seed, shape, (channels,), (channels,), shape),
          stable_norms=stable)


@law
@given(seeds, st.lists(st.integers(1, 9), min_size=1, max_size=2), st.sampled_from([0.1, 0.5]),
       st.booleans())
def test_dropout(seed, shape, rate, is_whole):
    """By the mask of a seed; axes of 1 in the shape of the mask are dropped as a whole."""
    noise = (*shape[:-1], 1) if is_whole else tuple(shape)

    def compute(device, x, g):
        mask = np.broadcast_to(seeded_mask(np.array([seed, 3]), 2, noise, 1 - rate), x.shape)
        pulled = (ops.dropout.pull(0, device, a, (mask,), keep=1 - rate) for a in (x, g))
        return list(pulled)

    def function(x):
        return ipu.rand_ops.dropout(x, [seed, 3], rate, 2, noise)

    agree(function, compute, operands(seed, tuple(shape), tuple(shape)))


@law
@given(seeds, st.integers(1, 60))
def test_gelu(seed, n):
    def compute(device, x, g):
        y, saved = ops.gelu.forward(device, x)
        return [y, ops.gelu.pull(0, device, g, saved)]

    agree(ipu.nn_ops.gelu, compute, operands(seed, (n,), (n,)))


# Pooling ------------------------------------------------------------------------------------------

pairs = st.tuples(st.integers(1, 3), st.integers(1, 3))
POOLS = {"max": (tf.nn.max_pool2d, ops.max_pool), "average": (tf.nn.avg_pool2d, ops.average_pool)}


@pytest.mark.parametrize("ties", ["first", "all"])
@pytest.mark.parametrize("name", POOLS)
@law
@given(seeds, pairs, pairs, pairs, st.sampled_from(["SAME", "VALID"]))
def test_pooling(name, ties, seed, size, stride, extra, padding):
    function, row = POOLS[name]
    image = tuple(k + e for k, e in zip(size, extra, strict=True))
    options = {"size": size, "stride": stride, "padding": padding}
    if name == "max":
        options["ties"] = ties

    def compute(device, x, g):
        y, saved = row.forward(device, x, **options)
        return [y, row.pull(0, device, g, saved)]

    outputs = geometry(image, size, stride, padding).output
    assert math.prod(outputs)
    agree(lambda x: function(x, size, stride, padding), compute,
          operands(seed, (2, *image, 2), (2, *outputs, 2)), of_machine={"ties": ties})
