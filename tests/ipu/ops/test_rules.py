"""Costs of primitives: the cycles of each step by hand (golden); broadcasting as in numpy."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from fpsim import BINARY16, BINARY32
from ipu import ops
from ipu.learn.tensor import OperationCost, total_cost
from ipu.learn.variables import Variable
from ipu.machine import Device
from ipu.ops.rules import check_broadcast


def machine() -> Device:
    return Device(f32_denormals="ieee")


def leaves(device, values, fmt=BINARY32):
    return [Variable(device.from_host(x, fmt), device, f"x{k}") for k, x in enumerate(values)]


def test_vector_work_counts_the_cycles_of_each_step():
    device = machine()
    x, gamma, beta = leaves(device, [np.ones((5, 12)), np.ones(12), np.ones(12)], BINARY16)
    # binary16: subtract, two products, add; binary32: cast, two sums, squares; 4 and 2 per vector.
    assert total_cost(ops.layer_norm(x, gamma, beta)) == OperationCost(
        results=8 * 60, cycles=4 * 15 + 4 * 30
    )
    assert total_cost(ops.divide(x, gamma)) == OperationCost(results=60, cycles=21 * 15)
    assert total_cost(ops.softmax(ops.cast(x, dtype=BINARY32))) == OperationCost(
        results=60 + 7 * 60, cycles=15 + (1 + 3 + 1 + 6 + 1 + 10 + 1) * 30
    )
    assert total_cost(ops.reshape(x, shape=(60,))) == OperationCost()


def test_an_argument_broadcasts_to_another_where_numpy_gives_that_shape():
    device, extents = machine(), (0, 1, 2, 3)
    shapes = [s for n in range(3) for s in itertools.product(extents, repeat=n)]
    for shape, other_shape in itertools.product(shapes, shapes):
        x, y = device.zeros(shape, BINARY16), device.zeros(other_shape, BINARY16)
        try:
            fits = np.broadcast_shapes(shape, other_shape) == shape
        except ValueError:
            fits = False
        if fits:
            check_broadcast("bias", x, y)
        else:
            with pytest.raises(ValueError, match=r"^bias of shape .* does not broadcast to"):
                check_broadcast("bias", x, y)
