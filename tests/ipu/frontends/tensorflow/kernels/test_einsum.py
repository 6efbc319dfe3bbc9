"""Einsum: as TensorFlow for every kind of label; in half the product of the unit (differential)."""

from __future__ import annotations

import numpy as np
import pytest

from fpsim import BINARY16
from ipu.machine.device import Device
from tests.ipu.frontends.tensorflow.framework import tf
from tests.ipu.frontends.tensorflow.kernels.nodes import agree, half, numbers, on_machine

x, y = numbers(4, 3), numbers(4, 3, seed=1)
batch = numbers(2, 4, 3)
EQUATIONS = {
    "a product": ("ij,kj->ik", x, y),
    "in batches": ("bij,bkj->bik", batch, batch[:, ::-1].copy()),
    "heads of attention": ("abc,cde->abde", batch, numbers(3, 2, 2)),
    "batches in the middle": ("aecd,abcd->acbe", numbers(2, 3, 2, 4), numbers(2, 5, 2, 4)),
    "an ellipsis": ("...ij,...jk->...ik", numbers(2, 3, 4), numbers(1, 4, 2)),
    "element by element": ("ij,ij->ij", x, y),
    "an outer product": ("i,j->ij", x[0], y[1]),
    "a number": ("ij,ij->", x, y),
    "a label of one operand": ("ij,k->k", x, y[0]),
    "transposed": ("ij->ji", x),
    "summed": ("ij->i", x),
    "a diagonal": ("ii->i", x[:3]),
    "a trace": ("ii->", x[:3]),
}
CASES = {"Einsum": (lambda a, b: tf.einsum("ij,kj->ik", a, b), x, y)}


@pytest.mark.parametrize("kind", EQUATIONS)
def test_float32_is_as_on_tensorflow(kind):
    equation, *arguments = EQUATIONS[kind]
    agree("Einsum", lambda *operands: tf.einsum(equation, *operands), *arguments)


def test_halves_are_those_of_the_unit():
    a, b = half(5, 40), half(40, 6, seed=1)
    (result,), _ = on_machine(lambda v, w: tf.einsum("ij,jk->ik", v, w), a, b)
    device = Device()
    expected = device.matmul(*(device.from_host(v, BINARY16) for v in (a, b)))
    np.testing.assert_array_equal(result.view(np.uint16),
                                  np.float16(expected.carrier).view(np.uint16))
