"""Activations of exponentials and logarithms: binary32 inside, rounded once.

e**x - 1 is 2t / (1 - t) with t = tanh(x/2), and log(1 + u) is log(w) · u / (w - 1) with
w = fl(1 + u), or u where w is 1: both keep the digits of small results.

Source    Higham, Accuracy and Stability of Numerical Algorithms, §1.14.1 (the quotient by w - 1).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from fpsim.array import Array
from ipu.frontends.torch.aten.table import Call, aten

__all__ = ["exp_minus_one", "log_one_plus"]

_INSIDE = "binary32 inside, once at the end"


def exp_minus_one(call: Call, x: Array) -> Array:
    """e**x - 1 of numbers up to 0; above it the identity's denominator cancels."""
    device = call.device
    t = device.tanh(device.multiply(x, 0.5))
    return device.divide(device.multiply(t, 2.0), device.subtract(1.0, t))


def log_one_plus(call: Call, u: Array) -> Array:
    """log(1 + u) of numbers from 0 to 1."""
    device = call.device
    w = device.add(u, 1.0)
    is_lost = w.carrier == 1
    gap = device.subtract(w, 1.0)
    gap.carrier[is_lost] = 1
    y = device.divide(device.multiply(device.log(w), u), gap)
    y.carrier[is_lost] = u.carrier[is_lost]
    return y


def _magnitude_negated(x: Array) -> Array:
    return x.like(-np.abs(x.carrier))


def _softplus_of(call: Call, x: Array) -> Array:
    """max(x, 0) + log(1 + e**-|x|)."""
    device = call.device
    tail = log_one_plus(call, device.exp(_magnitude_negated(x)))
    return device.add(device.relu(x), tail)


def _not_positive(x: Array) -> Array:
    """min(x, 0), +0 for either zero; a NaN passes."""
    return x.like(np.where(x.carrier >= 0, x.carrier.dtype.type(0), x.carrier))


def _where(chosen: Any, x: Array, y: Array) -> Array:
    return x.like(np.where(chosen, x.carrier, y.carrier))


@aten("elu.default", rounding=_INSIDE)
def _elu(call: Call, x: Any, alpha: float = 1, scale: float = 1, input_scale: float = 1) -> Any:
    """scale · x where x is positive, scale · alpha · (e**(x · input_scale) - 1) elsewhere."""
    device, a = call.device, call.array(x)
    w = call.wide(a)
    is_positive = w.carrier > 0
    low = _not_positive(w)
    if input_scale != 1:
        low = device.multiply(low, input_scale)
    y = exp_minus_one(call, low)
    if alpha != 1:
        y = device.multiply(y, alpha)
    y = _where(is_positive, w, y)
    return call.rounded(y if scale == 1 else device.multiply(y, scale), a.format)


@aten("celu.default", rounding=_INSIDE)
def _celu(call: Call, x: Any, alpha: float = 1) -> Any:
    return _elu(call, x, alpha, 1, 1 / alpha)


@aten("elu_backward.default", rounding=_INSIDE)
def _elu_backward(
    call: Call, gradient: Any, alpha: float, scale: float, input_scale: float, is_result: bool,
    of: Any,
) -> Any:  # fmt: skip
    device = call.device
    g, a = call.arrays(gradient, of)
    wide_g, w = call.wide(g), call.wide(a)
    low = _not_positive(w)
    if is_result:  # scale · alpha · e**x is the result plus scale · alpha
        slope = device.add(low, alpha * scale)
    else:
        low = device.multiply(low, input_scale) if input_scale != 1 else low
        slope = device.multiply(device.exp(low), alpha * scale)
    if input_scale != 1:
        slope = device.multiply(slope, input_scale)
    straight = device.multiply(wide_g, scale) if scale != 1 else wide_g
    return call.rounded(_where(w.carrier > 0, straight, device.multiply(wide_g, slope)), g.format)


@aten("softplus.default", rounding=_INSIDE)
def _softplus(call: Call, x: Any, beta: float = 1, threshold: float = 20) -> Any:
    device, a = call.device, call.array(x)
    w = call.wide(a)
    scaled = device.multiply(w, beta) if beta != 1 else w
    y = _softplus_of(call, scaled)
    if beta != 1:
        y = device.divide(y, beta)
    return call.rounded(_where(scaled.carrier > threshold, w, y), a.format)


@aten("softplus_backward.default", rounding=_INSIDE)
def _softplus_backward(call: Call, gradient: Any, x: Any, beta: float, threshold: float) -> Any:
    device = call.device
    g, a = call.arrays(gradient, x)
    wide_g, w = call.wide(g), call.wide(a)
    scaled = device.multiply(w, beta) if beta != 1 else w
    slope = device.multiply(wide_g, device.sigmoid(scaled))
    return call.rounded(_where(scaled.carrier > threshold, wide_g, slope), g.format)


@aten("mish.default", rounding=_INSIDE)
def _mish(call: Call, x: Any) -> Any:
    device, a = call.device, call.array(x)
    w = call.wide(a)
    return call.rounded(device.multiply(w, device.tanh(_softplus_of(call, w))), a.format)


@aten("mish_backward.default", rounding=_INSIDE)
def _mish_backward(call: Call, gradient: Any, x: Any) -> Any:
    """g · (t + x · s · (1 - t · t)) with t = tanh(softplus(x)), s = sigmoid(x)."""
    device = call.device
    g, a = call.arrays(gradient, x)
    w = call.wide(a)
    t = device.tanh(_softplus_of(call, w))
    bend = device.multiply(device.sigmoid(w), device.subtract(1.0, device.multiply(t, t)))
    slope = device.add(t, device.multiply(w, bend))
    return call.rounded(device.multiply(call.wide(g), slope), g.format)


@aten("log_sigmoid_forward.default", rounding=_INSIDE)
def _log_sigmoid(call: Call, x: Any) -> Any:
    """-softplus(-x), and an empty buffer: the gradient reads x alone."""
    device, a = call.device, call.array(x)
    w = call.wide(a)
    y = device.negative(_softplus_of(call, device.negative(w)))
    return call.rounded(y, a.format), x.new_empty(0)


@aten("log_sigmoid_backward.default", rounding=_INSIDE)
def _log_sigmoid_backward(call: Call, gradient: Any, x: Any, buffer: Any) -> Any:
    device = call.device
    g, a = call.arrays(gradient, x)
    w = call.wide(a)
    slope = device.sigmoid(device.negative(w))
    return call.rounded(device.multiply(call.wide(g), slope), g.format)
