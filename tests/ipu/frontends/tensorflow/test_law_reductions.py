"""Reductions, running sums, extrema, softmax and losses in TensorFlow are rows of `ipu.ops` (law).

Shapes, axes, labels and directions are drawn; values, flags, status and traps are equal, forward
and backward. Where TensorFlow's graph composes a gradient from other operations, that composition
is compared.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fpsim import BFLOAT16, BINARY16, BINARY32
from ipu import ops
from ipu.ops.probabilities import terms_slope
from ipu.ops.reductions import first_index
from tests.ipu.frontends.tensorflow.framework import tf
from tests.ipu.frontends.tensorflow.law import agree, law, seeds
from tests.ipu.ops.outcomes import operands, shapes


@st.composite
def reductions(draw):
    """A shape, axes to reduce, keepdims."""
    shape = draw(shapes)
    axes = draw(st.lists(st.sampled_from(range(len(shape))), min_size=1, unique=True))
    return shape, tuple(sorted(axes)), draw(st.booleans())


@st.composite
def rows_of(draw):
    """A shape and one axis."""
    shape, axes, _ = draw(reductions())
    return shape, axes[0]


def reduced(shape, axes, keepdims):
    return tuple(
        1 if a in axes else n for a, n in enumerate(shape) if keepdims or a not in axes
    )


def spread_over(g, shape, axes):
    """The gradient of what was reduced, for every element."""
    aligned = g.reshape([1 if a in axes else n for a, n in enumerate(shape)])
    return aligned.like(np.broadcast_to(aligned.carrier, shape))


@law
@given(seeds, reductions())
def test_sums(seed, cut):
    shape, axes, keepdims = cut

    def compute(device, x, g):
        y, saved = ops.reduce_sum.forward(device, x, axis=axes, keepdims=keepdims)
        return [y, ops.reduce_sum.pull(0, device, g, saved)]

    agree(lambda x: tf.reduce_sum(x, axes, keepdims), compute,
          operands(seed, shape, reduced(*cut)))


@law
@given(seeds, reductions())
def test_means(seed, cut):
    """TensorFlow divides the gradient by the number of elements; the row multiplies by 1/n."""
    shape, axes, keepdims = cut
    n = math.prod(shape[a] for a in axes)

    def compute(device, x, g):
        y = ops.reduce_mean.value(device, x, axis=axes, keepdims=keepdims)
        return [y, ops.divide.value(device, spread_over(g, shape, axes), float(n))]

    agree(lambda x: tf.reduce_mean(x, axes, keepdims), compute,
          operands(seed, shape, reduced(*cut)))


#: Reductions whose gradient TensorFlow composes of many others.
VALUES = {
    "prod": (tf.reduce_prod, ops.reduce_product), "max": (tf.reduce_max, ops.reduce_max),
    "min": (tf.reduce_min, ops.reduce_min),
    "euclidean_norm": (tf.math.reduce_euclidean_norm, ops.vector_norm),
}


@pytest.mark.parametrize("name", VALUES)
@law
@given(seeds, reductions())
def test_other_reductions(name, seed, cut):
    (shape, axes, keepdims), (function, row) = cut, VALUES[name]

    def compute(device, x):
        return [device.cast(row.value(device, x, axis=axes, keepdims=keepdims), x.format)]

    agree(lambda x: function(x, axes, keepdims), compute, operands(seed, shape),
          is_differentiated=False)


@law
@given(seeds, shapes)
def test_half_of_squares(seed, shape):
    """The gradient is x · g."""

    def compute(device, x, g):
        y = ops.half_square_sum.value(device, x)
        return [y, ops.multiply.value(device, x, g)]

    agree(tf.nn.l2_loss, compute, operands(seed, shape, ()))


@law
@given(seeds, rows_of())
def test_places_of_extrema(seed, cut):
    shape, axis = cut

    def compute(device, x):
        indices = []
        for row in (ops.reduce_max, ops.reduce_min):
            _, saved = row.forward(device, x, axis=axis)
            indices.append(device.from_host(first_index(saved).astype(np.float32), BINARY16))
        return indices

    def function(x):
        return [tf.cast(place(x, axis), tf.half) for place in (tf.argmax, tf.argmin)]

    agree(function, compute, operands(seed, shape), is_differentiated=False)


# Running sums -------------------------------------------------------------------------------------


@law
@given(seeds, rows_of(), st.booleans(), st.booleans())
def test_running_sums(seed, cut, exclusive, reverse):
    """The gradient runs from the other end."""
    (shape, axis), options = cut, {"exclusive": exclusive}

    def compute(device, x, g):
        row = ops.cumulative_sum.value
        return [row(device, x, axis=axis, reverse=reverse, **options),
                row(device, g, axis=axis, reverse=not reverse, **options)]

    agree(lambda x: tf.cumsum(x, axis, exclusive, reverse), compute,
          operands(seed, shape, shape))


@law
@given(seeds, rows_of(), st.booleans(), st.booleans())
def test_running_products(seed, cut, exclusive, reverse):
    shape, axis = cut

    def compute(device, x):
        return [ops.cumulative_product.value(
            device, x, axis=axis, exclusive=exclusive, reverse=reverse
        )]

    agree(lambda x: tf.math.cumprod(x, axis, exclusive, reverse), compute,
          operands(seed, shape), is_differentiated=False)


# Softmax and losses -------------------------------------------------------------------------------


@law
@given(seeds, st.lists(st.integers(1, 5), max_size=2), st.integers(1, 100))
def test_softmax(seed, outer, n):
    """Gradients as TensorFlow's graph has them: y · (g - sum(g · y)), g - sum(g) · exp(y)."""
    shape = (*outer, n)

    def along(device, x, y):
        products = ops.multiply.value(device, x, y)
        return ops.reduce_sum.value(device, products, axis=-1, keepdims=True)

    def compute(device, x, g):
        y = ops.softmax.value(device, x)
        gap = ops.subtract.value(device, g, along(device, g, y))
        return [y, ops.multiply.value(device, gap, y)]

    agree(tf.nn.softmax, compute, operands(seed, shape, shape))

    def logarithm(device, x, g):
        y = ops.log_softmax.value(device, x)
        total = ops.reduce_sum.value(device, g, axis=-1, keepdims=True)
        part = ops.multiply.value(device, total, ops.exp.value(device, y))
        return [y, ops.subtract.value(device, g, part)]

    agree(tf.nn.log_softmax, logarithm, operands(seed, shape, shape))


@law
@given(seeds, st.integers(1, 6), st.integers(2, 80))
def test_cross_entropies(seed, n, classes):
    """The node gives the gradient of the sum, rounded; the graph multiplies it."""
    labels = np.random.default_rng(seed).integers(0, classes, n)
    (shares,) = operands(3 * seed + 1, (n, classes))

    def computes(row, options):
        def compute(device, x, g):
            terms, saved = row.forward(device, x, **options(device))
            slope = device.cast(terms_slope(device, saved), BINARY16)
            return [device.cast(terms, BINARY16),
                    ops.multiply.value(device, g.reshape(n, 1), slope)]

        return compute

    codes = operands(seed, (n, classes), (n,))
    sparse = tf.raw_ops.SparseSoftmaxCrossEntropyWithLogits  # tf.nn casts halves around it
    agree(lambda x: sparse(features=x, labels=labels)[0],
          computes(ops.sparse_cross_entropies, lambda device: {"labels": labels}), codes)

    def dense(device):
        numbers = shares.view(np.float16).astype(np.float32)
        return {"labels": device.from_host(numbers, BINARY16)}

    def function(x):
        constant = tf.constant(shares.view(np.float16))
        return tf.raw_ops.SoftmaxCrossEntropyWithLogits(features=x, labels=constant)[0]

    agree(function, computes(ops.dense_cross_entropies, dense), codes)


# Casts and grids ----------------------------------------------------------------------------------


@law
@given(seeds, st.integers(1, 60))
def test_casts(seed, n):
    """To the other format of 16 bits and back; the gradient goes the same way."""

    def compute(device, x, g):
        def there_and_back(a):
            return ops.cast.value(device, ops.cast.value(device, a, dtype=BFLOAT16), dtype=BINARY16)

        return [there_and_back(x), there_and_back(g)]

    agree(lambda x: tf.cast(tf.cast(x, tf.bfloat16), tf.half), compute,
          operands(seed, (n,), (n,)), target="hypothetical")


@law
@given(seeds, st.integers(1, 30), st.sampled_from([2, 4, 8]), st.booleans())
def test_grids(seed, n, bits, is_narrow):
    """Nodes of binary32 between casts."""
    low, high = -3.0, 2.5
    options = {"first": float(is_narrow), "last": 2.0**bits - 1}

    def compute(device, x, g):
        limits = [device.from_host(np.float32(v), BINARY32) for v in (low, high)]
        wide, slope = (device.cast(a, BINARY32) for a in (x, g))
        y, saved = ops.fake_quantize.forward(device, wide, *limits, **options)
        to_x = ops.fake_quantize.pull(0, device, slope, saved, **options)
        return [device.cast(a, BINARY16) for a in (y, to_x)]

    def function(x):
        wide = tf.cast(x, tf.float32)
        y = tf.quantization.fake_quant_with_min_max_args(wide, low, high, bits, is_narrow)
        return tf.cast(y, tf.half)

    agree(function, compute, operands(2 * seed, (n,), (n,)))
