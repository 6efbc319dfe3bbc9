"""Products, rows by index and resampling in PyTorch are the rows of `ipu.ops` (law).

Shapes, strides, paddings, groups and indices are drawn; values, flags, status and traps are equal,
forward and backward.
"""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fpsim import BINARY16, BINARY32
from ipu import ops
from tests.ipu.frontends.torch.framework import torch
from tests.ipu.frontends.torch.law import agree, law, seeds, turned
from tests.ipu.ops.outcomes import operands

F = torch.nn.functional


# Products -----------------------------------------------------------------------------------------


@law
@given(seeds, st.sampled_from([0, 2]), *[st.integers(1, 40)] * 3)
def test_matrices(seed, batch, m, k, n):
    lead = (batch,) if batch else ()
    codes = operands(seed, (*lead, m, k), (*lead, k, n), (*lead, m, n))

    def compute(device, x, y, g):
        z, saved = ops.matmul.forward(device, x, y)
        return [z, *(ops.matmul.pull(i, device, g, saved) for i in range(2))]

    agree(torch.bmm if batch else torch.mm, compute, codes)


@law
@given(seeds, st.integers(1, 5), st.integers(1, 40))
def test_vectors(seed, m, k):
    codes = operands(seed, (m, k), (k,))

    def column(device, x, y):
        return [ops.matmul.value(device, x, y.reshape(k, 1)).reshape(m)]

    agree(torch.mv, column, codes, is_differentiated=False)

    def single(device, x, y):
        return [ops.matmul.value(device, x.reshape(1, k), y.reshape(k, 1)).reshape(())]

    agree(torch.dot, single, operands(seed, (k,), (k,)), is_differentiated=False)


@law
@given(
    seeds, st.sampled_from([0.0, 1.0, 0.3, -2.0]), st.sampled_from([0.0, 1.0, 0.7, 3.0]),
    st.sampled_from(["addmm", "baddbmm", "addmv"]), st.booleans(),
)
def test_products_with_a_bias(seed, alpha, beta, name, is_broadcast):
    lead = (2,) if name == "baddbmm" else ()
    x, y = (*lead, 3, 5), (*lead, 5, 4)
    bias = (4,) if is_broadcast else (*lead, 3, 4)
    if name == "addmv":
        y, bias = (5,), (1,) if is_broadcast else (3,)

    def compute(device, c, a, b):
        if name == "addmv":
            b, c = b.reshape(5, 1), c.reshape(-1, 1)
        z = ops.matmul_bias.value(device, c, a, b, alpha=alpha, beta=beta)
        return [z.reshape(3) if name == "addmv" else z]

    def function(c, a, b):
        return getattr(torch, name)(c, a, b, alpha=alpha, beta=beta)

    agree(function, compute, operands(seed, bias, x, y), is_differentiated=False)


pairs = st.tuples(st.integers(1, 3), st.integers(1, 3))


@law
@given(seeds, pairs, pairs, pairs, st.tuples(st.integers(0, 2), st.integers(0, 2)),
       st.sampled_from([1, 2, 4]), st.integers(1, 2), st.data())
def test_convolutions(seed, taps, stride, dilation, padding, groups, batch, data):
    windows = [d * (k - 1) + 1 for d, k in zip(dilation, taps, strict=True)]
    image = tuple(data.draw(st.integers(max(w - 2 * p, 1), w + 5))
                  for w, p in zip(windows, padding, strict=True))
    sizes = tuple(
        (n + 2 * p - w) // s + 1 for n, p, w, s in zip(image, padding, windows, stride, strict=True)
    )
    shapes = (batch, 4, *image), (8, 4 // groups, *taps), (8,), (batch, 8, *sizes)
    how = {"stride": stride, "dilation": dilation, "groups": groups}

    def compute(device, x, w, b, g):
        x, g = (turned(a, 0, 2, 3, 1) for a in (x, g))
        around = tuple((p, p) for p in padding)
        y, saved = ops.conv2d.forward(device, x, turned(w, 2, 3, 1, 0), padding=around, **how)
        z, added = ops.bias.forward(device, y, b)
        dx, dw = (ops.conv2d.pull(i, device, g, saved, padding=around, **how) for i in range(2))
        db = ops.bias.pull(1, device, g, added)
        return [turned(z, 0, 3, 1, 2), turned(dx, 0, 3, 1, 2), turned(dw, 3, 2, 0, 1), db]

    def function(x, w, b):
        return F.conv2d(x, w, b, padding=padding, **how)

    agree(function, compute, operands(seed, *shapes))


@law
@given(seeds, pairs, pairs, pairs, st.integers(0, 1), st.sampled_from([1, 2]), pairs)
def test_transposed_convolutions(seed, taps, stride, dilation, padding, groups, image):
    taps = tuple(k + 1 for k in taps)  # so that a padding of 1 leaves something
    sizes = tuple(
        (n - 1) * s - 2 * padding + d * (k - 1) + 1
        for n, s, d, k in zip(image, stride, dilation, taps, strict=True)
    )
    if min(sizes) < 1:
        return
    shapes = (2, 4, *image), (4, 6 // groups, *taps), (2, 6, *sizes)
    how = {"stride": stride, "dilation": dilation, "groups": groups}

    def compute(device, x, w, g):
        x, g = (turned(a, 0, 2, 3, 1) for a in (x, g))
        rest = {"padding": ((padding, padding),) * 2, "shape": (2, *sizes, 6)} | how
        row = ops.conv2d_transpose
        y, saved = row.forward(device, x, turned(w, 2, 3, 1, 0), **rest)
        dx, dw = (row.pull(i, device, g, saved, **rest) for i in range(2))
        return [turned(y, 0, 3, 1, 2), turned(dx, 0, 3, 1, 2), turned(dw, 3, 2, 0, 1)]

    def function(x, w):
        return F.conv_transpose2d(x, w, padding=padding, **how)

    agree(function, compute, operands(seed, *shapes))


# Rows by index ------------------------------------------------------------------------------------


def indices(seed, count, *shape):
    return np.random.default_rng(seed + 1).integers(0, count, shape)


@law
@given(seeds, st.sampled_from([None, 0, 2]), st.integers(1, 12))
def test_embeddings(seed, padding, n):
    rows = indices(seed, 4, n)
    codes = operands(seed, (4, 3), (n, 3))

    def compute(device, x, g):
        y, saved = ops.gather.forward(device, x, rows=rows)
        return [y, ops.gather.pull(0, device, g, saved, rows=rows, padding=padding)]

    agree(lambda x: F.embedding(torch.from_numpy(rows), x, padding), compute, codes)


@law
@given(seeds, st.integers(0, 2), st.integers(1, 9), st.sampled_from([1, 0.3]))
def test_adding_along_an_axis(seed, axis, n, alpha):
    shape = (3, 4, 2)
    rows = indices(seed, shape[axis], n)
    other = tuple(n if a == axis else m for a, m in enumerate(shape))

    def compute(device, x, v):
        v = v if alpha == 1 else ops.scale.value(device, v, factor=alpha)
        x, v = (a.like(np.moveaxis(a.carrier, axis, 0)) for a in (x, v))
        y = ops.scatter_add.value(device, x, v, rows=rows)
        return [y.like(np.moveaxis(y.carrier, 0, axis))]

    def function(x, v):
        return x.index_add(axis, torch.from_numpy(rows), v, alpha=alpha)

    agree(function, compute, operands(seed, shape, other), is_differentiated=False)


SCATTERS = {
    "add": (ops.scatter_add, None), "amax": (ops.scatter_max, False),
    "amin": (ops.scatter_min, False), "prod": (ops.scatter_multiply, None),
    "fresh amax": (ops.scatter_max, True),
    "fresh amin": (ops.scatter_min, True),
}


@pytest.mark.parametrize("name", SCATTERS)
@pytest.mark.parametrize("is_by_rows", [False, True])
@law
@given(seeds, st.integers(0, 1), st.integers(1, 4), st.integers(1, 3))
def test_scattering(name, is_by_rows, seed, axis, n, m):
    row, fresh = SCATTERS[name]
    shape, options = (4, 5), {} if fresh is None else {"fresh": fresh}
    source = (n, m)
    places = indices(seed, shape[axis], n, m)
    if is_by_rows:
        source = tuple(n if a == axis else k for a, k in enumerate(shape))
        places = indices(seed, shape[axis], n)

    def compute(device, x, v):
        if is_by_rows:
            x, v = (a.like(np.moveaxis(a.carrier, axis, 0)) for a in (x, v))
            y = row.value(device, x, v, rows=places, **options)
            return [y.like(np.moveaxis(y.carrier, 0, axis))]
        at = [np.indices(source)[0], np.indices(source)[1]]
        at[axis] = places
        flat = (at[0] * shape[1] + at[1]).reshape(-1)
        y = row.value(device, x.reshape(-1), v.reshape(-1), rows=flat, **options)
        return [y.reshape(shape)]

    def function(x, v):
        index = torch.from_numpy(places)
        if name == "add":
            return (x.index_add if is_by_rows else x.scatter_add)(axis, index, v)
        reduce = x.index_reduce if is_by_rows else x.scatter_reduce
        return reduce(axis, index, v, name.split()[-1], include_self=not fresh)

    agree(function, compute, operands(seed, shape, source), is_differentiated=False)


@law
@given(seeds, st.integers(1, 9), st.booleans())
def test_putting(seed, n, accumulates):
    rows = indices(seed, 4, n) if accumulates else np.arange(4)

    def compute(device, x, v):
        at = (rows[:, None] * 3 + np.arange(3)).reshape(-1)
        if not accumulates:
            return [v]
        y = ops.scatter_add.value(device, x.reshape(-1), v.reshape(-1), rows=at)
        return [y.reshape(4, 3)]

    def function(x, v):
        return x.index_put((torch.from_numpy(rows),), v, accumulate=accumulates)

    agree(function, compute, operands(seed, (4, 3), (len(rows), 3)), is_differentiated=False)


@pytest.mark.parametrize("mode", ["sum", "mean", "max", "weighted"])
@law
@given(seeds, st.integers(1, 9), st.sampled_from([None, 1]), st.booleans())
def test_bags(mode, seed, n, padding, has_last):
    rows = indices(seed, 4, n)
    starts = np.sort(np.r_[0, indices(seed + 1, n + 1, 2)])
    offsets = np.r_[starts, n] if has_last else starts
    bags = np.searchsorted(starts, np.arange(n), side="right") - 1
    real = rows != padding
    factors = np.linspace(-1, 2, n).astype(np.float16)
    how = {"rows": rows[real], "bags": bags[real], "count": 3}
    row = ops.embedding_bag_max if mode == "max" else ops.embedding_bag
    if mode != "max":
        how["mean"] = mode == "mean"

    def compute(device, x, g):
        options = dict(how)
        if mode == "weighted":
            options["factors"] = device.from_host(factors[real].astype(np.float64), BINARY32)
        y, saved = row.forward(device, x, **options)
        return [y, row.pull(0, device, g, saved, **options)]

    def function(x):
        weights = {"per_sample_weights": torch.from_numpy(factors)} if mode == "weighted" else {}
        return F.embedding_bag(
            torch.from_numpy(rows), x, torch.from_numpy(offsets), padding_idx=padding,
            mode="sum" if weights else mode, include_last_offset=has_last, **weights,
        )

    agree(function, compute, operands(seed, (4, 3), (3, 3)))


# Resampling ---------------------------------------------------------------------------------------


def weights_of(function, n):
    """What an operation on rows does to unit vectors."""
    return function(torch.eye(n, dtype=torch.float64)[None])[0].T.numpy()


@pytest.mark.parametrize("mode", ["linear", "nearest", "nearest-exact"])
@law
@given(seeds, st.integers(1, 7), st.integers(1, 9), st.booleans())
def test_interpolation(mode, seed, n, m, align):
    options = {"align_corners": align} if mode == "linear" else {}

    def function(x):
        return F.interpolate(x, m, mode=mode, **options)

    matrix = weights_of(function, n)

    def compute(device, x, g):
        y, saved = ops.resample.forward(device, x, weights=[matrix])
        if mode != "linear":  # neighbours that are copied
            y = ops.gather.value(device, x, rows=matrix.argmax(axis=1), axis=2)
        return [y, ops.resample.pull(0, device, g, saved, weights=[matrix])]

    agree(function, compute, operands(3 * (seed // 3) + 1, (2, 2, n), (2, 2, m)))


@law
@given(seeds, *[st.integers(1, 6)] * 4, st.sampled_from(["bilinear", "bicubic", "adaptive"]))
def test_images(seed, n, m, height, width, mode):
    def function(x, size=(height, width)):
        if mode == "adaptive":
            return F.adaptive_avg_pool2d(x, size)
        return F.interpolate(x, size, mode=mode)

    if mode == "adaptive" and not (n % height or m % width):
        return  # even windows are pooling
    rows = weights_of(lambda x: function(x[..., None], (height, 1))[..., 0], n)
    columns = weights_of(lambda x: function(x[:, :, None], (1, width))[:, :, 0], m)

    def compute(device, x, g):
        y, saved = ops.resample.forward(device, x, weights=[rows, columns])
        return [y, ops.resample.pull(0, device, g, saved, weights=[rows, columns])]

    agree(function, compute, operands(seed, (1, 2, n, m), (1, 2, height, width)))


# Random numbers -----------------------------------------------------------------------------------


@law
@given(seeds)
def test_normal_numbers(seed):
    def function(mean, deviation):
        return torch.normal(mean, deviation, generator=torch.Generator().manual_seed(seed))

    numbers = torch.empty(50, dtype=torch.float16)
    numbers.normal_(generator=torch.Generator().manual_seed(seed))

    def compute(device, mean, deviation):
        z = device.from_host(numbers.numpy(), BINARY16)
        return [ops.shifted_normal.value(device, z, mean, deviation)]

    codes = operands(seed, (50,), (50,))
    codes[1] &= 0x7FFF
    codes[1][codes[1] > 0x7C00] = 1  # torch refuses negative deviations and NaNs
    agree(function, compute, codes, is_differentiated=False)
