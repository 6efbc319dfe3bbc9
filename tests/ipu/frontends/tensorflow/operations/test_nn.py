"""Activations: as TensorFlow's in float32, as the primitive in half (differential)."""

from __future__ import annotations

import numpy as np
import pytest

from fpsim import BINARY16
from ipu import ops
from ipu.frontends.tensorflow.settings.notes import forget
from ipu.machine.device import Device
from tests.ipu.frontends.tensorflow.framework import ipu, tf
from tests.ipu.frontends.tensorflow.kernels.nodes import agree, half, numbers, on_machine

nn = ipu.nn_ops
x = numbers(5, 7)


def slopes(function, values):
    with tf.GradientTape() as tape:
        tensor = tf.constant(values)
        tape.watch(tensor)
        y = function(tensor)
    return y.numpy(), tape.gradient(y, tensor).numpy()


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (nn.gelu, lambda v: tf.nn.gelu(v, approximate=True)), (nn.swish, tf.nn.swish),
        (nn.softmax, tf.nn.softmax), (nn.hard_sigmoid, tf.keras.activations.hard_sigmoid),
    ],
)
def test_the_formulas_are_those_of_tensorflow(ours, theirs):
    for a, b in zip(slopes(ours, x), slopes(theirs, x), strict=True):
        np.testing.assert_allclose(a, b, rtol=2e-6, atol=2e-6)


@pytest.mark.parametrize("function", [nn.gelu, nn.swish, nn.hard_sigmoid])
def test_float32_is_as_on_tensorflow(function):
    agree("PyFunc" if function is nn.gelu else "Mul", function, x)


def test_gelu_of_halves_is_that_of_the_primitive():
    a, g = half(40), half(40, seed=1)

    def compute(a, g):
        with tf.GradientTape() as tape:
            tape.watch(a)
            y = nn.gelu(a)
        return y, tape.gradient(y, a, output_gradients=g)

    results, _ = on_machine(compute, a, g)
    device = Device()
    y, saved = ops.gelu.forward(device, device.from_host(a, BINARY16))
    slope = ops.gelu.vjps[0](device, device.from_host(g, BINARY16), saved)
    for ours, theirs in zip(results, (y, slope), strict=True):
        np.testing.assert_array_equal(ours.view("u2"), np.float16(theirs.values).view("u2"))


def test_convolutions_side_by_side_are_what_they_are():
    forget()

    @nn.multi_conv
    def both(a, b):
        return a + 1, b * 2

    assert both(1, 2) == (2, 4)
    with pytest.warns(RuntimeWarning, match="options of multi_conv are accepted"):
        assert nn.multi_conv(options={"perConvReservedTiles": "50"})(both)(1, 2) == (2, 4)
    with pytest.raises(TypeError, match="Expected the multi_conv `options` to be a `dict`"):
        nn.multi_conv(options="50")


def test_what_is_missing_has_a_sentence():
    with pytest.raises(NotImplementedError, match=r"nn_ops\.ctc_loss_v2 is not modelled; there"):
        _ = nn.ctc_loss_v2
    with pytest.raises(AttributeError, match=r"nn_ops has no 'gelo' here; there are gelu, "):
        _ = nn.gelo
