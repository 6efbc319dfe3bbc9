"""Activations and their gradients.

relu, tanh, sigmoid and the tanh form of gelu follow `ipu.ops`. gelu by the error function,
silu, and the gradients of both forms of gelu are computed in binary32 and rounded once.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch

from fpsim.array import Array
from ipu import ops
from ipu.frontends.torch.aten.table import Call, aten
from ipu.machine import Device
from ipu.machine.tabulated import Function, tabulated

__all__: list[str] = []

_INSIDE = "binary32 inside, once at the end"
_ROOT_HALF, _DENSITY = math.sqrt(0.5), 1 / math.sqrt(2 * math.pi)


@aten("relu.default", rounding="none")
def _relu(call: Call, x: Any) -> Any:
    return call.result(call.device.relu(call.array(x)))


@aten("threshold_backward.default", rounding="none")
def _threshold_backward(call: Call, gradient: Any, x: Any, threshold: float) -> Any:
    g, a = call.arrays(gradient, x)
    # A NaN passes the gradient on, as torch's condition x <= threshold says.
    return call.result(call.device.select(~(a.carrier <= threshold), g))


@aten("tanh_backward.default", rounding="after each operation of g · (1 - y · y)")
def _tanh_backward(call: Call, gradient: Any, y: Any) -> Any:
    return _pulled_back(call, ops.tanh, gradient, y)


@aten("sigmoid_backward.default", rounding="after each operation of g · (y · (1 - y))")
def _sigmoid_backward(call: Call, gradient: Any, y: Any) -> Any:
    return _pulled_back(call, ops.sigmoid, gradient, y)


def _pulled_back(call: Call, primitive: Any, gradient: Any, y: Any) -> Any:
    g, a = call.arrays(gradient, y)
    return call.result(primitive.vjps[0](call.device, g, (a,)))


# gelu and silu ----------------------------------------------------------------------------------


def _phi(device: Device, x: Array) -> Array:
    """The normal distribution: (1 + erf(x / sqrt(2))) / 2."""
    return device.multiply(device.add(device.erf(device.multiply(x, _ROOT_HALF)), 1.0), 0.5)


def _gelu_of(device: Device, x: Array) -> Array:
    return device.multiply(x, _phi(device, x))


def _gelu_slope(device: Device, x: Array) -> Array:
    bell = device.multiply(device.exp(device.multiply(device.multiply(x, x), -0.5)), _DENSITY)
    return device.add(_phi(device, x), device.multiply(x, bell))


def _silu_of(device: Device, x: Array) -> Array:
    return device.multiply(x, device.sigmoid(x))


def _silu_slope(device: Device, x: Array) -> Array:
    """s · (1 + x · (1 - s))."""
    s = device.sigmoid(x)
    return device.multiply(s, device.add(device.multiply(x, device.subtract(1.0, s)), 1.0))


def _sloped(call: Call, gradient: Any, x: Any, slope: Function) -> Any:
    """The gradient times a slope at x, both in binary32."""
    g, a = call.arrays(gradient, x)
    product = call.device.multiply(call.wide(g), tabulated(call.device, a, slope))
    return call.rounded(product, a.format)


@aten("gelu.default", rounding=f"{_INSIDE}; the tanh form after each operation")
def _gelu(call: Call, x: Any, approximate: str = "none") -> Any:
    a = call.array(x)
    if approximate == "tanh":
        return call.result(ops.gelu.forward(call.device, a)[0])
    return call.rounded(tabulated(call.device, a, _gelu_of), a.format)


@aten("gelu_backward.default", rounding=_INSIDE)
def _gelu_backward(call: Call, gradient: Any, x: Any, approximate: str = "none") -> Any:
    if approximate != "tanh":
        return _sloped(call, gradient, x, _gelu_slope)
    device = call.device
    g, a = call.arrays(gradient, x)
    _, saved = ops.gelu.forward(device, call.wide(a))
    return call.rounded(ops.gelu.vjps[0](device, call.wide(g), saved), g.format)  # type: ignore[misc]


@aten("silu.default", rounding=_INSIDE)
def _silu(call: Call, x: Any) -> Any:
    a = call.array(x)
    return call.rounded(tabulated(call.device, a, _silu_of), a.format)


@aten("silu_backward.default", rounding=_INSIDE)
def _silu_backward(call: Call, gradient: Any, x: Any) -> Any:
    return _sloped(call, gradient, x, _silu_slope)


@aten("glu.default", rounding=_INSIDE)
def _glu(call: Call, x: Any, dim: int = -1) -> Any:
    a = call.array(x)
    values, gate = _halves(call, a, dim)
    return call.rounded(call.device.multiply(values, call.device.sigmoid(gate)), a.format)


@aten("glu_backward.default", rounding=_INSIDE)
def _glu_backward(call: Call, gradient: Any, x: Any, dim: int) -> Any:
    """g · s to the values, g · v · s · (1 - s) to the gate."""
    device = call.device
    g, a = call.arrays(gradient, x)
    values, gate = _halves(call, a, dim)
    s = device.sigmoid(gate)
    to_values = device.multiply(call.wide(g), s)
    to_gate = device.multiply(device.multiply(to_values, values), device.subtract(1.0, s))
    both = np.concatenate([to_values.carrier, to_gate.carrier], axis=dim)
    return call.rounded(to_values.like(both), a.format)


def _halves(call: Call, x: Array, dim: int) -> list[Array]:
    """Values and gate in binary32."""
    wide = call.wide(x)
    if x.shape[dim] % 2:
        raise ValueError(f"glu halves a dimension of {x.shape[dim]}; make it even")
    return [wide.like(np.ascontiguousarray(h)) for h in np.split(wide.carrier, 2, axis=dim)]


# Dropout ----------------------------------------------------------------------------------------


@aten("native_dropout.default", rounding="the product with 1 / (1 - p); the mask is torch's")
def _dropout(call: Call, x: Any, p: float, train: bool | None) -> Any:
    a = call.array(x)
    if train is False or p == 0:
        return call.result(a.like(a.carrier.copy())), torch.ones_like(x, dtype=torch.bool)
    mask = torch.empty(x.shape, dtype=torch.bool).bernoulli_(1 - p)
    kept = call.device.select(mask.numpy(), a)
    scale = 0.0 if p == 1 else 1 / (1 - p)
    return call.result(call.device.multiply(kept, call.constant(scale, a.format))), mask


@aten("native_dropout_backward.default", rounding="the product with the scale")
def _dropout_backward(call: Call, gradient: Any, mask: Any, scale: float) -> Any:
    g = call.array(gradient)
    kept = call.device.select(mask.numpy(), g)
    return call.result(call.device.multiply(kept, call.constant(scale, g.format)))


@aten("leaky_relu.default", rounding="once where x is negative")
def _leaky_relu(call: Call, x: Any, slope: float = 0.01) -> Any:
    a = call.array(x)
    return call.result(_leaking(call, a, a, slope))


@aten("leaky_relu_backward.default", rounding="once where x is negative")
def _leaky_relu_backward(
    call: Call, gradient: Any, x: Any, slope: float, self_is_result: bool
) -> Any:
    g, a = call.arrays(gradient, x)
    return call.result(_leaking(call, g, a, slope))


def _leaking(call: Call, values: Array, by: Array, slope: float) -> Array:
    """Values where `by` is positive, values times the slope elsewhere."""
    small = call.device.multiply(values, call.constant(slope, values.format))
    positive = by.carrier > 0
    small.carrier[positive] = values.carrier[positive]
    return small
