"""Reductions, running sums, extrema and softmax in PyTorch are the rows of `ipu.ops` (law).

Shapes, axes and strides are drawn; values, flags, status and traps are equal, forward and backward.
Where torch's graph composes a gradient from other operations, that composition is compared.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fpsim import BINARY32
from ipu import ops
from ipu.ops.reductions import first_index
from tests.ipu.frontends.torch.framework import torch
from tests.ipu.frontends.torch.law import agree, law, seeds
from tests.ipu.ops.outcomes import operands, shapes


@st.composite
def reductions(draw):
    """A shape, an order of its axes (the strides of a view), axes to reduce, keepdim."""
    shape = draw(shapes)
    order = draw(st.permutations(range(len(shape))))
    axes = draw(st.lists(st.sampled_from(range(len(shape))), min_size=1, unique=True))
    return shape, tuple(order), tuple(sorted(axes)), draw(st.booleans())


@st.composite
def rows_of(draw):
    """A shape, an order of its axes, one axis."""
    shape, order, axes, _ = draw(reductions())
    return shape, order, axes[0]


def viewed(x, order):
    return x.like(x.carrier.transpose(order))


def back(x, order):
    """What belongs to a view, in the order of its base."""
    return viewed(x, np.argsort(order))


def reduced(shape, order, axes, keepdim):
    """The shape of what is left of a view."""
    shape_left = [(1 if a in axes else shape[b]) for a, b in enumerate(order)]
    return tuple(n for a, n in enumerate(shape_left) if keepdim or a not in axes)


def spread_over(g, shape, order, axes):
    """The gradient of what was reduced, for every element of the view."""
    aligned = g.reshape([1 if a in axes else shape[b] for a, b in enumerate(order)])
    return aligned.like(np.broadcast_to(aligned.carrier, [shape[b] for b in order]))


@law
@given(seeds, reductions())
def test_sums(seed, cut):
    shape, order, axes, keepdim = cut

    def compute(device, x, g):
        y, saved = ops.reduce_sum.forward(device, viewed(x, order), axis=axes, keepdims=keepdim)
        return [y, back(ops.reduce_sum.pull(0, device, g, saved), order)]

    def function(x):
        return x.permute(order).sum(axes, keepdim)

    agree(function, compute, operands(seed, shape, reduced(*cut)))


@law
@given(seeds, reductions())
def test_means(seed, cut):
    """torch divides the gradient by the number of elements, where the row multiplies by 1/n."""
    shape, order, axes, keepdim = cut
    n = math.prod(shape[order[a]] for a in axes)

    def compute(device, x, g):
        y = ops.reduce_mean.value(device, viewed(x, order), axis=axes, keepdims=keepdim)
        wide = spread_over(g, shape, order, axes)
        return [y, back(ops.divide.value(device, wide, float(n)), order)]

    def function(x):
        return x.permute(order).mean(axes, keepdim)

    agree(function, compute, operands(seed, shape, reduced(*cut)))


@law
@given(seeds, st.integers(1, 200))
def test_everything_to_one_number(seed, n):
    """Without axes; a result of halves is a half."""
    for name, row in (("sum", ops.reduce_sum), ("mean", ops.reduce_mean),
                      ("prod", ops.reduce_product)):
        agree(lambda x, name=name: getattr(x, name)(),
              lambda device, x, row=row: [row.value(device, x)],
              operands(seed, (n,)), is_differentiated=False)


@pytest.mark.parametrize("name", ["var", "std", "var_mean", "std_mean"])
@law
@given(seeds, reductions(), st.sampled_from([0, 1, 2]))
def test_variances(name, seed, cut, correction):
    shape, order, axes, keepdim = cut
    if math.prod(shape[order[a]] for a in axes) <= correction:
        return  # no number, which the framework gives

    def compute(device, x):
        y, (mean,) = ops.reduce_variance.forward(
            device, viewed(x, order), axis=axes, keepdims=keepdim, correction=correction,
            root=name.startswith("std"),
        )
        mean = device.cast(mean, x.format)
        return [y, mean] if name.endswith("mean") else [y]

    def function(x):
        return getattr(torch, name)(x.permute(order), axes, correction=correction, keepdim=keepdim)

    agree(function, compute, operands(seed, shape), is_differentiated=False)


@pytest.mark.parametrize("order", [1, 2, math.inf])
@law
@given(seeds, reductions())
def test_vector_norms(order, seed, cut):
    shape, permuted, axes, keepdim = cut

    def compute(device, x):
        y = ops.vector_norm.value(
            device, viewed(x, permuted), axis=axes, keepdims=keepdim, order=order
        )
        return [device.cast(y, x.format)]

    def function(x):
        return torch.linalg.vector_norm(x.permute(permuted), order, axes, keepdim)

    agree(function, compute, operands(seed, shape), is_differentiated=False)


@law
@given(seeds, rows_of(), st.booleans())
def test_products(seed, cut, keepdim):
    shape, order, axis = cut

    def compute(device, x):
        return [ops.reduce_product.value(device, viewed(x, order), axis=axis, keepdims=keepdim)]

    def function(x):
        return x.permute(order).prod(axis, keepdim)

    agree(function, compute, operands(seed, shape), is_differentiated=False)


# Running sums -------------------------------------------------------------------------------------


@law
@given(seeds, rows_of())
def test_running_sums(seed, cut):
    """The gradient runs from the other end."""
    shape, order, axis = cut
    turned = tuple(shape[b] for b in order)

    def compute(device, x, g):
        y = ops.cumulative_sum.value(device, viewed(x, order), axis=axis)
        slope = ops.cumulative_sum.value(device, g, axis=axis, reverse=True)
        return [y, back(slope, order)]

    def function(x):
        return x.permute(order).cumsum(axis)

    agree(function, compute, operands(seed, shape, turned))


@law
@given(seeds, rows_of())
def test_running_products(seed, cut):
    shape, order, axis = cut

    def compute(device, x):
        return [ops.cumulative_product.value(device, viewed(x, order), axis=axis)]

    def function(x):
        return x.permute(order).cumprod(axis)

    agree(function, compute, operands(seed, shape), is_differentiated=False)


# Extrema ------------------------------------------------------------------------------------------

EXTREMA = {"max": ops.reduce_max, "min": ops.reduce_min}


@pytest.mark.parametrize("rule", ["number", "propagate"])
@pytest.mark.parametrize("name", EXTREMA)
@law
@given(seeds, rows_of(), st.booleans())
def test_extrema_and_their_places(name, rule, seed, cut, keepdim):
    """The gradient goes to the first element that was chosen."""
    (shape, order, axis), row = cut, EXTREMA[name]

    def compute(device, x, g):
        view = viewed(x, order)
        y, saved = row.forward(device, view, axis=axis, keepdims=keepdim)
        index = first_index(saved).astype(np.float32)
        index = index.reshape(y.shape)
        return [y, device.from_host(index, BINARY32), back(row.pull(0, device, g, saved), order)]

    def function(x):
        y, index = getattr(x.permute(order), name)(axis, keepdim)
        return y, index.to(torch.float32)

    codes = operands(seed, shape, reduced(shape, order, (axis,), keepdim))
    agree(function, compute, codes, max_nan=rule)


@pytest.mark.parametrize("name", EXTREMA)
@law
@given(seeds, reductions())
def test_extrema_over_axes(name, seed, cut):
    shape, order, axes, keepdim = cut

    def compute(device, x):
        return [EXTREMA[name].value(device, viewed(x, order), axis=axes, keepdims=keepdim)]

    def function(x):
        return getattr(x.permute(order), f"a{name}")(axes, keepdim)

    agree(function, compute, operands(seed, shape), is_differentiated=False)


@law
@given(seeds, rows_of(), st.booleans())
def test_both_extrema(seed, cut, keepdim):
    shape, order, axis = cut

    def compute(device, x):
        return [row.value(device, viewed(x, order), axis=axis, keepdims=keepdim)
                for row in (ops.reduce_min, ops.reduce_max)]

    def function(x):
        return tuple(x.permute(order).aminmax(dim=axis, keepdim=keepdim))

    agree(function, compute, operands(seed, shape), is_differentiated=False)


# Softmax ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "row"), [("softmax", ops.softmax), ("log_softmax", ops.log_softmax)]
)
@law
@given(seeds, rows_of())
def test_softmax(name, row, seed, cut):
    shape, order, axis = cut

    def compute(device, x, g):
        last = (viewed(x, order).carrier, g.carrier)
        a, b = (x.like(np.moveaxis(c, axis, -1)) for c in last)
        y, saved = row.forward(device, a)
        slope = row.pull(0, device, b, saved)
        y, slope = (z.like(np.moveaxis(z.carrier, -1, axis)) for z in (y, slope))
        return [y, back(slope, order)]

    def function(x):
        return getattr(torch, name)(x.permute(order), axis)

    agree(function, compute, operands(seed, shape, tuple(shape[b] for b in order)))


@law
@given(seeds, rows_of())
def test_softmax_of_masked_rows(seed, cut):
    shape, order, axis = cut

    def compute(device, x):
        a = x.like(np.moveaxis(viewed(x, order).carrier, axis, -1))
        y = ops.safe_softmax.value(device, a)
        return [y.like(np.moveaxis(y.carrier, -1, axis))]

    def function(x):
        return torch.ops.aten._safe_softmax.default(x.permute(order), axis)

    codes = operands(seed, shape)
    codes[0][..., : seed % 3] = 0xFC00  # minus infinity
    agree(function, compute, codes, is_differentiated=False)


@law
@given(seeds, reductions())
def test_sums_of_exponentials(seed, cut):
    """The gradient is torch's: g · exp(x - y)."""
    shape, order, axes, keepdim = cut

    def compute(device, x, g):
        view = viewed(x, order)
        y = ops.logsumexp.value(device, view, axis=axes, keepdims=keepdim)
        above, slope = (spread_over(z, shape, order, axes) for z in (y, g))
        powers = ops.exp.value(device, ops.subtract.value(device, view, above))
        return [y, back(ops.multiply.value(device, slope, powers), order)]

    def function(x):
        return x.permute(order).logsumexp(axes, keepdim)

    agree(function, compute, operands(seed, shape, reduced(*cut)))
