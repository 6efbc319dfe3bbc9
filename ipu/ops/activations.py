"""Activations: relu, tanh, sigmoid, gelu, dropout.

gelu is a composite of operations in the format of x, each rounded once: x · Phi with
Phi = (1 + tanh(x · sqrt(2/pi) · (1 + 0.044715 x²))) / 2. Its square saturates, as on the machine:
overflow neither traps nor becomes NaN there.

Source    poplibs, NonLinearityDef.hpp (formulas), NonLinearity1D_gelu.S (control bits), poprand
          (dropout: the mask, then the scale).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from fpsim.array import Array
from ipu.machine.device import Device
from ipu.ops.primitive import Primitive
from ipu.ops.rules import Saved, steps
from ipu.ops.saved import positive_keys

__all__ = ["dropout", "gelu", "relu", "sigmoid", "tanh"]

#: sqrt(2 / pi) and the cubic's coefficient, as poplibs writes them.
_SLOPE, _CUBIC = 0.7978845608, 0.044715


def _relu(device: Device, x: Array) -> tuple[Array, Saved]:
    y = device.relu(x)
    return y, (y,)


def _relu_x(device: Device, gradient: Array, saved: Saved, **_: Any) -> Array:
    return device.select_positive(*positive_keys(saved, 0), gradient)


def _tanh(device: Device, x: Array) -> tuple[Array, Saved]:
    y = device.tanh(x)
    return y, (y,)


def _tanh_x(device: Device, gradient: Array, saved: Saved, **_: Any) -> Array:
    """gradient · (1 - y²)."""
    (y,) = saved
    return device.multiply(gradient, device.subtract(1.0, device.multiply(y, y)))


def _sigmoid(device: Device, x: Array) -> tuple[Array, Saved]:
    y = device.sigmoid(x)
    return y, (y,)


def _sigmoid_x(device: Device, gradient: Array, saved: Saved, **_: Any) -> Array:
    """gradient · (y · (1 - y))."""
    (y,) = saved
    return device.multiply(gradient, device.multiply(y, device.subtract(1.0, y)))


@contextmanager
def _saturating(device: Device) -> Iterator[None]:
    """NANOO and OFLO are off: overflow gives the largest value and stops nothing."""
    before = device.control
    device.control = replace(before, nanoo=False, oflo=False)
    try:
        yield
    finally:
        device.control = before


def _gelu(device: Device, x: Array) -> tuple[Array, Saved]:
    with _saturating(device):
        square = device.multiply(x, x)
        bend = device.add(device.multiply(square, _CUBIC), 1.0)
        t = device.tanh(device.multiply(device.multiply(x, _SLOPE), bend))
        share = device.multiply(device.add(t, 1.0), 0.5)
        return device.multiply(x, share), (x, t)


def _gelu_x(device: Device, gradient: Array, saved: Saved, **_: Any) -> Array:
    """gradient · (Phi + x (1 - t²) / 2 · sqrt(2/pi) (1 + 3 · 0.044715 x²))."""
    x, t = saved
    with _saturating(device):
        square = device.multiply(x, x)
        bend = device.add(device.multiply(square, 3 * _CUBIC), 1.0)
        fall = device.multiply(device.subtract(1.0, device.multiply(t, t)), _SLOPE / 2)
        rise = device.multiply(device.multiply(x, fall), bend)
        share = device.multiply(device.add(t, 1.0), 0.5)
        return device.multiply(gradient, device.add(share, rise))


def _dropout(device: Device, x: Array, *, keep: float) -> tuple[Array, Saved]:
    if not 0 < keep <= 1:
        raise ValueError(
            f"keep={keep} is not a probability of keeping; use more than 0 and at most 1"
        )
    mask = device.random_mask(x.shape, keep)
    return device.multiply(device.select(mask, x), 1 / keep), (mask,)


def _dropout_x(device: Device, gradient: Array, saved: Saved, *, keep: float) -> Array:
    return device.multiply(device.select(saved[0], gradient), 1 / keep)


#: max(x, 0); NaN passes.
relu = Primitive("relu", _relu, (_relu_x,), cost=steps(relu=1))
#: The hyperbolic tangent.
tanh = Primitive("tanh", _tanh, (_tanh_x,), cost=steps(tanh=1))
#: 1 / (1 + exp(-x)).
sigmoid = Primitive("sigmoid", _sigmoid, (_sigmoid_x,), cost=steps(sigmoid=1))
#: x · Phi(x), Phi by tanh.
gelu = Primitive("gelu", _gelu, (_gelu_x,), cost=steps(multiply=6, add=2, tanh=1))
#: x / keep with probability `keep`, else 0; the backward rule has the same mask.
dropout = Primitive("dropout", _dropout, (_dropout_x,), cost=steps(select=1, multiply=1))
