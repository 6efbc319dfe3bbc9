"""Primitives and the tape: the inner-product check for every entry of the table, known answers.

For u on the output and v on an input, <vjp(u), v> = <u, J v>. J v is a central difference in the
machine's binary32; with steps of 2^-8 its error is below 1e-3 of the terms involved, and a wrong
rule is off by a multiple of that.
"""

from __future__ import annotations

import math

import numpy as np
import pytest

from fpsim import BINARY16, BINARY32, round_to
from ipu.learn import ops
from ipu.learn.losses import accuracy, sparse_softmax_cross_entropy
from ipu.learn.ops import PRIMITIVES
from ipu.learn.tensor import Primitive, Tensor, Work, gradients, saved_bytes, work
from ipu.learn.variables import Variable
from ipu.machine import Device

LABELS = np.array([0, 2, 1, 1, 0])
ROWS = np.array([[0.5, 0.25, 0.25], [0, 0, 1], [0.125, 0.75, 0.125], [1, 0, 0], [0.25, 0.5, 0.25]])
NORMED = [(3, 4, 2, 6), (6,), (6,)]


def dense_labels(device):
    return {"labels": device.from_host(ROWS, BINARY32)}


def given_statistics(device):
    mean, inverse = np.arange(6) / 8, 1 + np.arange(6) / 4
    return {
        "mean": device.from_host(mean, BINARY32),
        "inverse": device.from_host(inverse, BINARY32),
    }


#: Calls of every primitive: shapes of the arguments, options (or what makes them on a device).
CALLS = {
    "matmul": [([(5, 4), (4, 3)], {})],
    "conv2d": [
        ([(2, 5, 4, 4), (3, 3, 4, 5)], {}),
        ([(2, 5, 4, 4), (3, 2, 2, 6)], {"stride": 2, "padding": "VALID", "groups": 2}),
    ],
    "add": [([(5, 3), (5, 3)], {})],
    "bias": [([(5, 3), (3,)], {}), ([(2, 2, 3), (2, 1, 1)], {})],
    "subtract": [([(5, 3), (5, 1)], {})],
    "multiply": [([(5, 3), (3,)], {})],
    "divide": [([(5, 3), (3,)], {})],
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
}  # fmt: skip
POSITIVE = ("sqrt",)
STEP = 2.0**-8


def machine() -> Device:
    return Device(f32_denormals="ieee")


def leaves(device, values, fmt=BINARY32):
    return [Variable(device.from_host(x, fmt), device, f"x{k}") for k, x in enumerate(values)]


def called(name, values, options):
    """The call on a fresh machine, so that it draws the same random bits every time."""
    device = machine()
    tensors = leaves(device, values)
    options = options(device) if callable(options) else options
    return tensors, PRIMITIVES[name](*tensors, **options)


def apart(rng, shape, positive):
    """Numbers up to 1.5, none within 1/100 of another or of zero: no step crosses a corner."""
    n = int(np.prod(shape))
    size = (rng.permutation(n) + 1) * (1.5 / n)
    sign = 1 if positive else np.where(rng.random(n) < 0.5, -1, 1)
    return (size * sign).reshape(shape)


def test_every_primitive_is_checked():
    assert CALLS.keys() == PRIMITIVES.keys()


@pytest.mark.parametrize(
    ("name", "shapes", "options"),
    [(name, *call) for name, calls in CALLS.items() for call in calls],
)
def test_backward_rules_are_the_transposed_derivative(name, shapes, options):
    rng = np.random.default_rng(5)
    xs = [apart(rng, s, name in POSITIVE) for s in shapes]
    tensors, y = called(name, xs, options)
    u = rng.integers(-8, 9, y.shape) / 8
    found = gradients(y, tensors, y.device.from_host(u, y.dtype))
    for k, gradient in enumerate(found):
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


@pytest.mark.source("S4-20")
def test_the_gradient_of_a_cast_returns_in_the_format_that_was_cast():
    device = machine()
    (w,) = leaves(device, [[1.0, 2.0]])
    y = ops.cast(w, dtype=BINARY16)
    (gradient,) = gradients(y, [w], device.from_host([0.1, 0.1], BINARY16))
    assert y.dtype == BINARY16
    assert gradient.format == BINARY32
    assert gradient.values.tolist() == [round_to(0.1, BINARY16)] * 2


@pytest.mark.source("S4-19")
@pytest.mark.source("S4-18")
def test_dense_layer_with_single_parameters_on_a_column_vector():
    device = machine()
    weights, biases = leaves(device, [np.arange(6.0).reshape(2, 3), [[0.5], [0.25]]])
    x = Tensor(device.from_host([1.0, 2.0, 3.0], BINARY16), device)
    column = ops.reshape(x, shape=(3, 1))
    half_weights, half_biases = (ops.cast(p, dtype=BINARY16) for p in (weights, biases))
    product = ops.matmul(half_weights, column)
    y = ops.reshape(ops.bias(product, half_biases), shape=(2,))
    assert [t.dtype for t in (half_weights, product, y)] == [BINARY16] * 3
    assert y.array.values.tolist() == [8.5, 26.25]
    pair = gradients(y, [weights, biases], device.from_host([1.0, 1.0], BINARY16))
    assert [g.format for g in pair] == [BINARY32] * 2
    assert pair[0].values.tolist() == [[1.0, 2.0, 3.0]] * 2


@pytest.mark.source("S4-05")
def test_cross_entropy_of_half_logits_is_single_inside():
    """Logits ±30000 overflow in any binary16 exponential; log sum exp is exact enough here."""
    device = machine()
    (logits,) = leaves(device, [[[30000.0, -30000.0], [0.0, 0.0]]], BINARY16)
    loss = sparse_softmax_cross_entropy(logits, np.array([0, 1]))
    assert loss.dtype == BINARY32
    assert float(loss.array) == np.float32(np.float32(math.log(2)) / np.float32(2))
    (gradient,) = gradients(loss, [logits], device.from_host(1.0, BINARY32))
    assert gradient.format == BINARY16
    assert gradient.values.tolist() == [[0.0, 0.0], [0.25, -0.25]]


def test_logits_gradient_is_rounded_once_after_scaling():
    """At scale 2^16 the half gradient is the single one rounded, not 2^16 times a half one."""
    x = np.array([[1.0, 2.0, 14.0]])
    found = {}
    for fmt in (BINARY16, BINARY32):
        device = machine()
        (logits,) = leaves(device, [x], fmt)
        loss = sparse_softmax_cross_entropy(logits, np.array([2]))
        scaled = ops.scale(loss, factor=2.0**16)
        (found[fmt],) = gradients(scaled, [logits], device.from_host(1.0, BINARY32))
    assert found[BINARY16].values.tolist() == round_to(found[BINARY32].values, BINARY16).tolist()
    unscaled = found[BINARY32].values[0, 0] / 2**16
    assert found[BINARY16].values[0, 0] != 2**16 * round_to(unscaled, BINARY16)


def test_contributions_to_one_tensor_are_added():
    device = machine()
    (x,) = leaves(device, [[3.0, -1.0]])
    y = ops.add(ops.scale(x, factor=2.0), ops.relu(x))
    (gradient,) = gradients(y, [x], device.from_host([1.0, 1.0], BINARY32))
    assert gradient.values.tolist() == [3.0, 2.0]


def test_gradients_of_tensors_on_the_way_are_found_and_strangers_have_none():
    device = machine()
    x, stranger = leaves(device, [[2.0], [1.0]])
    middle = ops.scale(x, factor=4.0)
    y = ops.scale(middle, factor=8.0)
    one = device.from_host([1.0], BINARY32)
    found = gradients(y, [middle, x, stranger], one)
    assert [None if g is None else g.values.tolist() for g in found] == [[8.0], [32.0], None]


def test_the_tape_keeps_what_backward_needs_and_knows_the_cost():
    device = machine()
    x, w = leaves(device, [np.ones((4, 8)), np.ones((8, 2))], BINARY16)
    y = ops.relu(ops.matmul(x, w))
    assert saved_bytes(y) == 2 * (4 * 8 + 8 * 2 + 4 * 2)
    assert work(y) == Work(macs=4 * 8 * 2, results=4 * 2, cycles=3 * 2)


def test_vector_work_counts_the_cycles_of_each_step():
    device = machine()
    x, gamma, beta = leaves(device, [np.ones((5, 12)), np.ones(12), np.ones(12)], BINARY16)
    # binary16: subtract, two products, add; binary32: cast, two sums, squares; 4 and 2 per vector.
    assert work(ops.layer_norm(x, gamma, beta)) == Work(results=8 * 60, cycles=4 * 15 + 4 * 30)
    assert work(ops.divide(x, gamma)) == Work(results=60, cycles=21 * 15)
    assert work(ops.softmax(ops.cast(x, dtype=BINARY32))) == Work(
        results=60 + 7 * 60, cycles=15 + (1 + 3 + 1 + 6 + 1 + 10 + 1) * 30
    )
    assert work(ops.reshape(x, shape=(60,))) == Work()


def test_every_primitive_has_a_cost():
    for name, calls in CALLS.items():
        rng = np.random.default_rng(0)
        _, y = called(name, [apart(rng, s, True) for s in calls[0][0]], calls[0][1])
        cost = y.node.cost
        unit = PRIMITIVES[name].unit
        assert (cost.macs > 0) == (unit in ("AMP", "by rule"))
        assert (cost.cycles > 0) == (unit == "vector")


def test_nothing_is_taped_without_variables():
    device = machine()
    x = Tensor(device.from_host([1.0], BINARY32), device)
    assert ops.relu(x).node is None


def test_a_primitive_from_outside_is_one_entry():
    square = Primitive(
        "square",
        lambda device, x: (device.multiply(x, x), (x,)),
        (lambda device, g, saved: device.multiply(g, device.multiply(saved[0], 2.0)),),
    )
    device = machine()
    (x,) = leaves(device, [[3.0]])
    (gradient,) = gradients(square(x), [x], device.from_host([1.0], BINARY32))
    assert gradient.values.tolist() == [6.0]


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


def test_wrong_labels_are_refused():
    device = machine()
    (x,) = leaves(device, [[[1.0, 2.0]]])
    with pytest.raises(ValueError, match="labels lie in 2 … 2; use 0 to 1"):
        sparse_softmax_cross_entropy(x, np.array([2]))
    with pytest.raises(ValueError, match="give integers of shape"):
        sparse_softmax_cross_entropy(x, np.array([0.0]))


def test_accuracy_is_the_share_of_right_rows():
    logits = machine().from_host([[1.0, 2.0], [3.0, 0.0], [0.0, 1.0], [0.0, 1.0]], BINARY32)
    assert accuracy(logits, np.array([1, 0, 1, 0])) == 0.75
    with pytest.raises(ValueError, match=r"int64 of shape \(4, 1\); give integers of shape \(4,\)"):
        accuracy(logits, np.array([[1], [0], [1], [0]]))
