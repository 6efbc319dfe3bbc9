"""Losses and pooling in PyTorch are the rows of `ipu.ops` (law).

Shapes, windows, strides, paddings, weights and reductions are drawn; values, flags, status and
traps are equal, forward and backward. A loss of halves is rounded to a half, once.
"""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fpsim import BINARY16, BINARY32
from ipu import ops
from ipu.ops.losses import share_of
from tests.ipu.frontends.torch.framework import torch
from tests.ipu.frontends.torch.law import agree, law, seeds, tensor, turned
from tests.ipu.ops.outcomes import operands

F = torch.nn.functional
reductions = st.sampled_from(["none", "mean", "sum"])
shapes = st.lists(st.integers(1, 12), min_size=1, max_size=3).map(tuple)


def loss(device, row, gradient, arrays, to=(0,), **options):
    """The loss as a half, and the gradients of its operands, of a gradient that is a half."""
    value, saved = row.forward(device, *arrays, **options)
    wide = device.cast(gradient.reshape(value.shape), BINARY32)
    names = ("weight", "positive")
    rest = {k: v for k, v in options.items() if k not in names}
    slopes = [row.pull(i, device, wide, saved, **rest) for i in to]
    return [device.cast(value, BINARY16), *slopes]


def gradient_of(shape, reduction):
    return shape if reduction == "none" else ()


@law
@given(seeds, shapes, reductions)
def test_squares(seed, shape, reduction):
    def compute(device, x, y, g):
        value, saved = ops.mean_square.forward(device, x, y, reduction=reduction)
        wide = device.cast(g.reshape(value.shape), BINARY32)
        slopes = [ops.mean_square.pull(i, device, wide, saved, reduction=reduction)
                  for i in range(2)]
        return [device.cast(value, BINARY16), *slopes]

    agree(lambda x, y: F.mse_loss(x, y, reduction=reduction), compute,
          operands(seed, shape, shape, gradient_of(shape, reduction)))


@pytest.mark.parametrize("is_weighted", [False, True])
@law
@given(seeds, shapes, reductions)
def test_two_classes_of_probabilities(is_weighted, seed, shape, reduction):
    target, weight = operands(seed + 1, shape, shape)

    def compute(device, x, g):
        options = {"weight": constant(device, weight)} if is_weighted else {}
        return loss(device, ops.binary_cross_entropy, g, [x, constant(device, target)],
                    reduction=reduction, **options)

    def function(x):
        weights = tensor(weight) if is_weighted else None
        return F.binary_cross_entropy(x, tensor(target), weights, reduction=reduction)

    codes, slope = operands(seed, shape, gradient_of(shape, reduction))
    target = np.minimum(target & 0x7FFF, 0x3C00)
    agree(function, compute, [np.minimum(codes & 0x7FFF, 0x3C00), slope])


def constant(device, codes):
    return device.from_host(codes.view(np.float16).astype(np.float32), BINARY16)


@pytest.mark.parametrize("options", [(), ("weight",), ("positive",), ("weight", "positive")])
@law
@given(seeds, shapes, reductions)
def test_two_classes_of_logits(options, seed, shape, reduction):
    """The gradient is torch's graph of it."""
    target, weight, positive = operands(3 * seed + 1, shape, shape, shape[-1:])

    def compute(device, x):
        constants = {"weight": weight, "positive": positive}
        settings = {name: constant(device, constants[name]) for name in options}
        value = ops.binary_cross_entropy_with_logits.value(
            device, x, constant(device, target), reduction=reduction, **settings
        )
        return [device.cast(value, BINARY16)]

    def function(x):
        return F.binary_cross_entropy_with_logits(
            x, tensor(target), tensor(weight) if "weight" in options else None,
            reduction=reduction, pos_weight=tensor(positive) if "positive" in options else None,
        )

    agree(function, compute, operands(seed, shape), is_differentiated=False)


@pytest.mark.parametrize("place", [(), (2, 3)])
@pytest.mark.parametrize("is_weighted", [False, True])
@law
@given(seeds, st.integers(1, 70), st.integers(2, 5), reductions, st.sampled_from([-100, 1]))
def test_likelihoods(is_weighted, place, seed, n, classes, reduction, ignored):
    labels = np.random.default_rng(seed).integers(0, classes, (n, *place))
    (weight,) = operands(3 * seed + 2, (classes,))

    def compute(device, x, g):
        options = {"classes": labels, "ignored": ignored, "reduction": reduction}
        w = constant(device, weight) if is_weighted else None
        value, saved = ops.nll.forward(device, x, weight=w, **options)
        if reduction != "none":  # torch returns it beside the loss
            share_of(device, x, labels, ignored, w)
        wide = device.cast(g.reshape(value.shape), BINARY32)
        return [device.cast(value, BINARY16), ops.nll.pull(0, device, wide, saved, **options)]

    def function(x):
        return F.nll_loss(x, torch.from_numpy(labels), tensor(weight) if is_weighted else None,
                          ignore_index=ignored, reduction=reduction)

    shape = (n, classes, *place)
    agree(function, compute, operands(seed, shape, gradient_of(labels.shape, reduction)))


# Pooling ------------------------------------------------------------------------------------------

pairs = st.tuples(st.integers(1, 3), st.integers(1, 3))


@st.composite
def windows(draw):
    """Sizes of images, windows, strides, paddings (at most half a window), ceil."""
    size, stride = draw(pairs), draw(pairs)
    padding = tuple(draw(st.integers(0, k // 2)) for k in size)
    image = tuple(draw(st.integers(k, k + 6)) for k in size)
    return image, size, stride, padding, draw(st.booleans())


def outputs(image, size, stride, padding, ceil):
    """Numbers of windows and the padding behind, by torch's rule for the last window."""
    counts, sides = [], []
    for n, k, s, p in zip(image, size, stride, padding, strict=True):
        room = n + 2 * p - k
        m = (-(-room // s) if ceil else room // s) + 1
        if ceil and (m - 1) * s >= n + p:
            m -= 1
        counts.append(m)
        sides.append((p, max((m - 1) * s + k - n - p, p)))
    return tuple(counts), tuple(sides)


@pytest.mark.parametrize("ties", ["first", "all"])
@pytest.mark.parametrize("rule", ["number", "propagate"])
@law
@given(seeds, windows(), st.integers(1, 2))
def test_maxima_of_windows(rule, ties, seed, cut, batch):
    image, size, stride, padding, _ = cut
    counts, sides = outputs(*cut)
    options = {"size": size, "stride": stride, "padding": sides, "ties": ties}

    def compute(device, x, g):
        images, slopes = (turned(a, 0, 2, 3, 1) for a in (x, g))
        y, saved = ops.max_pool.forward(device, images, **options)
        slope = ops.max_pool.pull(0, device, slopes, saved)
        return [turned(y, 0, 3, 1, 2), turned(slope, 0, 3, 1, 2)]

    def function(x):
        return F.max_pool2d(x, size, stride, padding, 1, cut[-1])

    codes = operands(seed, (batch, 2, *image), (batch, 2, *counts))
    agree(function, compute, codes, of_machine={"ties": ties}, max_nan=rule)


@law
@given(seeds, windows(), st.integers(1, 2), st.booleans())
def test_averages_of_windows(seed, cut, batch, counts_zeros):
    image, size, stride, padding, ceil = cut
    if ceil and (counts_zeros or any(padding)):
        return  # no rule, so that the framework computes it
    counts, sides = outputs(*cut)
    pads = padding if counts_zeros else (0, 0)

    def compute(device, x, g):
        images, slopes = (turned(a, 0, 2, 3, 1) for a in (x, g))
        around = ((0, 0), *((p, p) for p in pads), (0, 0))
        wide = images.like(np.pad(images.carrier, around))
        rest = ((0, 0), (0, 0)) if any(pads) else sides
        y, saved = ops.average_pool.forward(device, wide, size=size, stride=stride, padding=rest)
        slope = ops.average_pool.pull(0, device, slopes, saved)
        (top, left), (height, width) = pads, image
        slope = slope[:, top : top + height, left : left + width, :]
        return [turned(y, 0, 3, 1, 2), turned(slope, 0, 3, 1, 2)]

    def function(x):
        return F.avg_pool2d(x, size, stride, padding, ceil, counts_zeros)

    agree(function, compute, operands(seed, (batch, 2, *image), (batch, 2, *counts)))


@law
@given(seeds, pairs, pairs)
def test_averages_of_even_windows(seed, counts, size):
    image = tuple(m * k for m, k in zip(counts, size, strict=True))

    def compute(device, x, g):
        images, slopes = (turned(a, 0, 2, 3, 1) for a in (x, g))
        y, saved = ops.average_pool.forward(device, images, size=size)
        slope = ops.average_pool.pull(0, device, slopes, saved)
        return [turned(y, 0, 3, 1, 2), turned(slope, 0, 3, 1, 2)]

    def function(x):
        return F.adaptive_avg_pool2d(x, counts)

    if counts != (1, 1):  # which torch turns into a mean
        agree(function, compute, operands(seed, (2, 2, *image), (2, 2, *counts)))
