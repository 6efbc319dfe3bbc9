"""Norms in PyTorch are the rows of `ipu.ops`, with the stable variance (law).

Shapes, groups and momenta are drawn; values, running statistics, flags, status and traps are equal,
forward and backward.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fpsim import BINARY16
from fpsim.array import Array
from fpsim.elementwise.codes import from_codes
from ipu import ops
from ipu.ops.norms import batch_statistics, inverse_deviation, weight_norm_gradients
from tests.ipu.frontends.torch.framework import torch
from tests.ipu.frontends.torch.law import agree, law, seeds, tensor
from tests.ipu.ops.outcomes import operands

F = torch.nn.functional
epsilons = st.sampled_from([1e-5, 1e-3, 0.25])
places = st.lists(st.integers(1, 6), max_size=3)


def last(x):
    return x.like(np.ascontiguousarray(np.moveaxis(x.carrier, 1, -1)))


def second(x):
    return x.like(np.moveaxis(x.carrier, -1, 1))


def running(seed, n):
    """Codes of a mean and of a variance, which no square root refuses."""
    mean, variance = operands(seed + 1, (n,), (n,))
    return mean, variance & 0x7FFF


def half(device, codes):
    return Array(from_codes(codes, BINARY16), device.context(BINARY16))


def moved(device, old, fresh, momentum):
    return ops.moving_average.value(
        device, old, fresh, rest=1 - momentum, share=momentum, fresh_first=True
    )


@law
@given(seeds, st.integers(1, 3), st.integers(1, 5), places, epsilons,
       st.sampled_from([None, 0.1, 0.5]))
def test_batch_norm_in_training(seed, batch, channels, place, epsilon, momentum):
    """With running statistics or without."""
    shape, statistics = (batch, channels, *place), running(seed, channels)
    if math.prod(shape) == channels:
        return  # torch refuses one value for each channel

    def compute(device, x, gamma, beta, g):
        images = last(x)
        stats = batch_statistics(device, images, epsilon, stable=True)
        y, saved = ops.batch_norm.forward(device, images, gamma, beta, statistics=stats)
        averages = []
        if momentum is not None:
            old = [half(device, c) for c in statistics]
            n = images.size // channels
            spread = ops.unbiased.value(device, stats.variance, n=n)
            averages = [
                moved(device, a, b.reshape(-1), momentum)
                for a, b in zip(old, (stats.mean, spread), strict=True)
            ]
        slopes = [ops.batch_norm.pull(i, device, last(g), saved) for i in range(3)]
        return [second(y), *averages, second(slopes[0]), *slopes[1:]]

    def function(x, gamma, beta):
        if momentum is None:
            return F.batch_norm(x, None, None, gamma, beta, True, 0.1, epsilon)
        mean, variance = map(tensor, statistics)
        y = F.batch_norm(x, mean, variance, gamma, beta, True, momentum, epsilon)
        return y, mean, variance

    agree(function, compute, operands(seed, shape, (channels,), (channels,), shape))


@law
@given(seeds, st.integers(1, 3), st.integers(1, 5), places, epsilons)
def test_batch_norm_after_training(seed, batch, channels, place, epsilon):
    shape, statistics = (batch, channels, *place), running(seed, channels)

    def compute(device, x, gamma, beta, g):
        mean, variance = (half(device, c) for c in statistics)
        wide = device.cast(variance, device.reduce_squares(x, 0).format)
        inverse = device.cast(inverse_deviation(device, wide, epsilon), BINARY16)
        y, saved = ops.normalise.forward(
            device, last(x), gamma, beta, mean=mean, inverse=inverse
        )
        slopes = [ops.normalise.pull(i, device, last(g), saved) for i in range(3)]
        return [second(y), second(slopes[0]), *slopes[1:]]

    def function(x, gamma, beta):
        return F.batch_norm(x, *map(tensor, statistics), gamma, beta, False, 0.1, epsilon)

    agree(function, compute, operands(seed, shape, (channels,), (channels,), shape))


@pytest.mark.parametrize("is_scaled", [True, False])
@law
@given(seeds, places, st.lists(st.integers(1, 9), min_size=1, max_size=2), epsilons)
def test_layer_norm(is_scaled, seed, outer, inner, epsilon):
    shape = (*outer, *inner)
    n = math.prod(inner)

    def compute(device, x, *others):
        *scale, g = others
        context = device.context(BINARY16)
        gamma, beta = [a.reshape(n) for a in scale] or (context.ones(n), context.zeros(n))
        y, saved = ops.layer_norm.forward(
            device, x.reshape(-1, n), gamma, beta, epsilon=epsilon, stable=True
        )
        slopes = [ops.layer_norm.pull(i, device, g.reshape(-1, n), saved) for i in range(3)]
        return [y.reshape(shape), slopes[0].reshape(shape),
                *(s.reshape(inner) for s in slopes[1:] if scale)]

    def function(x, gamma=None, beta=None):
        return F.layer_norm(x, inner, gamma, beta, epsilon)

    scale = (inner, inner) if is_scaled else ()
    agree(function, compute, operands(seed, shape, *map(tuple, scale), shape))


@law
@given(seeds, st.integers(1, 3), st.integers(1, 3), st.integers(1, 3), places, epsilons)
def test_group_norm(seed, batch, groups, size, place, epsilon):
    """Neighbours are taken together."""
    channels = groups * size
    shape = (batch, channels, *place)
    if size * math.prod(place) == 1:
        return  # torch refuses groups of one value

    def compute(device, x, gamma, beta, g):
        flat = (batch, channels, -1)
        options = {"groups": groups, "strided": False}
        y, saved = ops.group_norm.forward(
            device, last(x.reshape(flat)), gamma, beta, epsilon=epsilon, stable=True, **options
        )
        slopes = [
            ops.group_norm.pull(i, device, last(g.reshape(flat)), saved, **options)
            for i in range(3)
        ]
        return [second(y).reshape(shape), second(slopes[0]).reshape(shape), *slopes[1:]]

    def function(x, gamma, beta):
        return F.group_norm(x, groups, gamma, beta, epsilon)

    agree(function, compute, operands(seed, shape, (channels,), (channels,), shape))


@law
@given(seeds, st.integers(1, 3), st.integers(1, 4), st.lists(st.integers(2, 6), min_size=1,
       max_size=2), epsilons)
def test_instance_norm(seed, batch, channels, place, epsilon):
    """torch's graph: batch norm of the channels of all images, each with a copy of its weight."""
    shape = (batch, channels, *place)

    def compute(device, x, gamma, beta, g):
        flat, n = (1, batch * channels, *place), batch * channels
        copies = [a.like(np.tile(a.carrier, batch)) for a in (gamma, beta)]
        stats = batch_statistics(device, last(x.reshape(flat)), epsilon, stable=True)
        y, saved = ops.batch_norm.forward(
            device, last(x.reshape(flat)), *copies, statistics=stats
        )
        slopes = [ops.batch_norm.pull(i, device, last(g.reshape(flat)), saved) for i in range(3)]
        summed = [ops.reduce_sum.value(device, s.reshape(batch, channels), axis=0)
                  for s in slopes[1:]] if batch > 1 else slopes[1:]
        assert slopes[1].shape == (n,)
        return [second(y).reshape(shape), second(slopes[0]).reshape(shape), *summed]

    def function(x, gamma, beta):
        return F.instance_norm(x, None, None, gamma, beta, True, 0.1, epsilon)

    agree(function, compute, operands(seed, shape, (channels,), (channels,), shape))


@law
@given(seeds, st.lists(st.integers(1, 6), min_size=2, max_size=3), st.booleans())
def test_weight_norm(seed, shape, is_last):
    dim = len(shape) - 1 if is_last else 0
    length = tuple(n if a == dim else 1 for a, n in enumerate(shape))

    def compute(device, v, g, slope):
        w, (norms,) = ops.weight_norm.forward(device, v, g, dim=dim)
        wide = norms.format
        # The norms are handed to the backward pass as torch has them, in the weight's type.
        narrow = device.cast(norms, BINARY16)
        operands = [device.cast(a, wide) for a in (slope, v, g, narrow)]
        to_v, to_g = weight_norm_gradients(device, *operands, dim)
        return [w, device.cast(to_v, BINARY16), device.cast(to_g.reshape(g.shape), BINARY16)]

    def function(v, g):
        return torch._weight_norm_interface(v, g, dim)[0]

    agree(function, compute, operands(seed, tuple(shape), length, tuple(shape)))
