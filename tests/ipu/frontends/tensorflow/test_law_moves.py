"""Products, rows by index and resampling in TensorFlow are the rows of `ipu.ops` (law).

Shapes, strides, paddings and indices are drawn; values, flags, status and traps are equal, forward
and backward.
"""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fpsim import BINARY16
from fpsim.records.geometry import geometry
from ipu import ops
from tests.ipu.frontends.tensorflow.framework import launch, machine, tf

from ipu.frontends.tensorflow.kernels import random as kernels  # isort: skip
from tests.ipu.frontends.tensorflow.law import agree, law, seeds
from tests.ipu.ops.outcomes import operands


def swapped(x):
    return x.like(np.ascontiguousarray(x.carrier.swapaxes(-1, -2)))


# Products -----------------------------------------------------------------------------------------


@law
@given(seeds, st.sampled_from([(), (2,), (1, 3)]), st.booleans(), st.booleans())
def test_matrices(seed, batch, is_left_turned, is_right_turned):
    left, right = ((4, 5) if is_left_turned else (5, 4)), ((3, 4) if is_right_turned else (4, 3))
    other = (2, 1) if len(batch) == 2 else batch
    codes = operands(seed, (*batch, *left), (*other, *right))

    def compute(device, x, y):
        x, y = (swapped(x) if is_left_turned else x), (swapped(y) if is_right_turned else y)
        return [ops.matmul.value(device, x, y)]

    def function(x, y):
        turned = {"transpose_a": is_left_turned, "transpose_b": is_right_turned}
        return tf.matmul(x, y, **turned)

    agree(function, compute, codes, is_differentiated=False)


@law
@given(seeds, st.sampled_from([(), (2,)]))
def test_gradients_of_matrices(seed, batch):
    def compute(device, x, y, g):
        z, saved = ops.matmul.forward(device, x, y)
        return [z, *(ops.matmul.pull(i, device, g, saved) for i in range(2))]

    agree(tf.matmul, compute, operands(seed, (*batch, 5, 4), (*batch, 4, 3), (*batch, 5, 3)))


pairs = st.tuples(st.integers(1, 3), st.integers(1, 3))


@pytest.mark.parametrize("is_depthwise", [False, True])
@settings(max_examples=6, deadline=None)
@given(seeds, pairs, pairs, pairs, st.sampled_from(["SAME", "VALID", ((1, 0), (2, 1))]),
       st.sampled_from([1, 2]), pairs)
def test_convolutions(is_depthwise, seed, taps, stride, dilation, padding, groups, extra):
    if is_depthwise:  # TensorFlow takes one stride for both axes, and none with dilation
        stride = (1, 1) if dilation != (1, 1) else (stride[0], stride[0])
        padding = "SAME" if isinstance(padding, tuple) else padding
        groups = 4
    image = tuple(d * (k - 1) + 1 + e for d, k, e in zip(dilation, taps, extra, strict=True))
    kernel = (*taps, 4, 2) if is_depthwise else (*taps, 4 // groups, 8)
    sizes = geometry(image, taps, stride, padding, dilation).output
    codes = operands(seed, (2, *image, 4), kernel, (2, *sizes, 8))
    how = {"stride": stride, "padding": padding, "dilation": dilation, "groups": groups}

    def compute(device, x, w, g):
        y, saved = ops.conv2d.forward(device, x, w.reshape(*taps, 4 // groups, 8), **how)
        dx, dw = (ops.conv2d.pull(i, device, g, saved, **how) for i in range(2))
        return [y, dx, dw.reshape(*kernel)]

    def function(x, w):
        strides, gaps = [1, *stride, 1], list(dilation)
        if is_depthwise:
            return tf.nn.depthwise_conv2d(x, w, strides, padding, dilations=gaps)
        pads = padding if isinstance(padding, str) else [[0, 0], *map(list, padding), [0, 0]]
        return tf.nn.conv2d(x, w, strides, pads, dilations=gaps)

    agree(function, compute, codes)


EINSUMS = {
    "abc,acd->abd": ((2, 3, 4), (2, 4, 5)), "ab,bc->ca": ((3, 4), (4, 5)),
    "ab,cb->": ((3, 4), (5, 4)), "ij,ik->ijk": ((3, 4), (3, 2)), "aab->ba": ((3, 3, 4),),
    "...ij,jk->...ik": ((2, 3, 4), (4, 5)), "i->ii": ((4,),),
}


@pytest.mark.parametrize("equation", EINSUMS)
@settings(max_examples=3, deadline=None)
@given(seeds)
def test_einsums(equation, seed):
    def compute(device, *arrays):
        return [ops.einsum.value(device, *arrays, equation=equation)]

    def function(*xs):  # tf.einsum refuses what its gradients are made of
        return tf.raw_ops.Einsum(inputs=xs, equation=equation)

    agree(function, compute, operands(seed, *EINSUMS[equation]), is_differentiated=False)


@law
@given(seeds)
def test_gradients_of_einsums(seed):
    equation = "abc,acd->abd"

    def compute(device, x, y, g):
        z, saved = ops.einsum.forward(device, x, y, equation=equation)
        pulls = (ops.einsum.pull(i, device, g, saved, equation=equation) for i in range(2))
        return [z, *pulls]

    codes = operands(seed, *EINSUMS[equation], (2, 3, 5))
    agree(lambda x, y: tf.einsum(equation, x, y), compute, codes)


@law
@given(seeds, st.booleans())
def test_biases(seed, is_first):
    shape = (2, 3, 4, 5)

    def compute(device, x, b, g):
        column = b.reshape(-1, 1, 1) if is_first else b
        y, saved = ops.bias.forward(device, x, column)
        return [y, g, ops.bias.pull(1, device, g, saved).reshape(-1)]

    def function(x, b):
        return tf.nn.bias_add(x, b, "NCHW" if is_first else "NHWC")

    agree(function, compute, operands(seed, shape, (3,) if is_first else (5,), shape))


# Rows by index ------------------------------------------------------------------------------------


def indices(seed, count, *shape):
    return np.random.default_rng(seed + 1).integers(0, count, shape)


SCATTERS = {
    "add": (tf.tensor_scatter_nd_add, ops.scatter_add),
    "sub": (tf.tensor_scatter_nd_sub, ops.scatter_subtract),
    "max": (tf.tensor_scatter_nd_max, ops.scatter_max),
    "min": (tf.tensor_scatter_nd_min, ops.scatter_min),
}


@pytest.mark.parametrize("name", SCATTERS)
@law
@given(seeds, st.integers(1, 2), st.integers(1, 9))
def test_scattering(name, seed, depth, n):
    scatter, row = SCATTERS[name]
    shape = (3, 4)
    at = np.stack([indices(seed + a, shape[a], n) for a in range(depth)], -1)
    flat = at[:, 0] if depth == 1 else at[:, 0] * 4 + at[:, 1]

    def compute(device, x, v):
        width = () if depth == 2 else (4,)
        y = row.value(device, x.reshape(-1, *width), v.reshape(-1, *width), rows=flat)
        return [y.reshape(shape)]

    codes = operands(seed, shape, (n,) if depth == 2 else (n, 4))
    agree(lambda x, v: scatter(x, at, v), compute, codes, is_differentiated=False)


#: Nodes that write into rows of a variable.
INTO = {
    "Add": ops.scatter_add, "Sub": ops.scatter_subtract, "Mul": ops.scatter_multiply,
    "Max": ops.scatter_max, "Min": ops.scatter_min,
}


@pytest.mark.parametrize("name", INTO)
@law
@given(seeds, st.integers(1, 9))
def test_scattering_into_variables(name, seed, n):
    rows, variable = indices(seed, 3, n), tf.Variable(np.zeros((3, 4), np.float16))

    def compute(device, x, v):
        return [INTO[name].value(device, x, v, rows=rows)]

    def function(x, v):
        variable.assign(x)
        scatter = getattr(tf.raw_ops, f"ResourceScatter{name}")
        scatter(resource=variable.handle, indices=rows, updates=v)
        return variable.read_value()

    agree(function, compute, operands(seed, (3, 4), (n, 4)), is_differentiated=False)


SEGMENTS = {
    "sum": ops.segment_sum, "mean": ops.segment_mean, "prod": ops.segment_multiply,
    "max": ops.segment_max, "min": ops.segment_min,
}


@pytest.mark.parametrize("is_sorted", [False, True])
@pytest.mark.parametrize("name", SEGMENTS)
@law
@given(seeds, st.integers(1, 9))
def test_segments(name, is_sorted, seed, n):
    if name == "mean" and not is_sorted:
        return  # TensorFlow composes it
    rows = indices(seed, 5, n)
    rows = np.sort(rows) if is_sorted else rows
    count = rows[-1] + 1 if is_sorted else 6
    options = {"empty": 0.0} if is_sorted and name in ("max", "min") else {}

    def compute(device, x):
        return [SEGMENTS[name].value(device, x, rows=rows, count=count, **options)]

    def function(x):
        if is_sorted:
            return getattr(tf.math, f"segment_{name}")(x, rows)
        return getattr(tf.math, f"unsorted_segment_{name}")(x, rows, count)

    agree(function, compute, operands(seed, (n, 3)), is_differentiated=False)


@law
@given(seeds, st.integers(1, 2), st.sampled_from(["REFLECT", "SYMMETRIC"]))
def test_mirrored_paddings(seed, width, mode):
    around = ((width, 1), (1, width))
    at = np.pad(np.arange(12).reshape(3, 4), around, mode=mode.lower()).reshape(-1)

    def compute(device, x, g):
        y, saved = ops.gather.forward(device, x.reshape(-1), rows=at)
        slope = ops.gather.pull(0, device, g.reshape(-1), saved, rows=at)
        return [y.reshape(3 + width + 1, 4 + width + 1), slope.reshape(3, 4)]

    codes = operands(seed, (3, 4), (4 + width, 5 + width))
    agree(lambda x: tf.pad(x, around, mode), compute, codes)


# Resampling ---------------------------------------------------------------------------------------


def weights_of(n, m, method):
    """What resizing does to unit vectors."""
    units = np.eye(n, dtype=np.float32).reshape(1, n, 1, n)
    return tf.image.resize(units, (m, 1), method).numpy().reshape(m, n)


@pytest.mark.parametrize("method", ["bilinear", "bicubic"])
@law
@given(seeds, *[st.integers(1, 6)] * 4)
def test_images(method, seed, n, m, height, width):
    rows, columns = weights_of(n, height, method), weights_of(m, width, method)
    how = {"weights": [rows, columns], "first": 1}

    def compute(device, x, g):
        wide, saved = ops.resample.forward(device, x, **how)
        return [wide, ops.resample.pull(0, device, g, saved, **how)]

    def function(x):
        kernel = {"bilinear": tf.raw_ops.ResizeBilinear, "bicubic": tf.raw_ops.ResizeBicubic}
        single = tf.cast(x, tf.float32)
        y = kernel[method](images=single, size=[height, width], half_pixel_centers=True)
        return tf.cast(y, tf.half)

    if (n, m) == (height, width):
        return  # TensorFlow leaves it out of tf.image.resize, which the weights come from
    agree(function, compute, operands(3 * (seed // 6) + 2, (1, n, m, 2), (1, height, width, 2)))


# Random numbers -----------------------------------------------------------------------------------

DRAWS = {
    "uniform": (tf.random.uniform, ops.uniform, {"bits": 10}),
    "normal": (tf.random.normal, ops.normal, {}),
    "truncated_normal": (tf.random.truncated_normal, ops.truncated_normal, {}),
}


@pytest.mark.parametrize("name", DRAWS)
def test_numbers_are_those_of_the_row(name, monkeypatch):
    """What a place draws is in test_random.py."""
    function, row, options = DRAWS[name]
    monkeypatch.setattr(kernels, "_generator", lambda site: np.random.default_rng(3))
    with machine() as used:
        (result,) = launch(tf.function(lambda: [function([50], dtype=tf.half)]))
    drawn = row.value(
        used.device, shape=(50,), generator=np.random.default_rng(3), dtype=BINARY16, **options
    )
    np.testing.assert_array_equal(result.numpy(), drawn.values)
