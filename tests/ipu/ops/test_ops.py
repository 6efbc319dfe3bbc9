"""Every primitive of the table: the inner-product check of its backward rules, costs, refusals."""

from __future__ import annotations

import numpy as np
import pytest

from fpsim import BINARY16, BINARY32
from ipu import ops
from ipu.learn.losses import sparse_softmax_cross_entropy
from ipu.learn.tensor import OperationCost, Tensor, gradients
from ipu.learn.variables import Variable
from ipu.machine import Device
from ipu.ops import PRIMITIVES, fp8

LABELS = np.array([0, 2, 1, 1, 0])


ROWS = np.array([[0.5, 0.25, 0.25], [0, 0, 1], [0.125, 0.75, 0.125], [1, 0, 0], [0.25, 0.5, 0.25]])


SEGMENTS = np.array([2, 0, 0, 2, 3])


UNEVEN = np.array([[0.5, 0.5, 0], [0, 0.25, 0.75]])


NORMED = [(3, 4, 2, 6), (6,), (6,)]


def dense_labels(device, fmt):
    return {"labels": device.from_host(ROWS, BINARY32)}


def weighted_bags(device, fmt):
    factors = device.from_host([0.5, 2, 1, -1, 0.25], BINARY32)
    return {"rows": LABELS, "bags": SEGMENTS, "count": 4, "factors": factors}


def given_statistics(device, fmt):
    mean, inverse = np.arange(6) / 8, 1 + np.arange(6) / 4
    return {"mean": device.from_host(mean, fmt), "inverse": device.from_host(inverse, fmt)}


#: Calls of every primitive: shapes of the arguments, options (or what makes them on a device).
CALLS = {
    "matmul": [
        ([(5, 4), (4, 3)], {}), ([(2, 5, 4), (2, 4, 3)], {}), ([(2, 1, 3, 4), (3, 4, 2)], {}),
    ],
    "matmul_bias": [
        ([(5, 3), (5, 4), (4, 3)], {}),
        ([(3,), (2, 5, 4), (2, 4, 3)], {"alpha": 0.5, "beta": 2.0}),
        ([(5, 3), (5, 4), (4, 3)], {"beta": 0}),
    ],
    "conv2d": [
        ([(2, 5, 4, 4), (3, 3, 4, 5)], {}),
        ([(2, 5, 4, 4), (3, 2, 2, 6)], {"stride": 2, "padding": "VALID", "groups": 2}),
        ([(2, 7, 8, 4), (2, 2, 2, 6)], {"stride": (2, 4), "dilation": (3, 6), "groups": 2}),
    ],
    "conv2d_transpose": [
        ([(2, 3, 2, 6), (3, 3, 4, 6)], {"shape": (2, 5, 4, 4), "stride": 2}),
        (
            [(2, 2, 4, 6), (2, 2, 3, 6)],
            {
                "shape": (2, 7, 6, 6), "stride": (2, 1), "dilation": (3, 2), "groups": 2,
                "padding": ((0, 0), (0, 0)),
            },
        ),
    ],
    "einsum": [
        ([(2, 5, 4), (2, 4, 3)], {"equation": "abc,acd->abd"}),
        ([(5, 4), (3, 6)], {"equation": "ab,cd->ac"}),
        ([(4, 4), (4, 3)], {"equation": "ii,ij->ji"}),
        ([(2, 1, 4), (3, 4)], {"equation": "...k,jk->...j"}),
        ([(1, 5, 4), (3, 4, 2)], {"equation": "...ij,...jk->...ik"}),
        ([(4,), (4,)], {"equation": "i,i->ii"}),
    ],
    "gather": [
        ([(5, 3)], {"rows": np.array([3, 0, 3])}),
        ([(2, 5, 3)], {"rows": np.array([[3, 0], [3, 4]]), "axis": 1}),
    ],
    "scatter_add": [([(5, 3), (4, 3)], {"rows": np.array([3, 0, 3, 3])})],
    "scatter_subtract": [([(5, 3), (4, 3)], {"rows": np.array([3, 0, 3, 3])})],
    "segment_sum": [([(5, 3)], {"rows": SEGMENTS, "count": 4})],
    "segment_mean": [([(5, 3)], {"rows": SEGMENTS, "count": 4})],
    "embedding_bag": [
        ([(5, 3)], {"rows": LABELS, "bags": SEGMENTS, "count": 4}),
        ([(5, 3)], {"rows": LABELS, "bags": SEGMENTS, "count": 4, "mean": True}),
        ([(5, 3)], weighted_bags),
    ],
    "embedding_bag_max": [([(5, 3)], {"rows": LABELS, "bags": SEGMENTS, "count": 4})],
    "resample": [
        ([(5, 3)], {"weights": [np.array([[0.5, 0.5, 0], [0, 0.25, 0.75]])]}),
        ([(2, 3, 3, 2)], {"weights": [UNEVEN, UNEVEN.T @ UNEVEN], "first": 1}),
    ],
    "add": [([(5, 3), (5, 3)], {})],
    "bias": [([(5, 3), (3,)], {}), ([(2, 2, 3), (2, 1, 1)], {})],
    "subtract": [([(5, 3), (5, 1)], {})],
    "multiply": [([(5, 3), (3,)], {})],
    "divide": [([(5, 3), (3,)], {})],
    "addcmul": [([(5, 3), (5, 3), (3,)], {}), ([(5, 3)] * 3, {"factor": 0.25})],
    "addcdiv": [([(5, 3), (5, 1), (5, 3)], {}), ([(5, 3)] * 3, {"factor": 0.25})],
    "lerp": [([(5, 3), (5, 3), (5, 3)], {}), ([(5, 3), (3,), (5, 1)], {})],
    "square": [([(5, 3)], {})],
    "sqrt": [([(5, 3)], {})],
    "scale": [([(5, 3)], {"factor": 256.0})],
    "relu": [([(5, 3)], {})],
    "tanh": [([(5, 3)], {})],
    "sigmoid": [([(5, 3)], {})],
    "gelu": [([(5, 3)], {})],
    "dropout": [([(5, 3)], {"keep": 0.5})],
    "softmax": [([(5, 3)], {})],
    "log_softmax": [([(5, 3)], {})],
    "softmax_cross_entropy": [([(5, 3)], {"labels": LABELS})],
    "softmax_cross_entropy_dense": [([(5, 3)], dense_labels)],
    "reduce_sum": [([(5, 3)], {}), ([(2, 3, 4)], {"axis": (0, 2), "keepdims": True})],
    "reduce_mean": [([(5, 3)], {"axis": -1}), ([(2, 3, 4)], {"axis": (0, 2)})],
    "safe_softmax": [([(5, 3)], {})],
    "reduce_max": [([(5, 3)], {}), ([(2, 3, 4)], {"axis": (0, 2), "keepdims": True})],
    "max_pool": [
        ([(2, 5, 4, 3)], {"size": 2}),
        ([(2, 5, 4, 3)], {"size": 3, "stride": 2, "padding": "SAME"}),
    ],
    "average_pool": [
        ([(2, 5, 4, 3)], {"size": 2}),
        ([(2, 5, 4, 3)], {"size": 3, "stride": 2, "padding": "SAME"}),
    ],
    "batch_norm": [(NORMED, {}), (NORMED, {"stable": True})],
    "normalise": [(NORMED, given_statistics)],
    "group_norm": [
        (NORMED, {"groups": 3}), (NORMED, {"groups": 2, "strided": False, "stable": True})
    ],
    "layer_norm": [(NORMED, {}), ([(4, 6), (6,), (6,)], {"stable": True})],
    "cast": [([(5, 3)], {"dtype": BINARY32})],
    "reshape": [([(5, 4)], {"shape": (2, 10)})],
    "transpose": [
        ([(5, 4)], {}), ([(2, 3, 4)], {"axes": (1, 2, 0)}), ([(2, 3, 4)], {"axes": (-1, 0, 1)})
    ],
    "concat": [([(5, 4), (5, 2)], {"axis": 1})],
    "pad": [([(5, 4)], {"paddings": [(1, 0), (0, 2)]})],
    "strided_slice": [([(5, 4)], {"index": np.s_[::2, 1:]})],
    "recomputation_checkpoint": [([(5, 4)], {})],
    "masked_scale": [([(5, 3)], {"mask": np.arange(15).reshape(5, 3) % 2 == 0, "factor": 2.0})],
    "sparse_cross_entropies": [([(5, 3)], {"labels": LABELS})],
    "dense_cross_entropies": [([(5, 3)], dense_labels)],
    "mean_square": [([(5, 3), (5, 3)], {}), ([(5, 3), (5, 3)], {"reduction": "none"})],
    "binary_cross_entropy_with_logits": [([(5, 3), (5, 3)], {"reduction": "sum"})],
    "binary_cross_entropy": [([(5, 3), (5, 3)], {})],
    "nll": [([(5, 3)], {"classes": LABELS}), ([(5, 3)], {"classes": LABELS, "ignored": 1})],
    "glu": [([(5, 4)], {}), ([(4, 3)], {"axis": 0})],
    "elu": [([(5, 3)], {}), ([(5, 3)], {"alpha": 0.5, "scale": 2.0, "input_scale": 3.0})],
    "softplus": [([(5, 3)], {}), ([(5, 3)], {"beta": 2.0, "threshold": 9.0})],
    "leaky_relu": [([(5, 3)], {"slope": 0.25})],
    "hard_shrink": [([(5, 3)], {"least": 0.25})],
    "threshold": [([(5, 3)], {"least": 0.25})],
    "clamp": [([(5, 3)], {"low": -0.5, "high": 0.75}), ([(5, 3)], {"low": 0.1})],
    "scaled_sum": [([(5, 3), (3,)], {"factor": 0.5}), ([(5, 3), (5, 3)], {})],
    "scaled_difference": [([(5, 3), (5, 1)], {"factor": 0.5})],
}
#: Functions of one, two and three operands without options.
for _row in PRIMITIVES.values():
    if any(_row.vjps):
        CALLS.setdefault(_row.name, [([(5, 3)] * len(_row.vjps), {})])

POSITIVE = ("sqrt", "binary_cross_entropy", "rsqrt", "log", "log2", "log10", "power", "lgamma",
            "digamma", "log1p", "bessel_k0", "bessel_y0", "polygamma", "zeta",
            "betainc")
#: Functions with steps, whose gradient is that of a line: tests of their own.
STEPS = ("fake_quantize",)
EXTREMES = ("maximum", "minimum", "fmax", "fmin")
#: Where others are defined: x becomes factor · x + shift.
DOMAINS = {
    "binary_cross_entropy": (0.5, 0.1),
    "acosh": (1, 4),
    "asin": (0.5, 0),
    "acos": (0.5, 0),
    "atanh": (0.5, 0),
    "tan": (0.5, 0),
}


STEP = 2.0**-8


def machine() -> Device:
    return Device(f32_denormals="ieee")


def leaves(device, values, fmt=BINARY32):
    return [Variable(device.from_host(x, fmt), device, f"x{k}") for k, x in enumerate(values)]


def called(name, values, options, fmt=BINARY32):
    """The call on a fresh machine, so that it draws the same random bits every time."""
    device = machine()
    tensors = leaves(device, values, fmt)
    options = options(device, fmt) if callable(options) else options
    return tensors, PRIMITIVES[name](*tensors, **options)


def apart(rng, shape, positive):
    """Numbers up to 1.5, none within 1/100 of another or of zero: no step crosses a corner."""
    n = int(np.prod(shape))
    size = (rng.permutation(n) + 1) * (1.5 / n)
    sign = 1 if positive else np.where(rng.random(n) < 0.5, -1, 1)
    return (size * sign).reshape(shape)


def test_every_primitive_is_checked():
    """Those without a gradient stand in the tests of their file."""
    assert CALLS.keys() == {name for name, row in PRIMITIVES.items() if any(row.vjps)}


@pytest.mark.parametrize("name", PRIMITIVES)
def test_every_row_says_what_it_rounds(name):
    row = PRIMITIVES[name]
    assert row.rounding
    assert row.gradient or not any(row.vjps)
    assert row.evidence


@pytest.mark.parametrize(
    ("name", "shapes", "options"),
    [(name, *call) for name, calls in CALLS.items() if name not in STEPS for call in calls],
)
def test_backward_rules_are_the_transposed_derivative(name, shapes, options):
    rng = np.random.default_rng(5)
    factor, shift = DOMAINS.get(name, (1, 0))
    xs = [factor * apart(rng, s, name in POSITIVE) + shift for s in shapes]
    if name in EXTREMES:
        xs[1] = xs[1] + 0.033  # no two are equal
    tensors, y = called(name, xs, options)
    u = rng.integers(-8, 9, y.shape) / 8
    results = gradients(y, tensors, y.device.from_host(u, y.dtype))
    for k, (gradient, vjp) in enumerate(zip(results, PRIMITIVES[name].vjps, strict=True)):
        assert (gradient is None) == (vjp is None)
        if vjp is None:
            continue
        v = rng.integers(-8, 9, shapes[k]) / 8
        ahead, behind = (
            called(name, [x + s * v if j == k else x for j, x in enumerate(xs)], options)[1]
            for s in (STEP, -STEP)
        )
        slope = (ahead.array.values.astype(float) - behind.array.values) / (2 * STEP)
        expected = float((slope * u).sum())
        got = float((gradient.values.astype(float) * v).sum())
        size = float(np.abs(slope * u).sum())
        assert gradient.shape == shapes[k]
        assert got == pytest.approx(expected, rel=2e-3, abs=1e-3 * max(size, 1.0))


#: Work of the first call of each: results, and cycles of a thread in binary32 and in binary16.
#: 15 elements are 8 vectors of two or 4 of four, 120 are 60 or 30, 144 are 72 or 36. Cycles of a
#: vector are (singles, halves): sum, difference, product and cast 1, quotient (10, 21), root
#: (10, 23), exp (6, 4), log and tanh (12, 4), sigmoid (12, 6), relu 3, maximum (3, 4).
WORK = {
    **dict.fromkeys(("add", "bias", "subtract", "multiply", "square", "scale"), (15, 8, 4)),
    "divide": (15, 80, 84), "sqrt": (15, 80, 92),
    "relu": (15, 24, 12), "tanh": (15, 96, 16), "sigmoid": (15, 96, 24),
    "gelu": (9 * 15, 8 * 8 + 96, 8 * 4 + 16),  # six products, two sums, a tanh
    "dropout": (2 * 15, 16, 8),  # selection, product
    # In binary32 cast, maximum, difference, exp and sum take 12 cycles; a quotient 10 more.
    "softmax": (7 * 15, 22 * 8 + 8, 22 * 8 + 4),  # and a cast to the format of x
    "log_softmax": (7 * 15, 13 * 8 + 8, 13 * 8 + 4),  # a difference instead of the quotient
    "softmax_cross_entropy": (6 * 15, 176, 176),
    "softmax_cross_entropy_dense": (9 * 15, 25 * 8, 25 * 8),  # a difference, product, sum more
    **dict.fromkeys(("reduce_sum", "reduce_mean"), (2 * 15, 16, 16)),  # cast, sum in binary32
    "reduce_max": (15, 24, 16), "max_pool": (120, 180, 120), "average_pool": (2 * 120, 120, 60),
    "normalise": (4 * 144, 4 * 72, 4 * 36),  # difference, two products, sum
    # The same after cast, square and two sums in binary32.
    **dict.fromkeys(
        ("batch_norm", "group_norm", "layer_norm"), (8 * 144, 8 * 72, 4 * 72 + 4 * 36)
    ),
    "cast": (15, 8, 4),
    "scatter_add": (15, 8, 8), "scatter_subtract": (15, 8, 8), "segment_sum": (15, 8, 8),
    "segment_mean": (15, 8, 8), "embedding_bag": (15, 8, 8), "embedding_bag_max": (15, 24, 16),
    "resample": (10, 0, 0),
    **dict.fromkeys(
        (
            "gather", "reshape", "transpose", "concat", "pad", "strided_slice",
            "recomputation_checkpoint",
        ),
        (0, 0, 0),
    ),
}

#: Multiply-adds: 5 × 3 results over 4, and 2 × 5 × 4 × 5 results over kernels of 3 × 3 × 4.
#: A transposed one has 2 × 3 × 2 × 6 images times 3 × 3 × 4; einsum 2 batches, as if one of √8.
PRODUCTS = {
    "matmul": 60,
    "matmul_bias": 60,
    "conv2d": 7200,
    "conv2d_transpose": 2592,
    "einsum": 169,
}


@pytest.mark.source("poplibs, popopsCycleEstimators.hpp")
@pytest.mark.parametrize("name", [*WORK, *PRODUCTS])
@pytest.mark.parametrize("fmt", [BINARY32, BINARY16], ids=lambda f: f.name)
def test_the_work_of_every_primitive(name, fmt):
    shapes, options = CALLS[name][0]
    rng = np.random.default_rng(0)
    _, y = called(name, [apart(rng, s, True) for s in shapes], options, fmt)
    if name in PRODUCTS:
        assert y.node.cost == OperationCost(macs=PRODUCTS[name])
        return
    results, singles, halves = WORK[name]
    cycles = singles if fmt == BINARY32 else halves
    assert y.node.cost == OperationCost(results=results, cycles=cycles)


def test_products_of_quarters_count_as_those_of_halves():
    # 32 terms, as other products of quarters have them: one kernel.
    for name, shapes, work in (
        ("matmul", [(5, 32), (32, 3)], 480),
        ("conv2d", CALLS["conv2d"][0][0], PRODUCTS["conv2d"]),
    ):
        device = Device("mk2-fp8")
        y = getattr(fp8, name)(*leaves(device, [np.ones(s) for s in shapes], BINARY16))
        assert y.node.cost == OperationCost(macs=work)


@pytest.mark.source("S4-04")
def test_formats_do_not_mix():
    device = machine()
    x = Tensor(device.from_host([1.0], BINARY16), device)
    y = Tensor(device.from_host([1.0], BINARY32), device)
    with pytest.raises(TypeError, match="fpsim never promotes"):
        ops.add(x, y)


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda x: ops.matmul(x, x), "matmul takes matrices"),
        (lambda x: ops.matmul(x), "matmul takes 2 tensors, got 1"),
        (lambda x: ops.add(x, ops.reshape(x, shape=(1, 2))), "add takes equal shapes"),
        (lambda x: ops.bias(x, ops.reshape(x, shape=(2, 1))), "does not broadcast"),
        (lambda x: sparse_softmax_cross_entropy(x, np.array([0])), "give \\(batch, classes\\)"),
        (lambda x: ops.reduce_sum(x, axis=1), "axis: axis 1 is out of bounds"),
        (lambda x: ops.reduce_mean(x, axis=-2), "axis: axis -2 is out of bounds"),
        (lambda x: ops.reduce_max(x, axis=(0, -1)), "repeated axis in `axis`"),
    ],
)
def test_wrong_shapes_are_refused(call, sentence):
    device = machine()
    (x,) = leaves(device, [[1.0, 2.0]])
    with pytest.raises((TypeError, ValueError), match=sentence):
        call(x)


def test_an_unknown_option_is_refused_in_the_name_of_the_primitive():
    device = machine()
    x, w = leaves(device, [np.ones((1, 2, 2, 1)), np.ones((1, 1, 1, 1))])
    with pytest.raises(
        TypeError, match=r"conv2d has no option strid=2; use dilation, groups, padding"
    ):
        ops.conv2d(x, w, strid=2)
    with pytest.raises(TypeError, match=r"relu has no option ties='all'; use none"):
        ops.relu(x, ties="all")
