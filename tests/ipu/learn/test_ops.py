"""Primitives and the tape: the inner-product check for every entry of the table, known answers.

For u on the output and v on an input, <vjp(u), v> = <u, J v>. J v is a central difference in the
machine's binary32; with steps of 2^-6 its error is below 1e-3 of the terms involved, and a wrong
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
#: Shapes of the arguments and the options of one call of every primitive.
CALLS = {
    "matmul": ([(5, 4), (4, 3)], {}),
    "add": ([(5, 3), (5, 3)], {}),
    "bias": ([(5, 3), (3,)], {}),
    "relu": ([(5, 3)], {}),
    "scale": ([(5, 3)], {"factor": 256.0}),
    "cast": ([(5, 3)], {"dtype": BINARY32}),
    "reshape": ([(5, 4)], {"shape": (2, 10)}),
    "softmax_cross_entropy": ([(5, 3)], {"labels": LABELS}),
}
STEP = 2.0**-6


def machine() -> Device:
    return Device(f32_denormals="ieee")


def leaves(device, values, fmt=BINARY32):
    return [Variable(device.from_host(x, fmt), device, f"x{k}") for k, x in enumerate(values)]


def value(name, device, values, options):
    return PRIMITIVES[name](*leaves(device, values), **options)


def test_every_primitive_is_checked():
    assert CALLS.keys() == PRIMITIVES.keys()


@pytest.mark.parametrize("name", PRIMITIVES)
def test_backward_rules_are_the_transposed_derivative(name):
    shapes, options = CALLS[name]
    device = machine()
    rng = np.random.default_rng(5)
    # Multiples of 1/8, at least 1/8 from zero: no step crosses relu's corner.
    xs = [(rng.integers(1, 12, s) / 8) * rng.choice([-1, 1], s) for s in shapes]
    tensors = leaves(device, xs)
    y = PRIMITIVES[name](*tensors, **options)
    u = rng.integers(-8, 9, y.shape) / 8
    found = gradients(y, tensors, device.from_host(u, BINARY32))
    for k, gradient in enumerate(found):
        v = rng.integers(-8, 9, shapes[k]) / 8
        ahead, behind = (
            value(name, device, [x + s * v if j == k else x for j, x in enumerate(xs)], options)
            for s in (STEP, -STEP)
        )
        slope = (ahead.array.values.astype(float) - behind.array.values) / (2 * STEP)
        expected = float((slope * u).sum())
        got = float((gradient.values.astype(float) * v).sum())
        assert gradient.shape == shapes[k]
        assert got == pytest.approx(expected, rel=2e-3, abs=2e-3)


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
    assert work(y) == Work(macs=4 * 8 * 2, results=4 * 2)


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
