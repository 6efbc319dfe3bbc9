"""Losses and accuracy: known answers, refusals."""

from __future__ import annotations

import math

import numpy as np
import pytest

from fpsim import BINARY16, BINARY32, round_to
from ipu import ops
from ipu.learn import losses
from ipu.learn.losses import accuracy, sparse_softmax_cross_entropy
from ipu.learn.tensor import Tensor, gradients
from ipu.learn.variables import Variable
from ipu.machine import Device


def machine() -> Device:
    return Device(f32_denormals="ieee")


def leaves(device, values, fmt=BINARY32):
    return [Variable(device.from_host(x, fmt), device, f"x{k}") for k, x in enumerate(values)]


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
    results = {}
    for fmt in (BINARY16, BINARY32):
        device = machine()
        (logits,) = leaves(device, [x], fmt)
        loss = sparse_softmax_cross_entropy(logits, np.array([2]))
        scaled = ops.scale(loss, factor=2.0**16)
        (results[fmt],) = gradients(scaled, [logits], device.from_host(1.0, BINARY32))
    assert (
        results[BINARY16].values.tolist() == round_to(results[BINARY32].values, BINARY16).tolist()
    )
    unscaled = results[BINARY32].values[0, 0] / 2**16
    assert results[BINARY16].values[0, 0] != 2**16 * round_to(unscaled, BINARY16)


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


def test_a_dense_loss_of_certain_labels_is_the_sparse_one():
    device = Device()
    x = Tensor(device.from_host(np.arange(6.0).reshape(2, 3) / 4, BINARY16), device)
    dense = losses.softmax_cross_entropy(x, np.eye(3)[[2, 0]])
    sparse = losses.sparse_softmax_cross_entropy(x, np.array([2, 0]))
    assert float(dense.array) == pytest.approx(float(sparse.array), rel=1e-6)
